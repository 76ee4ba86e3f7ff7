"""The paper's Algorithm 2: robust scores of candidates by stochastic steps, one run per candidate.

inf_μ E^μ[f(x*, Y) | x*] = −inf over α, λ̄, λ ≥ 0, β of  αε + Σ_i w_i β_i + Σ_k (λ̄_k p_hi_k − λ_k p_lo_k) + E_{P_X} Ψ(x)

where Ψ is Φ with the losses −1[x = x*] f(x, y) / φ̂(x) (paper, eq. active-dual). It is here as the reference for the
exact scores of `robust_model_change`, which need no iterations of this kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from surefoot._types import FloatArray
from surefoot.active.flexibility import check_impact, label_flexibility
from surefoot.active.strategies import Impact, RobustModelChange
from surefoot.costs import FeatureMetric
from surefoot.dual.bounds import dual_value
from surefoot.dual.models import FixedLosses
from surefoot.paper.stochastic_gradient import StochasticGradient, check_steps, run_algorithm1
from surefoot.priors import LabelPrior
from surefoot.problem.sets import DecisionSet
from surefoot.unlabeled import Unlabeled

# The settings of the paper's appendix.
PAPER_STEPS = StochasticGradient(n_steps=50_000, decay=10.0, decay_every=5_000)
# The first step size, which the paper does not name, as a share of the losses' size, the spread of f(x*, ·)/φ̂(x*):
# that is how far the multipliers have to travel. Measured on random problems: with N = 40 rows it ends within a
# hundredth of the exact score, with more rows farther below, since x* itself is drawn but every N/100 steps.
_RATE = 0.03


def algorithm2(
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
    steps: StochasticGradient | None = None,
) -> FloatArray:
    """Scores ĝ of the paper's Algorithm 2, each a lower bound of `robust_model_change`.

    Of several runs with other step sizes or seeds the largest score is the nearest, since none can exceed the exact
    one. φ̂(x*) is the mass of the row in P_X.

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
    steps : StochasticGradient or None, default=None
        Step settings. None: Adam with batches of 100, 50,000 steps a candidate, the step size cut by 10 every 5,000. A
        learning_rate of None is 0.03 (max_k f(x*, k) − min_k f(x*, k)) / φ̂(x*), for each candidate.

    Returns
    -------
    array of shape (M,)
        A score per candidate.

    Examples
    --------
    >>> f = [[2.0, 1.0], [1.0, 2.0]]
    >>> algorithm2(f, [[0.0], [1.0]], [0, 1], X_unlabeled=[[0.1], [0.3]], label_prior=[0.5, 0.5]).round(2)
    array([1.75, 1.75])
    """
    steps = PAPER_STEPS if steps is None else check_steps(steps)
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
    f = check_impact(impact, len(found.rows), len(found.classes))
    ds = found.decision_set.with_radius(found.radius)
    if found.features is not None:  # its stochastic steps draw any row at any time: all distances are held
        ds = replace(ds, distances=found.features.distances.at(np.arange(len(ds.row_weights))))
    return np.array([algorithm2_score(ds, int(row), f[at], steps) for at, row in enumerate(found.rows)])


def algorithm2_score(ds: DecisionSet, row: int, impact: FloatArray, steps: StochasticGradient = PAPER_STEPS) -> float:
    """ĝ of one candidate: `row` counts all rows of the decision set, impact (K,) = f(x*, ·)."""
    if steps.learning_rate is None:
        spread = float(np.ptp(impact)) or 1.0  # where all labels have the same impact any step will do
        steps = replace(steps, learning_rate=_RATE * spread / float(ds.row_weights[row]))
    matrix = np.zeros((len(ds.row_weights), ds.n_classes))
    matrix[row] = -impact / ds.row_weights[row]
    losses = FixedLosses(matrix)
    return -dual_value(ds, losses, run_algorithm1(ds, losses, steps).point)


class StochasticModelChange(RobustModelChange):
    """DR as printed: the candidate with the largest score of Algorithm 2, one run of stochastic steps per candidate.

    `active.RobustModelChange` computes the exact scores, without these runs.

    Parameters
    ----------
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities: 95 % intervals from y, exact, intervals, or unconstrained.
    margin : float or None, default=None
        Added to the radius of a rule; None is 0.1·κ/N, see `active.label_flexibility`.
    radius : float, "ends" or "minimal", default="ends"
        Radius of the decision set, or the rule for it: see `active.label_flexibility`.
    label_cost : float or array of shape (K, K), default=1.0
        Cost κ of a change of label, or a matrix: [k, c] is the cost of turning label c of a labeled row into k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows.
    impact : "gradient" or function(clf, X) -> array (N, K), default="gradient"
        Impacts f(x_j, k) of labels.
    classes : array of shape (K,) or None, default=None
        All classes, where neither the classifier nor the labels show them all.
    max_candidates : int or None, default=100
        Score a random subset of the candidates of this size, as the paper does; None scores all.
    missing_label : NaN, None or a label, default=NaN
        The mark of a row without a label.
    random_state : int, RandomState or None, default=None
        Seed of the draw of candidates and of ties.
    steps : StochasticGradient or None, default=None
        Step settings, see `algorithm2`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = [[0.0], [1.0], [0.45], [0.1]], [0, 1, np.nan, np.nan]
    >>> steps = StochasticGradient(n_steps=1000)
    >>> StochasticModelChange(label_prior=[0.5, 0.5], steps=steps).query(X, y, LogisticRegression())
    array([2])
    """

    def __init__(
        self,
        label_prior: LabelPrior | ArrayLike | str | None = "auto",
        margin: float | None = None,
        *,
        radius: float | Literal["ends", "minimal"] = "ends",
        label_cost: ArrayLike = 1.0,
        metric: FeatureMetric | str | Callable[..., float] = "euclidean",
        impact: Impact = "gradient",
        classes: ArrayLike | None = None,
        max_candidates: int | None = 100,
        missing_label: Any = np.nan,
        random_state: Any = None,
        steps: StochasticGradient | None = None,
    ) -> None:
        super().__init__(
            label_prior,
            margin,
            radius=radius,
            label_cost=label_cost,
            metric=metric,
            impact=impact,
            classes=classes,
            max_candidates=max_candidates,
            missing_label=missing_label,
            random_state=random_state,
        )
        self.steps = steps

    def _scores(self, *arguments: Any, **keywords: Any) -> FloatArray:
        return algorithm2(*arguments, **keywords, steps=self.steps)
