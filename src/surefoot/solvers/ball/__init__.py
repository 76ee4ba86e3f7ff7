"""The ball alone: Wasserstein-robust logistic regression without unlabeled rows."""
