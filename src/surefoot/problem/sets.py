"""The adversary's decision set: distributions with given feature marginal, label intervals and radius."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot._errors import ParameterError
from surefoot._machine import check_fits
from surefoot._validation import FloatArray, check_finite_array, check_positive_scalar
from surefoot.costs.learned import resolve_metric
from surefoot.costs.metrics import FeatureMetric, Precomputed
from surefoot.priors import LabelPrior, resolve_prior
from surefoot.priors.clopper_pearson import tighten
from surefoot.problem.distances import distances_to_anchors

# Label costs: the cost of changing a label, as a K×K matrix.

# κ in the units of the data: the median distance between rows, in the metric of the problem.
MEDIAN = "median"


def plain_label_cost(matrix: FloatArray) -> float | FloatArray:
    """Return a single number if all label changes have the same cost, otherwise the matrix (K, K)."""
    kappa = float(matrix.max())
    return kappa if np.array_equal(matrix, kappa * (1.0 - np.eye(len(matrix)))) else matrix


def label_cost_matrix(label_cost: ArrayLike, n_classes: int) -> FloatArray:
    """Return the label cost as a matrix (K, K): entry [k, c] is the cost of changing a label c of a labeled row to k.

    Parameters
    ----------
    label_cost : float or array of shape (K, K)
        A number κ > 0 means κ·1[k≠c]. A matrix must have a zero diagonal and positive entries elsewhere. It need not be
        symmetric.
    n_classes : int
        Classes, K.

    Returns
    -------
    array of shape (K, K)
        The checked matrix.

    Examples
    --------
    >>> label_cost_matrix(2.0, 2)
    array([[0., 2.],
           [2., 0.]])
    """
    if isinstance(label_cost, str):
        raise ParameterError(
            "label_cost",
            f'must be a number or a matrix ("{MEDIAN}" requires all rows)',
            repr(label_cost),
            "Pass a number, such as label_cost_ of a fitted estimator.",
        )
    if np.ndim(label_cost) == 0:
        kappa = check_positive_scalar(label_cost, "label_cost")
        return kappa * (1.0 - np.eye(n_classes))
    matrix = check_finite_array(label_cost, "label_cost")
    if matrix.shape != (n_classes, n_classes):
        raise ParameterError(
            "label_cost",
            f"must be a number or a matrix for the K = {n_classes} classes",
            f"shape {matrix.shape}",
            f"Pass a matrix of shape ({n_classes}, {n_classes}).",
        )
    if np.diagonal(matrix).any():
        raise ParameterError(
            "label_cost",
            "must have a zero diagonal, because keeping a label costs nothing",
            np.diagonal(matrix),
            "Set the diagonal to 0.",
        )
    off_diagonal = matrix[~np.eye(n_classes, dtype=bool)]
    if off_diagonal.size and off_diagonal.min() <= 0:
        raise ParameterError(
            "label_cost",
            "must be > 0 off its diagonal",
            repr(float(off_diagonal.min())),
            "Pass a positive cost for each change of label.",
        )
    return np.array(matrix, order="C")


_MOST_TYPICAL_ROWS = 1000
_WHERE_DISTANCES_DO_NOT_FIT = (
    "Pass a random sample of the unlabeled rows, or fewer labeled rows. Or use arguments that support blocks of rows: "
    'a number or "auto" as radius, a tol of at least 1e-5, a classifier instead of losses.'
)


@dataclass(frozen=True, eq=False)
class DecisionSet:
    """All μ over rows × labels with μ(x_j) = m_j, μ(y=k) in intervals[k] and W_c(μ, P̂_l) ≤ radius.

    Attributes
    ----------
    distances : (N, n) feature distances of rows to anchors, anchors grouped by class.
    row_weights : (N,) the feature marginal P_X.
    anchor_weights : (n,) the labeled distribution P̂_l.
    anchor_labels : (n,) class codes, non-decreasing.
    label_cost : (K, K), entry [k, c] the cost of turning label c into k.
    intervals : (K, 2) label probability intervals, intersected with the simplex.
    radius : float.
    anchor_rows : (n,) the labeled row of each anchor (the first among identical rows); None if not known.
    """

    distances: FloatArray
    row_weights: FloatArray
    anchor_weights: FloatArray
    anchor_labels: NDArray[np.intp]
    label_cost: FloatArray
    intervals: FloatArray
    radius: float
    anchor_rows: NDArray[np.intp] | None = None

    @property
    def n_classes(self) -> int:
        return len(self.label_cost)

    @cached_property
    def present(self) -> NDArray[np.intp]:
        """Class codes that at least one anchor has."""
        return np.unique(self.anchor_labels)

    @cached_property
    def class_offsets(self) -> NDArray[np.int64]:
        """(C+1,) first anchor of each class present, then n, the end."""
        return np.append(np.searchsorted(self.anchor_labels, self.present), len(self.anchor_labels)).astype(np.int64)

    @cached_property
    def class_columns(self) -> tuple[tuple[int, int], ...]:
        """First anchor and stop of each class present, C pairs."""
        return tuple(pairwise(self.class_offsets.tolist()))

    @cached_property
    def anchor_slots(self) -> NDArray[np.intp]:
        """(n,) position of each anchor's class among the classes present."""
        return np.searchsorted(self.present, self.anchor_labels)

    @cached_property
    def present_label_cost(self) -> FloatArray:
        """(K, C) cost of changing a label from each class present."""
        return np.ascontiguousarray(self.label_cost[:, self.present])

    @property
    def label_frequencies(self) -> FloatArray:
        """(K,) p̂, the label probabilities of the labeled distribution."""
        counts = np.bincount(self.anchor_labels, weights=self.anchor_weights, minlength=self.n_classes)
        return cast("FloatArray", counts)  # numpy's types cover integer counts only

    @cached_property
    def median_distance(self) -> float:
        """The median over rows of the median distance to anchors. A few distant anchors do not change it.

        If there are many rows, evenly spaced rows are used. Without rows, the median is 0.
        """
        kept = np.flatnonzero(self.row_weights > 0)
        if len(kept) == 0:
            return 0.0  # a set without rows
        some = kept[np.linspace(0, len(kept) - 1, min(len(kept), _MOST_TYPICAL_ROWS)).astype(np.intp)]
        return float(np.median(np.median(self.distances[some], axis=1)))

    def with_radius(self, radius: float) -> DecisionSet:
        return replace(self, radius=float(radius))

    def with_label_shares(self, shares: FloatArray) -> DecisionSet:
        """Return the set with anchors reweighted so that the classes present have these shares (K,)."""
        wanted = np.where(np.isin(np.arange(self.n_classes), self.present), shares, 0.0)
        ratio = np.divide(wanted, self.label_frequencies, out=np.zeros(self.n_classes), where=wanted > 0)
        weights = self.anchor_weights * ratio[self.anchor_labels]
        return replace(self, anchor_weights=weights / weights.sum())


def build_decision_set(
    X: FloatArray,
    codes: NDArray[np.intp],
    n_classes: int,
    *,
    X_unlabeled: FloatArray | None = None,
    unlabeled_weights: FloatArray | None = None,
    sample_weight: FloatArray | None = None,
    radius: float = np.inf,
    label_prior: LabelPrior | ArrayLike | str | None = None,
    label_cost: ArrayLike = 1.0,
    metric: FeatureMetric | str | Callable[..., float] = "euclidean",
    target: bool = False,
) -> DecisionSet:
    """Build the decision set of labeled rows X (n, d) with class codes, and unlabeled rows (M, d).

    A labeled row of weight w counts w times, in the labeled distribution and in the feature marginal. An unlabeled row
    counts once in the feature marginal, or `unlabeled_weights` (M,) times. Labeled rows with equal features and labels
    become one anchor whose weight is their total.

    target : True if the unlabeled rows are a sample of another population. They alone then make up the feature
    marginal.
    """
    weights = np.ones(len(X)) if sample_weight is None else sample_weight
    rows = X if X_unlabeled is None else np.vstack([X, X_unlabeled])
    others = np.ones(len(rows) - len(X)) if unlabeled_weights is None else unlabeled_weights
    row_weights = np.concatenate([weights, others])
    counts = np.bincount(codes, weights=weights, minlength=n_classes)
    prior = resolve_prior(label_prior, other_population=target)
    intervals = tighten(prior.for_rows(X, codes, n_classes, None if target else X_unlabeled).intervals(counts))
    feature_metric = resolve_metric(metric)
    # each column of precomputed distances belongs to one labeled row: equal features need not mean equal columns
    merge = not isinstance(feature_metric, Precomputed)
    anchors, anchor_weights = _anchors(X, codes, weights, merge=merge)
    if target and X_unlabeled is not None:
        rows, row_weights = X_unlabeled, others
    check_fits(len(rows), len(anchors), "the distances of all rows to labeled rows", _WHERE_DISTANCES_DO_NOT_FIT)
    return DecisionSet(
        distances=distances_to_anchors(feature_metric, rows, X, anchors),
        row_weights=row_weights / row_weights.sum(),
        anchor_weights=anchor_weights / anchor_weights.sum(),
        anchor_labels=codes[anchors],
        label_cost=label_cost_matrix(label_cost, n_classes),
        intervals=intervals,
        radius=float(radius),
        anchor_rows=anchors,
    )


def _anchors(
    X: FloatArray, codes: NDArray[np.intp], weights: FloatArray, *, merge: bool
) -> tuple[NDArray[np.intp], FloatArray]:
    """Return the labeled rows of positive weight, ordered by label. With `merge`, equal rows become one anchor."""
    if not merge:
        kept = np.flatnonzero(weights > 0)
        kept = kept[np.argsort(codes[kept], kind="stable")]
        return kept, weights[kept]
    first, merged = distinct_rows(X, codes, weights)
    order = np.lexsort((first, codes[first]))
    return first[order], merged[order]


def distinct_rows(X: FloatArray, codes: NDArray[np.intp], weights: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
    """Return the first row of each group of equal features and label, and the total weight of each group."""
    kept = np.flatnonzero(weights > 0)
    keys = np.column_stack([codes[kept].astype(np.float64), X[kept]])
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    merged = cast("FloatArray", np.bincount(inverse.ravel(), weights=weights[kept]))
    return kept[first], merged
