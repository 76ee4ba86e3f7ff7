"""The public names of surefoot. `surefoot` itself loads this when the first of them is used."""

from surefoot import active, costs, datasets, priors
from surefoot._errors import InfeasibleRadiusError, UnlabeledRowsWarning
from surefoot._version import __version__
from surefoot.blocks.newton import Newton
from surefoot.blocks.sources import ParquetRows
from surefoot.bounds.audit import Audit
from surefoot.bounds.menu import error_bound, error_bounds
from surefoot.bounds.result import ErrorBound, ErrorBounds
from surefoot.bounds.series import AuditSeries
from surefoot.bounds.shift import Shift, shift
from surefoot.bounds.size import AuditSize, audit_size
from surefoot.calibration import Calibrated, RadiusEstimate
from surefoot.certificates.certificate import Certificate, WorstCase
from surefoot.certificates.fresh import FreshCertificate
from surefoot.certify import certify
from surefoot.estimators.ball import WassersteinLogisticRegression
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.path import RadiusPath, WorstCaseCurve, radius_path, worst_case_curve
from surefoot.radius import calibrate_radius, minimal_radius, transport_distance
from surefoot.solvers.sgd import StochasticGradient, UnboundedDualError
from surefoot.unlabeled import Unlabeled

__all__ = [
    "Audit",
    "AuditSeries",
    "AuditSize",
    "Calibrated",
    "Certificate",
    "ErrorBound",
    "ErrorBounds",
    "FreshCertificate",
    "InfeasibleRadiusError",
    "Newton",
    "ParquetRows",
    "RadiusEstimate",
    "RadiusPath",
    "RobustLogisticRegression",
    "Shift",
    "StochasticGradient",
    "UnboundedDualError",
    "Unlabeled",
    "UnlabeledRowsWarning",
    "WassersteinLogisticRegression",
    "WorstCase",
    "WorstCaseCurve",
    "__version__",
    "active",
    "audit_size",
    "calibrate_radius",
    "certify",
    "costs",
    "datasets",
    "error_bound",
    "error_bounds",
    "minimal_radius",
    "priors",
    "radius_path",
    "shift",
    "transport_distance",
    "worst_case_curve",
]
