"""Exact search: follow the smoothed dual until the upper and the lower bound agree."""
