from . import active, costs, datasets, paper, priors
from ._errors import InfeasibleRadiusError, PickedLabelsWarning, RepeatedRowsWarning, UnlabeledRowsWarning
from ._version import __version__
from .backends.compute import Compute
from .backends.sources import ParquetRows
from .bounds.audit import Audit
from .bounds.methods import error_bound, error_bounds, error_rate_bound
from .bounds.population import shift
from .bounds.result import ErrorBound
from .bounds.size import audit_size
from .certificates.calibration import CalibratedRadius, RadiusEstimate
from .certificates.certificate import Certificate, WorstCase
from .certificates.certification import certify
from .certificates.fresh import FreshCertificate
from .certificates.radius import calibrate_radius, minimal_radius, transport_distance
from .certificates.verify import verify
from .estimators.ball import WassersteinLogisticRegression
from .estimators.base import labeled_folds
from .estimators.combined import CombinedClassifier
from .estimators.curves import radius_curve
from .estimators.minimax import MinimaxClassifier
from .estimators.robust import RobustLogisticRegression
from .problem.rows import Unlabeled

__all__ = [
    "Audit",
    "CalibratedRadius",
    "Certificate",
    "CombinedClassifier",
    "Compute",
    "ErrorBound",
    "FreshCertificate",
    "InfeasibleRadiusError",
    "MinimaxClassifier",
    "ParquetRows",
    "PickedLabelsWarning",
    "RadiusEstimate",
    "RepeatedRowsWarning",
    "RobustLogisticRegression",
    "Unlabeled",
    "UnlabeledRowsWarning",
    "WassersteinLogisticRegression",
    "WorstCase",
    "__version__",
    "active",
    "audit_size",
    "calibrate_radius",
    "certify",
    "costs",
    "datasets",
    "error_bound",
    "error_bounds",
    "error_rate_bound",
    "labeled_folds",
    "minimal_radius",
    "paper",
    "priors",
    "radius_curve",
    "shift",
    "transport_distance",
    "verify",
]
