"""Impact functions f(x_j, k): how much a model would change if row j were labeled k (paper, section 6.1).

All are gradient norms ‖∇_θ ℓ(h_θ(x_j), k)‖ of the log loss, as matrices (N, K) with the classes in sorted order. Any
other function of a classifier and rows that returns such a matrix serves as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, check_finite_array, check_positive_integer
from surefoot.active.flexibility import label_flexibility
from surefoot.backends.compute import Compute
from surefoot.costs import FeatureMetric
from surefoot.priors import LabelPrior
from surefoot.problem.losses import probabilities
from surefoot.problem.rows import Unlabeled

# Scores of unlabeled rows as functions of impacts f (M, K): the higher, the sooner a row should be labeled.


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


_SAME_PROBABILITIES = 1e-6


def logistic_impact(
    clf: Any, X: ArrayLike, *, classes: ArrayLike | None = None, feature_norm: bool = True
) -> FloatArray:
    """Gradient norms (N, K) of a fitted linear logistic classifier, in closed form.

    Two classes: f(x, k) = (1 − p_k)·‖x̃‖. K classes: f(x, k) = ‖p − e_k‖₂·‖x̃‖.

    Here p = h_θ(x) and x̃ is x with the constant feature one appended, if the classifier has an intercept.

    Parameters
    ----------
    clf : fitted classifier
        Logistic regression of scikit-learn or of this package, or any linear classifier whose probabilities are the
        softmax of its scores; bare, at the end of a Pipeline, or wrapped by scikit-activeml.
    X : array of shape (N, d)
        Rows.
    classes : array of shape (K,) or None, default=None
        All classes, where clf may have seen fewer: those it has not seen have probability zero.
    feature_norm : bool, default=True
        False drops the factor ‖x̃‖: the form that the paper's appendix prints for Min and Max model change.

    Returns
    -------
    array of shape (N, K)
        Impacts f(x_j, k), classes in sorted order.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> clf = LogisticRegression().fit([[-1.0], [1.0]], [0, 1])
    >>> logistic_impact(clf, [[0.0]]).round(3)  # undecided: both labels change it as much
    array([[0.5, 0.5]])
    """
    X_seen, last = seen_by_last_step(clf, X)
    if not hasattr(last, "coef_") or not hasattr(last, "decision_function"):
        raise ParameterError(
            "clf",
            'must be a fitted linear logistic classifier for impact="gradient"',
            type(last).__name__,
            "Pass impact=function(clf, X) -> array (N, K), or a torch module.",
        )
    proba = last.predict_proba(X_seen)
    if not np.allclose(proba, probabilities(last.decision_function(X_seen)), atol=_SAME_PROBABILITIES):
        raise ParameterError(
            "clf",
            'must predict the softmax of its scores for impact="gradient"',
            f"{type(last).__name__}, which does not",
            "Pass impact=function(clf, X) -> array (N, K).",
        )
    p = spread_over(proba, last.classes_, classes)
    if p.shape[1] == 2:
        sizes = 1.0 - p
    else:
        # ‖p − e_k‖² = ‖p‖² − 2 p_k + 1
        sizes = np.sqrt(np.maximum(np.square(p).sum(axis=1, keepdims=True) - 2.0 * p + 1.0, 0.0))
    return sizes * np.linalg.norm(with_constant(X_seen, last), axis=1)[:, None] if feature_norm else sizes


def torch_impact(
    module: Any,
    X: ArrayLike,
    *,
    parameters: Callable[[str], bool] | None = None,
    batch_size: int = 256,
) -> FloatArray:
    """Gradient norms (N, K) of the log loss of a torch module, one gradient per row and label.

    Parameters
    ----------
    module : torch.nn.Module, or a fitted skorch net
        Maps rows (B, ...) to scores (B, K); one score (B,) or (B, 1) is the logit of the second of two classes.
    X : array of shape (N, ...)
        Rows.
    parameters : function(name) -> bool, or None, default=None
        Which parameters count, by their names; all by default. The last layer alone is much cheaper.
    batch_size : int, default=256
        Rows at a time: memory holds that many gradients.

    Returns
    -------
    array of shape (N, K)
        Impacts f(x_j, k), classes in sorted order.

    Examples
    --------
    >>> import torch
    >>> module = torch.nn.Linear(2, 1, bias=False)
    >>> _ = torch.nn.init.zeros_(module.weight)
    >>> torch_impact(module, [[3.0, 4.0]])
    array([[2.5, 2.5]])
    """
    import torch
    from torch.func import functional_call, grad, vmap

    module = getattr(module, "module_", module)
    chosen = {name: p.detach() for name, p in module.named_parameters() if parameters is None or parameters(name)}
    if not chosen:
        raise ParameterError("parameters", "must select some of the module's parameters", "none", "Check their names.")
    rest = {name: p.detach() for name, p in module.named_parameters() if name not in chosen}
    fixed = rest | {name: b.detach() for name, b in module.named_buffers()}
    some = next(iter(chosen.values()))
    rows = torch.as_tensor(np.asarray(X), dtype=some.dtype, device=some.device)

    def scores(weights: Any, row: Any) -> Any:
        out = functional_call(module, weights | fixed, (row[None],)).reshape(-1)
        return torch.cat([torch.zeros_like(out), out]) if out.numel() == 1 else out

    def loss(weights: Any, row: Any, label: Any) -> Any:
        return -(torch.log_softmax(scores(weights, row), dim=0) * label).sum()

    per_label = vmap(grad(loss), in_dims=(None, None, 0))
    per_row = vmap(per_label, in_dims=(None, 0, None))
    was_training = module.training
    module.eval()
    try:
        labels = torch.eye(scores(chosen, rows[0]).numel(), dtype=some.dtype, device=some.device)
        found = []
        for batch in rows.split(check_positive_integer(batch_size, "batch_size")):
            gradients = per_row(chosen, batch, labels)
            squares = sum(g.detach().flatten(start_dim=2).square().sum(dim=2) for g in gradients.values())
            found.append(squares.sqrt().double().cpu().numpy())
    finally:
        module.train(was_training)
    return np.concatenate(found)


def gradient_impact(
    clf: Any, X: ArrayLike, *, classes: ArrayLike | None = None, feature_norm: bool = True
) -> FloatArray:
    """Gradient norms (N, K): `torch_impact` for torch modules and skorch nets, `logistic_impact` for all else.

    Parameters
    ----------
    clf : torch.nn.Module, fitted skorch net, or fitted linear logistic classifier
        The model.
    X : array of shape (N, d)
        Rows.
    classes : array of shape (K,) or None, default=None
        All classes, where a linear classifier may have seen fewer.
    feature_norm : bool, default=True
        Whether the closed form has the factor ‖x̃‖.

    Returns
    -------
    array of shape (N, K)
        Impacts f(x_j, k), classes in sorted order.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> clf = LogisticRegression().fit([[-1.0], [1.0]], [0, 1])
    >>> gradient_impact(clf, [[0.0], [1.0]]).shape
    (2, 2)
    """
    if is_torch(clf):
        return torch_impact(clf, X)
    return logistic_impact(clf, X, classes=classes, feature_norm=feature_norm)


def is_torch(clf: Any) -> bool:
    """Whether clf is a torch module or a skorch net, without importing torch."""
    inner = getattr(clf, "module_", clf)
    return any(base.__module__.split(".")[0] == "torch" for base in type(inner).__mro__)


def seen_by_last_step(clf: Any, X: ArrayLike) -> tuple[FloatArray, Any]:
    """Rows as the last step of a classifier sees them, and that step: the steps of a Pipeline before it are applied."""
    if hasattr(clf, "missing_label"):  # scikit-activeml's wrapper
        clf = getattr(clf, "estimator_", clf)
    if isinstance(clf, Pipeline):
        X = clf[:-1].transform(X) if len(clf) > 1 else X
        clf = clf[-1]
    return check_finite_array(X, "X", ndim=2), clf


def with_constant(X: FloatArray, last: Any) -> FloatArray:
    """Rows (N, d+1) with the constant feature one, or X itself for a classifier without an intercept."""
    return np.hstack([X, np.ones((len(X), 1))]) if getattr(last, "fit_intercept", True) else X


def spread_over(proba: FloatArray, seen: NDArray[Any], classes: ArrayLike | None) -> FloatArray:
    """Columns (N, K) for all classes, zero for those not seen."""
    if classes is None or len(np.asarray(classes)) == len(seen):
        return proba
    known = np.asarray(classes)
    missing = np.setdiff1d(seen, known)
    if len(missing):
        raise ParameterError(
            "classes",
            "must contain those of the classifier",
            f"classes={known.tolist()} without {missing.tolist()}",
            "Add them.",
        )
    p = np.zeros((len(proba), len(known)))
    p[:, np.searchsorted(known, seen)] = proba
    return p
