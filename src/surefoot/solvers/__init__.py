"""Solvers, which take arrays and return solutions with their duals."""
