"""radius="predictive": labels in the shares that they predict, the minimal radius and a small excess.

Both were settled by measurement (docs/prediction.md). The excess is in units of the label cost.

The larger the excess, the more the classifier hedges, up to the same answer for every row. That answer is taken only
where the labels give no reason for another one.
"""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from surefoot._types import FloatArray
from surefoot.costs.learned import feature_spread
from surefoot.dual.design import Coordinates
from surefoot.exact.problem import Game, RobustProblem
from surefoot.exact.solution import Solution
from surefoot.losses import probabilities

# Excess in units of the label cost: that share of the rows may change their labels.
EXCESS = 0.001
# Inverse strength of the ridge penalty, scikit-learn's C: the mean loss counts that many times n against ½‖θ‖².
RIDGE = 0.5
# The same where the metric takes the scales of the features as they are: scikit-learn's default.
RIDGE_AS_GIVEN = 1.0
# Where the optimum is the same answer for every row: by how much the excess falls, and how often.
_FALL, _MOST_FALLS = 0.25, 4
# Probabilities that differ by less are the same answer.
_LITTLE = 0.02
_FOLDS, _C = 5, 0.3
# Rows over which the shares of the classes are predicted.
_MOST_SEEN = 10_000


class Learner(Protocol):
    """What learns at a radius: a `FitProblem`."""

    @property
    def problem(self) -> RobustProblem: ...
    @property
    def game(self) -> Game: ...
    def at(self, radius: float) -> Solution: ...


def fit_to_predict(learner: Learner) -> Solution:
    """Learn at the predictive radius; at a smaller one where that makes a constant answer, and a better one exists."""
    problem = learner.problem
    excess = EXCESS * float(problem.decision_set.label_cost.max())
    solution = learner.at(problem.minimal.value + excess)
    rows = some_rows(problem)[0]
    if not answers_alike(rows, *learner.game.coefficients(solution.theta)):
        return solution
    data = problem.data
    as_given = data.rule is not None and data.rule.unit is not None
    if not beats_a_constant(data.rows, data.codes, data.weights, data.rule.spread if as_given else None):
        return solution
    for _ in range(_MOST_FALLS):
        excess *= _FALL
        smaller = learner.at(problem.minimal.value + excess)
        if not answers_alike(rows, *learner.game.coefficients(smaller.theta)):
            return smaller
    return solution


def predicted_shares(problem: RobustProblem, coordinates: Coordinates | None) -> FloatArray:
    """(K,) shares of the classes over all rows, as a ridge logistic regression on the labels predicts them.

    Labeled rows show the classes in shares that are off by chance, and at a small radius all rows must have labels in
    these shares. Their features tell how far off they are. The shares are kept within the label intervals.
    """
    data, ds = problem.data, problem.decision_set
    given = ds.label_frequencies
    if len(ds.present) < 2:
        return given
    rule = data.rule
    spread = rule.spread if rule is not None or coordinates is None else coordinates.scale
    per_unit = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    weights = ds.anchor_weights / (ds.anchor_weights**2).sum()  # as many in all as labels of equal weight
    model = LogisticRegression(C=_C, max_iter=1000)
    model.fit(problem.anchors * per_unit, ds.anchor_labels, sample_weight=weights)
    rows, row_weights = some_rows(problem)
    shares = np.zeros(ds.n_classes)
    shares[ds.present] = row_weights @ model.predict_proba(rows * per_unit) / row_weights.sum()
    return within(shares, ds.intervals)


def some_rows(problem: RobustProblem) -> tuple[FloatArray, FloatArray]:
    """Rows of the feature marginal and their weights: all, or of many some that stand for them."""
    rule = problem.data.rule
    if rule is None:
        held = problem.sample(_MOST_SEEN, 0)
        return held.data.everything, held.row_weights
    first = rule.n_labeled if problem.data.target else 0
    return rule.seen[first:], rule.seen_weights[first:]


def within(shares: FloatArray, intervals: FloatArray) -> FloatArray:
    """(K,) shares moved by one amount, and cut off where the intervals (K, 2) end, such that they sum to 1."""
    lo, hi = intervals.T

    def total(shift: float) -> float:
        return float(np.clip(shares + shift, lo, hi).sum()) - 1.0

    if total(-1.0) >= 0 or total(1.0) <= 0:  # the intervals leave no choice, but for rounding
        return lo if total(-1.0) >= 0 else hi
    return np.clip(shares + brentq(total, -1.0, 1.0), lo, hi)


def answers_alike(rows: FloatArray, coef: FloatArray, intercept: FloatArray) -> bool:
    """Whether a linear classifier gives every row the same class, or the same probabilities but for a little."""
    scores = rows @ coef.T + intercept
    proba = probabilities(scores.ravel() if scores.shape[1] == 1 else scores)
    return len(np.unique(proba.argmax(axis=1))) < 2 or bool(np.ptp(proba, axis=0).max() < _LITTLE)


def beats_a_constant(
    rows: FloatArray, codes: NDArray[np.intp], weights: FloatArray, spread: FloatArray | None = None
) -> bool:
    """Whether cross-validation prefers a ridge logistic regression on the labels to their frequencies, by log loss.

    spread : (d,) what features are divided by, by default their standard deviation over these rows.
    """
    kept = weights > 0
    rows, codes, weights = rows[kept], codes[kept], weights[kept]
    counts = np.bincount(codes)
    folds = min(_FOLDS, int(counts[counts > 0].min()))
    if np.count_nonzero(counts) < 2 or folds < 2:
        return False
    spread = feature_spread(rows, weights) if spread is None else spread
    unit = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, np.inf)
    split = StratifiedKFold(folds, shuffle=True, random_state=0)
    proba = _held_out(LogisticRegression(C=_C), unit, codes, split)
    constant = _held_out(LogisticRegression(C=1e-12), unit, codes, split)
    at = np.searchsorted(np.flatnonzero(counts), codes)
    gain = np.log(proba[np.arange(len(codes)), at]) - np.log(constant[np.arange(len(codes)), at])
    return bool(weights @ gain > 0)


def _held_out(model: Any, X: FloatArray, codes: NDArray[np.intp], split: StratifiedKFold) -> FloatArray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found: FloatArray = cross_val_predict(model, X, codes, cv=split, method="predict_proba")
    return found
