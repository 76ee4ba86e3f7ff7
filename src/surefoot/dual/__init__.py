"""The dual of the robust problem: the smoothed objective, its models, and both bounds at a point."""
