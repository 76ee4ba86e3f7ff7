"""Scores of unlabeled rows as functions of impacts f (M, K): the higher, the sooner a row should be labeled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from surefoot._types import FloatArray
from surefoot._validation import check_finite_array
from surefoot.active.flexibility import label_flexibility
from surefoot.blocks.newton import Newton
from surefoot.costs import FeatureMetric
from surefoot.priors import LabelPrior
from surefoot.unlabeled import Unlabeled


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


def robust_model_change(  # noqa: PLR0913 - one keyword per part of the problem
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
    n_jobs: int | None = None,
    solver: Newton | None = None,
) -> FloatArray:
    """(M,) inf_μ E^μ[f(x_j, Y) | x_j]: the impact that labeling row j has whatever the distribution.

    μ ranges over the decision set around the labeled rows X (n, d), y (n,), with the feature marginal of all rows
    (paper, eq. distributionally-robust-active-learning). The scores are exact, and equal min_k f where the adversary
    is free to choose the label: at every row, from a margin of 2κ/N on.

    Parameters
    ----------
    impact : array of shape (M, K)
        f(x_j, k) for the rows of X_unlabeled, or for its `candidates`; classes in sorted order.
    X, y, X_unlabeled, radius, margin, label_prior, label_cost, metric, classes, candidates, n_jobs, solver
        As in `label_flexibility`.

    Examples
    --------
    >>> f = [[1.0, 2.0], [2.0, 1.0]]
    >>> robust_model_change(f, [[0.0], [1.0]], [0, 1], X_unlabeled=[[0.1], [0.3]], label_prior=[0.5, 0.5]).round(3)
    array([1., 1.])
    """
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
        n_jobs=n_jobs,
        solver=solver,
    )
    return found.least_expectation(impact)
