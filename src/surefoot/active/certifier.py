"""A certificate for rows that were not labeled at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._validation import check_labeled_rows, check_more_rows, check_positive_scalar
from surefoot.certificates.certificate import Certificate
from surefoot.certify import certify
from surefoot.costs import FeatureMetric, resolve_metric
from surefoot.losses import LOG_LOSS
from surefoot.priors import LabelPrior
from surefoot.radius import minimal_radius
from surefoot.unlabeled import Unlabeled, unwrap

# Every row of the pool counts once in P_X; as a labeled row it must not count a second time.
_NEGLIGIBLE = 1e-9


@dataclass(frozen=True)
class NearestCertifier:
    """Certificates around the labeled rows, each weighted by the rows of the pool that are nearest to it.

    Rows that a strategy picked do not look like the pool: most lie where classes meet. With equal weights they would
    stand for rows far from there, and the certified risk would rise with every label. A certificate needs no i.i.d.
    labels, only a set that holds the truth; so the weights may follow the pool. The set is then that of all
    distributions with the pool's features, label probabilities in the intervals, and a distance from the weighted rows
    of at most: mean distance to the nearest labeled row + cheapest relabeling + excess.

    It holds the truth if excess ≥ κ times the share of rows whose label differs from that of the nearest labeled row.

    Parameters
    ----------
    excess : float
        Radius beyond the minimal one, ≥ 0.
    label_prior : array (K,), array (K, 2), LabelPrior or None, default=None
        Label probabilities of the pool.
    loss, label_cost, metric
        As in `surefoot.certify`.
    tol : float, default=1e-4
        Certified gap to reach, in units of the loss (absolute).
    """

    excess: float
    label_prior: LabelPrior | ArrayLike | None = None
    loss: str | ArrayLike = LOG_LOSS
    label_cost: ArrayLike = 1.0
    metric: FeatureMetric | str | Callable[..., float] = "euclidean"
    tol: float = 1e-4

    def __call__(self, clf: Any, X: ArrayLike, y: ArrayLike, *, X_unlabeled: ArrayLike | Unlabeled) -> Certificate:
        """The certificate of a fitted classifier, given the labeled rows and the rest of the pool."""
        rows, labels = check_labeled_rows(X, y)
        pool = np.vstack([rows, check_more_rows(unwrap(X_unlabeled)[0], "X_unlabeled", rows.shape[1])])
        nearest = resolve_metric(self.metric).distances(pool, rows).argmin(axis=1)
        problem: dict[str, Any] = {
            "X_unlabeled": Unlabeled(pool),
            "sample_weight": _NEGLIGIBLE * np.bincount(nearest, minlength=len(rows)),
            "label_prior": self.label_prior,
            "label_cost": self.label_cost,
            "metric": self.metric,
            "classes": clf.classes_,
        }
        excess = check_positive_scalar(self.excess, "excess", allow_zero=True)
        radius = minimal_radius(rows, labels, **problem) + excess
        return certify(clf, rows, labels, radius=radius, loss=self.loss, tol=self.tol, **problem)
