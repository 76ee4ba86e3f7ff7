"""A table and its labels: reading, preparing, training, appraising, ranking, storing."""
