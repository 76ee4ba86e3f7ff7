"""Results: certificates of the worst case, over the rows given and over fresh ones."""
