"""Bounds on the error rate of a classifier. Each states its kind of guarantee: theorem, conditional or measured."""
