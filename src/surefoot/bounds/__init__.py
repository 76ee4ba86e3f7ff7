"""Bounds on how often a classifier errs, each with its kind of guarantee: theorem, conditional or measured."""
