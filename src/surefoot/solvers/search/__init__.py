"""Exact search: follow the smoothed dual until upper and lower bound agree."""
