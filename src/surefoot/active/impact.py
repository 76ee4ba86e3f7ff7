"""Impact functions f(x_j, k): how much a model would change if row j were labeled k (paper, section 6.1).

All are gradient norms ‖∇_θ ℓ(h_θ(x_j), k)‖ of the log loss, as matrices (N, K) with the classes in sorted order. You
can pass any other function of a classifier and rows that returns a matrix of this shape.
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
from surefoot.costs.metrics import FeatureMetric
from surefoot.priors import LabelPrior
from surefoot.problem.losses import probabilities
from surefoot.problem.rows import Unlabeled

# Scores of unlabeled rows as functions of impacts f (M, K). Rows with a higher score should be labeled sooner.


def expected_model_change(impact: ArrayLike, proba: ArrayLike) -> FloatArray:
    """Compute the expected impact under the model's own probabilities: Σ_k h_θ(x_j)_k f(x_j, k).

    Parameters
    ----------
    impact : array of shape (M, K)
        Impacts f(x_j, k) of the rows, with classes in sorted order.
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
    """Compute the conservative score, the smallest impact over all labels: min_k f(x_j, k).

    Parameters
    ----------
    impact : array of shape (M, K)
        Impacts f(x_j, k) of the rows, with classes in sorted order.

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
    """Compute the optimistic score, the largest impact over all labels: max_k f(x_j, k).

    Parameters
    ----------
    impact : array of shape (M, K)
        Impacts f(x_j, k) of the rows, with classes in sorted order.

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
    """Compute the expected impact that every distribution guarantees for row j: inf_μ E^μ[f(x_j, Y) | x_j].

    The infimum is over the decision set around the labeled rows X (n, d), y (n,), with the feature marginal of all rows
    (paper, eq. distributionally-robust-active-learning). The scores are exact. A score equals min_k f if the adversary
    can choose the label freely. This holds for every row if the margin is at least 2κ/N.

    Parameters
    ----------
    impact : array of shape (M, K)
        Impacts f(x_j, k) of the rows of X_unlabeled, or of its `candidates`, with classes in sorted order.
    X : array of shape (n, d)
        Labeled rows.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d) or Unlabeled
        Unlabeled rows to score.
    radius : float, "ends" or "minimal", default="ends"
        Radius of the decision set, or the rule that finds it: see `label_flexibility`.
    margin : float or None, default=None
        Added to the radius that a rule finds. None means 0.1·κ/N, see `label_flexibility`.
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities, with classes in sorted order: 95 % intervals from y ("clopper-pearson"), exact values (K,),
        intervals (K, 2), or None for no constraint.
    label_cost : float or array of shape (K, K), default=1.0
        Cost κ of changing a label, or a matrix whose entry [k, c] is the cost of changing label c of a labeled row to
        k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", an object of `surefoot.costs`, or a function.
    classes : array of shape (K,) or None, default=None
        All classes, if some classes may be missing from y.
    candidates : array of shape (m,) or None, default=None
        Indices of the rows of X_unlabeled to consider. None considers all.
    n_jobs : int or None, default=None
        Number of threads over groups of rows. None means one, -1 one per core.
    compute : Compute or None, default=None
        Where sums over blocks of rows run (for example on a GPU), and how much memory they may use. None: in memory up
        to 2^24 distances, in blocks beyond.

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
    """Compute the gradient norms (N, K) of a fitted linear logistic classifier in closed form.

    For two classes f(x, k) = (1 − p_k)·‖x̃‖, for K classes f(x, k) = ‖p − e_k‖₂·‖x̃‖. Here p = h_θ(x), and x̃ is x with
    a constant feature 1 appended if the classifier has an intercept.

    Parameters
    ----------
    clf : fitted classifier
        Logistic regression of scikit-learn or of this package, or any linear classifier whose probabilities are the
        softmax of its scores. It can also be the last step of a Pipeline, or wrapped by scikit-activeml.
    X : array of shape (N, d)
        Rows.
    classes : array of shape (K,) or None, default=None
        All classes, if clf may not have seen some classes. Unseen classes have probability zero.
    feature_norm : bool, default=True
        Whether to include the factor ‖x̃‖. The paper's appendix omits it for Min and Max model change.

    Returns
    -------
    array of shape (N, K)
        Impacts f(x_j, k), with classes in sorted order.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> clf = LogisticRegression().fit([[-1.0], [1.0]], [0, 1])
    >>> logistic_impact(clf, [[0.0]]).round(3)  # undecided: both labels have the same impact
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
            f"{type(last).__name__}, which does not do so",
            "Pass impact=function(clf, X) -> array (N, K).",
        )
    p = spread_over(proba, last.classes_, classes)
    sizes = label_surprise(p)
    return sizes * np.linalg.norm(with_constant(X_seen, last), axis=1)[:, None] if feature_norm else sizes


def label_surprise(p: FloatArray) -> FloatArray:
    """Return norms (N, K) of the log-loss gradient in the scores: 1 − p_k for two classes, else ‖p − e_k‖₂."""
    if p.shape[1] == 2:
        return 1.0 - p
    # ‖p − e_k‖² = ‖p‖² − 2 p_k + 1
    sizes: FloatArray = np.sqrt(np.maximum(np.square(p).sum(axis=1, keepdims=True) - 2.0 * p + 1.0, 0.0))
    return sizes


def torch_impact(
    module: Any,
    X: ArrayLike,
    *,
    parameters: Callable[[str], bool] | None = None,
    batch_size: int = 256,
) -> FloatArray:
    """Compute the gradient norms (N, K) of the log loss of a torch module, with one gradient per row and label.

    Parameters
    ----------
    module : torch.nn.Module, or a fitted skorch net
        Maps rows (B, ...) to scores (B, K). For two classes, one score (B,) or (B, 1) is the logit of the second class.
    X : array of shape (N, ...)
        Rows.
    parameters : function(name) -> bool, or None, default=None
        Selects parameters by name. None selects all. Selecting only the last layer is much cheaper.
    batch_size : int, default=256
        Number of rows, and therefore gradients, held in memory at a time.

    Returns
    -------
    array of shape (N, K)
        Impacts f(x_j, k), with classes in sorted order.

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
    """Compute gradient norms (N, K): `torch_impact` for torch modules and skorch nets, `logistic_impact` otherwise.

    Parameters
    ----------
    clf : torch.nn.Module, fitted skorch net, or fitted linear logistic classifier
        The model.
    X : array of shape (N, d)
        Rows.
    classes : array of shape (K,) or None, default=None
        All classes, if a linear classifier may not have seen some classes.
    feature_norm : bool, default=True
        Whether the closed form includes the factor ‖x̃‖.

    Returns
    -------
    array of shape (N, K)
        Impacts f(x_j, k), with classes in sorted order.

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
    """Return True if clf is a torch module or a skorch net, without importing torch."""
    inner = getattr(clf, "module_", clf)
    return any(base.__module__.split(".")[0] == "torch" for base in type(inner).__mro__)


def seen_by_last_step(clf: Any, X: ArrayLike) -> tuple[FloatArray, Any]:
    """Return the rows as the last step of a classifier (for example a Pipeline) receives them, and that step."""
    if hasattr(clf, "missing_label"):  # scikit-activeml's wrapper
        clf = getattr(clf, "estimator_", clf)
    if isinstance(clf, Pipeline):
        X = clf[:-1].transform(X) if len(clf) > 1 else X
        clf = clf[-1]
    return check_finite_array(X, "X", ndim=2), clf


def with_constant(X: FloatArray, last: Any) -> FloatArray:
    """Return rows (N, d+1) with a constant feature 1, or X itself for a classifier without an intercept."""
    return np.hstack([X, np.ones((len(X), 1))]) if getattr(last, "fit_intercept", True) else X


def spread_over(proba: FloatArray, seen: NDArray[Any], classes: ArrayLike | None) -> FloatArray:
    """Return columns (N, K) for all classes, zero for unseen classes."""
    if classes is None or len(np.asarray(classes)) == len(seen):
        return proba
    known = np.asarray(classes)
    missing = np.setdiff1d(seen, known)
    if len(missing):
        raise ParameterError(
            "classes",
            "must contain all classes of the classifier",
            f"classes={known.tolist()} without {missing.tolist()}",
            "Add them.",
        )
    p = np.zeros((len(proba), len(known)))
    p[:, np.searchsorted(known, seen)] = proba
    return p
