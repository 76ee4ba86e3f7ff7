"""Table 1 of the paper: likelihoods of active learning strategies."""

from surefoot.paper.table1.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
