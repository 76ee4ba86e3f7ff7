"""The problem as data: rows, distances, and the adversary's decision set."""
