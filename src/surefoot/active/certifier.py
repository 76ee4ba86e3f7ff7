"""A certificate for rows that were not labeled at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._validation import check_labeled_rows, check_more_rows, check_positive_scalar
from surefoot.blocks.placement import check_problem
from surefoot.certificates.certificate import Certificate
from surefoot.certification import ClassifierLoss, certify_over, known_classes
from surefoot.costs import FeatureMetric
from surefoot.losses import LOG_LOSS
from surefoot.priors import LabelPrior
from surefoot.problem.geometry import distances_to_anchors, shared_geometry
from surefoot.problem.ground import settle_ground_cost
from surefoot.problem.rows import LabeledData
from surefoot.unlabeled import UNLABELED, Unlabeled, unwrap, warn_about_unlabeled

# Every row of the pool counts once in P_X; as a labeled row it must not count a second time.
_NEGLIGIBLE = 1e-9
_CLIP = 1e-12


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
    loss : "log_loss", "zero_one" or array of shape (K, K), default="log_loss"
        Loss to bound; a matrix has the loss of predicting class c where the truth is k at [k, c]. See `certify`.
    label_cost : float or array of shape (K, K), default=1.0
        Cost κ of a change of label, or a matrix: [k, c] is the cost of turning label c of a labeled row into k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", an object of `surefoot.costs`, or a function.
    tol : float, default=1e-4
        Certified gap to reach, in units of the loss (absolute).

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y, U = [[0.0], [1.0]], [0, 1], [[0.1], [0.2], [0.9]]
    >>> clf = LogisticRegression().fit(X, y)
    >>> NearestCertifier(excess=0.1)(clf, X, y, X_unlabeled=U).status
    'optimal'
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
        unlabeled = check_more_rows(unwrap(X_unlabeled)[0], UNLABELED, rows.shape[1])
        warn_about_unlabeled(rows, unlabeled, len(unlabeled), wrapped=True)  # no cross-validation cuts these rows
        pool = np.vstack([rows, unlabeled])
        excess = check_positive_scalar(self.excess, "excess", allow_zero=True)
        classes = known_classes(clf, labels, None)
        asked = LabeledData.check(rows, labels, sample_weight=None, classes=classes, metric=self.metric)
        everything, anchors = np.vstack([rows, pool]), np.arange(len(rows))
        data, label_cost = settle_ground_cost(asked, self.label_cost, len(everything), everything.__getitem__)
        with shared_geometry():  # the problem asks for the distances from which its weights are made
            nearest = distances_to_anchors(data.metric, everything, rows, anchors)[len(rows) :].argmin(axis=1)
            problem = check_problem(
                rows,
                labels,
                X_unlabeled=Unlabeled(pool),
                sample_weight=_NEGLIGIBLE * np.bincount(nearest, minlength=len(rows)),
                label_prior=self.label_prior,
                label_cost=label_cost,
                metric=data.metric,
                classes=classes,
                tol=self.tol,
            )
        judged = ClassifierLoss.of(clf, problem.data.classes, self.loss, _CLIP, own=False)
        return certify_over(judged.game(problem, rows, pool, None), judged, problem.at_excess(excess), self.tol)
