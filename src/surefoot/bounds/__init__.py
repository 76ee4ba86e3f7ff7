"""Bounds on the error rate of a classifier. Each says its kind of guarantee: theorem, conditional or measured."""
