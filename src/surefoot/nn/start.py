"""Where the dual variables of a network start: those that are optimal for a robust linear classifier."""

from __future__ import annotations

import warnings
from typing import Any

from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from surefoot._errors import UnlabeledRowsWarning
from surefoot._types import FloatArray
from surefoot.certificates.certificate import Certificate
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.unlabeled import Unlabeled


def linear_certificate(
    rows: FloatArray, y: ArrayLike, unlabeled: FloatArray | None, weights: FloatArray, **keywords: Any
) -> Certificate:
    """Certificate of a robust linear classifier, to a gap of 1e-2: `row_bound` holds the sets and their dual points."""
    U = None if unlabeled is None else Unlabeled(unlabeled)
    clf = RobustLogisticRegression(**keywords, tol=1e-2)
    with warnings.catch_warnings():
        for category in (ConvergenceWarning, UnlabeledRowsWarning):  # of no concern to a network that starts here
            warnings.simplefilter("ignore", category)
        return clf.fit(rows, y, sample_weight=weights, X_unlabeled=U).certificate_
