"""Active learning: which rows to label next, and when to stop."""

from surefoot.active.flexibility import PAPER_MARGIN, label_flexibility
from surefoot.active.impact import robust_model_change
from surefoot.active.loop import ActiveLearner, NearestCertifier
from surefoot.active.proof import ProvenLabeling
from surefoot.active.simulation import simulate
from surefoot.active.strategies import (
    ExpectedModelChange,
    MaxModelChange,
    MinModelChange,
    RandomSampling,
    RobustModelChange,
)
from surefoot.bounds.engine import AuditPolicy

__all__ = [
    "PAPER_MARGIN",
    "ActiveLearner",
    "AuditPolicy",
    "ExpectedModelChange",
    "MaxModelChange",
    "MinModelChange",
    "NearestCertifier",
    "ProvenLabeling",
    "RandomSampling",
    "RobustModelChange",
    "label_flexibility",
    "robust_model_change",
    "simulate",
]
