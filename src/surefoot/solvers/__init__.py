"""Solvers: arrays in, solutions with their duals out."""
