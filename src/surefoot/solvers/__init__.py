"""Solvers. They take arrays and return solutions with dual points."""
