"""Active learning: which rows to label next, and when to stop."""

from surefoot.active.algorithm2 import algorithm2
from surefoot.active.certifier import NearestCertifier
from surefoot.active.flexibility import DEFAULT_MARGIN, PAPER_MARGIN, LabelFlexibility, label_flexibility
from surefoot.active.impact import gradient_impact, logistic_impact, torch_impact
from surefoot.active.loop import ActiveLearner, Round
from surefoot.active.proof import ProvenLabeling
from surefoot.active.proof_state import ProofState, Question
from surefoot.active.scores import (
    expected_model_change,
    max_model_change,
    min_model_change,
    robust_model_change,
)
from surefoot.active.simulate import Simulation, simulate
from surefoot.active.strategies import (
    ExpectedModelChange,
    MaxModelChange,
    MinModelChange,
    RandomSampling,
    RobustModelChange,
)

__all__ = [
    "DEFAULT_MARGIN",
    "PAPER_MARGIN",
    "ActiveLearner",
    "ExpectedModelChange",
    "LabelFlexibility",
    "MaxModelChange",
    "MinModelChange",
    "NearestCertifier",
    "ProofState",
    "ProvenLabeling",
    "Question",
    "RandomSampling",
    "RobustModelChange",
    "Round",
    "Simulation",
    "algorithm2",
    "expected_model_change",
    "gradient_impact",
    "label_flexibility",
    "logistic_impact",
    "max_model_change",
    "min_model_change",
    "robust_model_change",
    "simulate",
    "torch_impact",
]
