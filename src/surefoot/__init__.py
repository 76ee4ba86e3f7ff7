"""surefoot: few labels, many unlabeled rows, a classifier with a certified worst case."""

from surefoot import costs, priors
from surefoot._errors import InfeasibleRadiusError, UnlabeledRowsWarning
from surefoot._version import __version__
from surefoot.certificate import Certificate, WorstCase
from surefoot.linear_model import RobustLogisticRegression, WassersteinLogisticRegression
from surefoot.radius import minimal_radius, transport_distance
from surefoot.unlabeled import Unlabeled

__all__ = [
    "Certificate",
    "InfeasibleRadiusError",
    "RobustLogisticRegression",
    "Unlabeled",
    "UnlabeledRowsWarning",
    "WassersteinLogisticRegression",
    "WorstCase",
    "__version__",
    "costs",
    "minimal_radius",
    "priors",
    "transport_distance",
]
