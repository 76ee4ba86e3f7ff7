"""Scores of unlabeled rows as functions of impacts f (M, K): the higher, the sooner a row should be labeled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from surefoot._errors import ParameterError
from surefoot._types import FloatArray
from surefoot._validation import check_finite_array
from surefoot.active.flexibility import label_flexibility
from surefoot.blocks.compute import Compute
from surefoot.costs import FeatureMetric
from surefoot.priors import LabelPrior
from surefoot.unlabeled import Unlabeled


def expected_model_change(impact: ArrayLike, proba: ArrayLike) -> FloatArray:
    """Expected impact if the model were right: Σ_k h_θ(x_j)_k f(x_j, k).

    Parameters
    ----------
    impact : array of shape (M, K)
        Impacts f(x_j, k) of the rows, classes in sorted order.
    proba : array of shape (M, K)
        The model's probabilities h_θ(x_j).

    Returns
    -------
    array of shape (M,)
        A score per row.

    Examples
    --------
    >>> expected_model_change([[1.0, 3.0]], [[0.5, 0.5]])
    array([2.])
    """
    f, p = check_finite_array(impact, "impact", ndim=2), check_finite_array(proba, "proba", ndim=2)
    if f.shape != p.shape:
        raise ParameterError(
            "impact", "and proba must have one shape (M, K)", f"{f.shape} and {p.shape}", "Pass the same rows."
        )
    return np.einsum("jk,jk->j", p, f)


def min_model_change(impact: ArrayLike) -> FloatArray:
    """The conservative score, certain whatever the label: min_k f(x_j, k).

    Parameters
    ----------
    impact : array of shape (M, K)
        Impacts f(x_j, k) of the rows, classes in sorted order.

    Returns
    -------
    array of shape (M,)
        A score per row.

    Examples
    --------
    >>> min_model_change([[1.0, 3.0]])
    array([1.])
    """
    return check_finite_array(impact, "impact", ndim=2).min(axis=1)


def max_model_change(impact: ArrayLike) -> FloatArray:
    """The optimistic score: max_k f(x_j, k).

    Parameters
    ----------
    impact : array of shape (M, K)
        Impacts f(x_j, k) of the rows, classes in sorted order.

    Returns
    -------
    array of shape (M,)
        A score per row.

    Examples
    --------
    >>> max_model_change([[1.0, 3.0]])
    array([3.])
    """
    return check_finite_array(impact, "impact", ndim=2).max(axis=1)


def robust_model_change(  # noqa: PLR0913 - one keyword per part of the problem
    impact: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled,
    radius: float | Literal["ends", "minimal"] = "ends",
    margin: float | None = None,
    label_prior: LabelPrior | ArrayLike | str | None = "auto",
    label_cost: ArrayLike = 1.0,
    metric: FeatureMetric | str | Callable[..., float] = "euclidean",
    classes: ArrayLike | None = None,
    candidates: ArrayLike | None = None,
    n_jobs: int | None = None,
    compute: Compute | None = None,
) -> FloatArray:
    """The impact that labeling row j has whatever the distribution: inf_μ E^μ[f(x_j, Y) | x_j].

    μ ranges over the decision set around the labeled rows X (n, d), y (n,), with the feature marginal of all rows
    (paper, eq. distributionally-robust-active-learning). The scores are exact, and equal min_k f where the adversary
    is free to choose the label: at every row, from a margin of 2κ/N on.

    Parameters
    ----------
    impact : array of shape (M, K)
        Impacts f(x_j, k) of the rows of X_unlabeled, or of its `candidates`; classes in sorted order.
    X : array of shape (n, d)
        Labeled rows.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d) or Unlabeled
        Unlabeled rows: those looked at.
    radius : float, "ends" or "minimal", default="ends"
        Radius of the decision set, or the rule for it: see `label_flexibility`.
    margin : float or None, default=None
        Added to the radius of a rule; None is 0.1·κ/N, see `label_flexibility`.
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities: 95 % intervals from y, exact, intervals, or unconstrained. Classes in sorted order.
    label_cost : float or array of shape (K, K), default=1.0
        Cost κ of a change of label, or a matrix: [k, c] is the cost of turning label c of a labeled row into k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", an object of `surefoot.costs`, or a function.
    classes : array of shape (K,) or None, default=None
        All classes, where the labels may miss some.
    candidates : array of shape (m,) or None, default=None
        Indices of the rows of X_unlabeled to look at; all by default.
    n_jobs : int or None, default=None
        Threads over groups of rows; None means one, -1 one per core.
    compute : Compute or None, default=None
        Where sums over blocks of rows run (a GPU, say), and how much memory they may keep. None: in memory up to 2^24
        distances, beyond in blocks.

    Returns
    -------
    array of shape (M,)
        A score per row.

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
        compute=compute,
    )
    return found.least_expectation(impact)
