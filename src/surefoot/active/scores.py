"""Scores of unlabeled rows as functions of impacts f (M, K): the higher, the sooner a row should be labeled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from surefoot._validation import FloatArray, check_finite_array, check_labeled_rows
from surefoot.active.flexibility import label_flexibility
from surefoot.costs import FeatureMetric
from surefoot.distributed import rows_elsewhere
from surefoot.priors import LabelPrior
from surefoot.unlabeled import Unlabeled, unwrap

# Rows elsewhere are read into memory for at most this many distances.
_MOST_DISTANCES = 1 << 27


def expected_model_change(impact: ArrayLike, proba: ArrayLike) -> FloatArray:
    """(M,) Σ_k h_θ(x_j)_k f(x_j, k): the expected impact if the model were right, proba (M, K) its probabilities."""
    f, p = check_finite_array(impact, "impact", ndim=2), check_finite_array(proba, "proba", ndim=2)
    if f.shape != p.shape:
        raise ValueError(
            f"impact and proba must have one shape (M, K); got {f.shape} and {p.shape}. Pass the same rows."
        )
    return np.einsum("jk,jk->j", p, f)


def min_model_change(impact: ArrayLike) -> FloatArray:
    """(M,) min_k f(x_j, k): the conservative score, certain whatever the label."""
    return check_finite_array(impact, "impact", ndim=2).min(axis=1)


def max_model_change(impact: ArrayLike) -> FloatArray:
    """(M,) max_k f(x_j, k): the optimistic score."""
    return check_finite_array(impact, "impact", ndim=2).max(axis=1)


def robust_model_change(
    impact: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled,
    radius: float | Literal["ends", "minimal"] = "ends",
    margin: float | None = None,
    label_prior: LabelPrior | ArrayLike | str | None = "clopper-pearson",
    label_cost: ArrayLike = 1.0,
    metric: FeatureMetric | str | Callable[..., float] = "euclidean",
    classes: ArrayLike | None = None,
    candidates: ArrayLike | None = None,
) -> FloatArray:
    """(M,) inf_μ E^μ[f(x_j, Y) | x_j]: the impact that labeling row j has whatever the distribution.

    μ ranges over the decision set around the labeled rows X (n, d), y (n,), with the feature marginal of all rows
    (paper, eq. distributionally-robust-active-learning). The scores are exact, and equal min_k f where the adversary
    is free to choose the label: at every row, from a margin of 2κ/N on.

    Parameters
    ----------
    impact : array of shape (M, K)
        f(x_j, k) for the rows of X_unlabeled, or for its `candidates`; classes in sorted order.
    X_unlabeled : array of shape (M, d), or a memory map, `ParquetRows`, a Dask array or dataframe
        The latter are read into memory; where that would take more than 1 GiB of distances, only margins of 2κ/N and
        more are possible, which need none.
    X, y, radius, margin, label_prior, label_cost, metric, classes, candidates
        As in `label_flexibility`.

    Examples
    --------
    >>> f = [[1.0, 2.0], [2.0, 1.0]]
    >>> robust_model_change(f, [[0.0], [1.0]], [0, 1], X_unlabeled=[[0.1], [0.3]], label_prior=[0.5, 0.5]).round(3)
    array([1., 1.])
    """
    labeled = check_labeled_rows(X, y)[0]
    source = rows_elsewhere(unwrap(X_unlabeled)[0], labeled.shape[1])
    if source is not None and len(labeled) * source.n_rows > _MOST_DISTANCES:
        return _free_everywhere(impact, len(labeled) + source.n_rows, radius, margin, label_cost)
    if source is not None:
        X_unlabeled = source.read(0, source.n_rows)
    found = label_flexibility(
        X,
        y,
        X_unlabeled=X_unlabeled,
        radius=radius,
        margin=margin,
        label_prior=label_prior,
        label_cost=label_cost,
        metric=metric,
        classes=classes,
        candidates=candidates,
    )
    return found.least_expectation(impact)


def _free_everywhere(
    impact: ArrayLike, n_rows: int, radius: float | str, margin: float | None, label_cost: ArrayLike
) -> FloatArray:
    """The scores at a margin that frees every row."""
    enough = 2.0 * float(np.max(label_cost)) / n_rows
    if not isinstance(radius, str) or margin is None or margin < enough:
        raise ValueError(
            f"robust scores of {n_rows} rows that are not in memory need a margin of at least 2κ/N = {enough:.3g}, "
            f"where they are the least impact; got radius={radius!r}, margin={margin!r}. Pass such a margin, or fewer "
            "rows."
        )
    return min_model_change(impact)
