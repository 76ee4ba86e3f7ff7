"""One trial of the paper's Table 1: six strategies side by side, with a classifier that is refitted after each label.

The same picks and likelihoods as `surefoot.active.simulation` with the strategies of `surefoot.active`, which a test
holds, at about a hundredth of the time: the penalised logistic regressions of all strategies are fitted together by
Newton's method from the last ones, and one product with all rows gives scores and likelihoods of all strategies.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from surefoot._validation import FloatArray
from surefoot.active.base import _random_state
from surefoot.active.flexibility import PAPER_MARGIN
from surefoot.active.impact import robust_model_change
from surefoot.priors import ClopperPearson

METHODS = ("random", "emc", "min_mc", "max_mc", "dr_strong", "dr_weak")
ROBUST = ("dr_strong", "dr_weak")
# From this many features on the fits are done in the span of the labeled rows, of dimension at most 100.
_MANY_FEATURES = 100
# A new row this close to the span of the others, relative to its length, adds no direction.
_IN_SPAN = 1e-10
# Newton's decrement at which a fit is final: half of it is the distance of the objective from its minimum.
_DECREMENT = 1e-18
_MOST_STEPS = 100

Norm = Literal["x", "x and 1", "none"]


@dataclass(frozen=True)
class Reading:
    """Choices that the paper leaves open, or whose printed form contradicts its numbers.

    Attributes
    ----------
    penalty : float
        Weight of ‖θ‖² relative to the losses.
    losses : "sum" or "mean"
        The term to which the penalty is added. The paper prints the mean.
    intercept : "penalised", "free" or "none"
        A constant feature with penalty, a constant feature without penalty, or none.
    emc_norm, min_max_norm, robust_norm : "x", "x and 1" or "none"
        The factor of the impacts of EMC, of Min MC and Max MC, and of the robust strategies: ‖x‖, the norm of x with
        the constant feature appended, or 1. The paper prints ‖x‖ for EMC and the robust ones, none for Min and Max.
    max_candidates : int or None
        Rows that EMC, Min MC and Max MC choose from, drawn anew for each query; None is all.
    robust_candidates : int or None
        The same for the robust strategies; the paper's is 100.
    margin : float
        Radius of the robust strategies beyond the paper's rule for it.
    solver : "newton", "liblinear" or "lbfgs"
        Fits that are exact, or one of scikit-learn's solvers, which stop at its default tolerance; "lbfgs" leaves the
        intercept free.
    """

    penalty: float = 5e-4
    losses: Literal["sum", "mean"] = "sum"
    intercept: Literal["penalised", "free", "none"] = "penalised"
    emc_norm: Norm = "x"
    min_max_norm: Norm = "x"
    robust_norm: Norm = "x and 1"
    max_candidates: int | None = None
    robust_candidates: int | None = 100
    margin: float = PAPER_MARGIN
    solver: Literal["newton", "liblinear", "lbfgs"] = "newton"

    def norm(self, method: str) -> Norm:
        """The factor of a method's impacts."""
        if method in ROBUST:
            return self.robust_norm
        return self.emc_norm if method == "emc" else self.min_max_norm

    def most(self, method: str) -> int | None:
        """How many rows a method chooses from; None is all."""
        if method == "random":
            return None
        return self.robust_candidates if method in ROBUST else self.max_candidates


@dataclass(frozen=True, eq=False)
class Trial:
    """Curves of the strategies in one trial.

    Attributes
    ----------
    scores : (M, S) likelihood of the classifier at each number of labels.
    picks : (M, n_labels) rows in the order in which they were labeled.
    not_least : (M,) in how many queries some robust score was above the least impact of its row.
    """

    scores: FloatArray
    picks: NDArray[np.intp]
    not_least: NDArray[np.intp]


def run_trial(
    X: FloatArray,
    y: NDArray[np.int64],
    first: NDArray[np.intp],
    seeds: Sequence[int],
    reading: Reading,
    methods: Sequence[str] = METHODS,
    n_labels: int = 100,
) -> Trial:
    """Label rows of X (N, d) one by one from the rows `first`, labels y (N,) 0 or 1, with each of the methods.

    Each method draws its candidates, and breaks ties, with its own seed: `seeds` has one integer per method.
    """
    picks = np.empty((len(methods), n_labels), dtype=np.intp)
    picks[:, : len(first)] = first
    fits = LogisticFits(X, y, picks, len(first), reading)
    scores = np.empty((len(methods), n_labels - len(first) + 1))
    not_least = np.zeros(len(methods), dtype=np.intp)
    norms = {name: impact_norms(X, name) for name in ("x", "x and 1", "none")}
    sets = RobustSets(X, y, first, reading.margin)
    for step, n in enumerate(range(len(first), n_labels + 1)):
        decision = fits.decision()
        losses = np.log1p(np.exp(-np.abs(decision))) + np.maximum(np.where(y == 1, -decision, decision), 0.0)
        scores[:, step] = np.exp(-losses.mean(axis=1))
        if n == n_labels:
            break
        for m, method in enumerate(methods):
            rng = _random_state(int(seeds[m]), n)
            rows = _candidates(rng, len(X), picks[m, :n], reading.most(method))
            values = _utilities(method, decision[m, rows], norms[reading.norm(method)][rows])
            if method in ROBUST:
                least = values
                values = sets.scores(method, least, decision[m, rows], rows, picks[m, :n])
                not_least[m] += np.any(values > least * (1.0 + 1e-9))
            picks[m, n] = rows[rng.choice(np.flatnonzero(values == values.max()))]
        fits.add(picks[:, n])
    return Trial(scores, picks, not_least)


def _candidates(rng: np.random.RandomState, N: int, labeled: NDArray[np.intp], most: int | None) -> NDArray[np.intp]:
    """Return the rows to choose from: all unlabeled rows, or a random subset."""
    is_open = np.ones(N, dtype=bool)
    is_open[labeled] = False
    rows = np.flatnonzero(is_open)
    return rows if most is None else np.sort(rng.choice(rows, min(most, len(rows)), replace=False))


def impact_norms(X: FloatArray, norm: Norm) -> FloatArray:
    """(N,) the factor of the impacts."""
    if norm == "none":
        return np.ones(len(X))
    return np.sqrt(np.square(X).sum(axis=1) + (norm == "x and 1"))


def _utilities(method: str, decision: FloatArray, norm: FloatArray) -> FloatArray:
    """(m,) scores of rows with decisions z (m,): with t = exp(−|z|) the impacts are t/(1+t) and 1/(1+t), times ‖x̃‖."""
    if method == "random":
        return np.zeros(len(decision))
    t = np.exp(-np.abs(decision))
    if method == "emc":
        return 2.0 * t / np.square(1.0 + t) * norm
    return norm / (1.0 + t) if method == "max_mc" else t / (1.0 + t) * norm


@dataclass(frozen=True, eq=False)
class RobustSets:
    """The decision sets of the robust strategies, κ = 1.

    Parameters
    ----------
    X, y : all rows and labels, which give the strong prior.
    first : the first labeled rows, whose 95 % intervals are the weak prior.
    margin : radius beyond the paper's rule for it.
    """

    X: FloatArray
    y: NDArray[np.int64]
    first: NDArray[np.intp]
    margin: float

    def intervals(self, method: str) -> FloatArray:
        """(2, 2) label probabilities: exact for the strong prior."""
        if method == "dr_strong":
            return np.repeat(np.bincount(self.y, minlength=2)[:, None] / len(self.y), 2, axis=1)
        return ClopperPearson().intervals(np.bincount(self.y[self.first], minlength=2))

    def excess(self, method: str, labeled: NDArray[np.intp]) -> float:
        """Return radius minus minimal radius: the margin, plus the extra cost of the dearer end of the interval."""
        lo, hi = self.intervals(method)[1]
        share = float(self.y[labeled].mean())
        return self.margin + max(abs(share - lo), abs(share - hi)) - max(lo - share, share - hi, 0.0)

    def scores(
        self,
        method: str,
        least: FloatArray,
        decision: FloatArray,
        rows: NDArray[np.intp],
        labeled: NDArray[np.intp],
    ) -> FloatArray:
        """(m,) robust scores of rows with least impacts (m,): exact wherever a score could be the largest.

        Forcing any label at a row costs at most 2κ/N. So with an excess of s·2κ/N the adversary gets at least the
        share s of the way down to the least impact: all of it from s = 1 on. Rows that are below the largest least
        impact even so cannot be picked, and are not looked at.
        """
        share = min(self.excess(method, labeled) * len(self.X) / 2.0, 1.0)
        upper = share * least + (1.0 - share) * least * np.exp(np.abs(decision))
        near = np.flatnonzero(upper >= least.max())
        if share == 1.0 or len(near) == 1:
            return least
        order = np.sort(labeled)
        rest = np.setdiff1d(np.arange(len(self.X)), order)
        largest = least[near] * np.exp(np.abs(decision[near]))
        agrees = decision[near] > 0  # label 1 is the likely one: it has the least impact
        scores = least.copy()
        scores[near] = robust_model_change(
            np.column_stack([np.where(agrees, largest, least[near]), np.where(agrees, least[near], largest)]),
            self.X[order],
            self.y[order],
            X_unlabeled=self.X[rest],
            margin=self.margin,
            label_prior=self.intervals(method),
            classes=[0, 1],
            candidates=np.searchsorted(rest, rows[near]),
        )
        return scores


class LogisticFits:
    """Penalised logistic regressions of M growing sets of rows, refitted together.

    min over (b, θ) of Σ_i log(1 + exp(−s_i (b + ⟨θ, x_i⟩))) + γ (‖θ‖² + b²), s_i = ±1: for Reading's defaults.

    With many features θ is sought in the span of the labeled rows, where the minimum lies: coordinates in an
    orthonormal basis that grows by a direction with each row, and leave the coordinates of earlier rows as they are.

    Parameters
    ----------
    picks : (M, n_labels), of which the first n columns are there.
    """

    def __init__(self, X: FloatArray, y: NDArray[np.int64], picks: NDArray[np.intp], n: int, reading: Reading) -> None:
        self.X, self.y, self.reading = X, y, reading
        M, most = picks.shape
        self.in_span = X.shape[1] > max(_MANY_FEATURES, most)
        self.size = most if self.in_span else X.shape[1]
        self.features = np.zeros((M, most, 1 + self.size))  # constant first
        self.targets = np.zeros((M, most))
        self.rows = np.zeros((M, most), dtype=np.intp)
        self.basis = np.zeros((M, self.size, X.shape[1])) if self.in_span else None
        self.coordinates = np.zeros((M, 1 + self.size))
        self.n = 0
        for i in range(n):
            self.add(picks[:, i])

    def add(self, rows: NDArray[np.intp]) -> None:
        """One more labeled row (M,) for each fit."""
        new = self.X[rows]
        if self.basis is not None:
            held = self.basis[:, : self.n]
            inside = np.zeros((len(rows), self.n))
            rest = new
            for _ in range(2):  # once more, against rounding
                more = np.matmul(held, rest[:, :, None])[:, :, 0]
                rest = rest - np.matmul(more[:, None, :], held)[:, 0]
                inside += more
            length = np.linalg.norm(rest, axis=1)
            is_new = length > _IN_SPAN * np.linalg.norm(new, axis=1)
            length = np.where(is_new, length, 0.0)
            self.basis[:, self.n] = rest * np.where(is_new, 1.0 / np.where(is_new, length, 1.0), 0.0)[:, None]
            new = np.zeros((len(rows), self.size))
            new[:, : self.n], new[:, self.n] = inside, length
        self.features[:, self.n, 1:] = new
        self.features[:, self.n, 0] = self.reading.intercept != "none"
        self.targets[:, self.n], self.rows[:, self.n] = self.y[rows], rows
        self.n += 1

    def decision(self) -> FloatArray:
        """(M, N) scores b + ⟨θ, x⟩ of all rows, after refitting."""
        if self.reading.solver != "newton":
            return np.array([self._by_scikit_learn(rows) for rows in self.rows[:, : self.n]])
        self._fit()
        theta = self.coordinates[:, 1:]
        if self.basis is not None:
            theta = np.matmul(theta[:, None, : self.n], self.basis[:, : self.n])[:, 0]
        return theta @ self.X.T + self.coordinates[:, :1]

    def _by_scikit_learn(self, rows: NDArray[np.intp]) -> FloatArray:
        """(N,) scores of all rows by a fit to some."""
        model = LogisticRegression(C=0.5 / self.reading.penalty, solver=self.reading.solver)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found: FloatArray = model.fit(self.X[rows], self.y[rows]).decision_function(self.X)
        return found

    def _fit(self) -> None:
        """Damped Newton from the last coordinates, until the decrement is at rounding error."""
        size = 1 + (self.n if self.basis is not None else self.size)
        F, targets = self.features[:, : self.n, :size], self.targets[:, : self.n]
        weight = self.reading.penalty * (self.n if self.reading.losses == "mean" else 1.0)
        penalty = np.full(size, weight)
        if self.reading.intercept == "free":
            penalty[0] = 0.0
        left = np.arange(len(F))
        u = self.coordinates[:, :size].copy()
        for _ in range(_MOST_STEPS):
            f, t, v = F[left], targets[left], u[left]
            p = expit(np.matmul(f, v[:, :, None])[:, :, 0])
            gradient = np.matmul((p - t)[:, None, :], f)[:, 0] + 2.0 * penalty * v
            hessian = np.matmul(f.transpose(0, 2, 1) * (p * (1.0 - p))[:, None, :], f)
            hessian[:, np.arange(size), np.arange(size)] += 2.0 * penalty
            direction = -np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
            slope = np.einsum("mi,mi->m", gradient, direction)
            u[left] = _line_search(f, t, penalty, v, direction, slope)
            left = left[-slope > _DECREMENT * max(1.0, weight)]
            if not len(left):
                break
        else:
            raise RuntimeError(f"logistic regression did not end in {_MOST_STEPS} Newton steps at {self.n} labels")
        self.coordinates[:, :size] = u


def _objective(f: FloatArray, t: FloatArray, penalty: FloatArray, u: FloatArray) -> FloatArray:
    z = np.matmul(f, u[:, :, None])[:, :, 0]
    losses = np.log1p(np.exp(-np.abs(z))) + np.maximum(np.where(t == 1.0, -z, z), 0.0)
    return losses.sum(axis=1) + (penalty * np.square(u)).sum(axis=1)


def _line_search(
    f: FloatArray, t: FloatArray, penalty: FloatArray, u: FloatArray, direction: FloatArray, slope: FloatArray
) -> FloatArray:
    """Coordinates after the longest of the steps 1, 1/2, 1/4, … that has a share of the expected descent."""
    step = np.where(-slope > 1e-8, 1.0, -1.0)  # near the minimum full steps are safe and descent is rounding
    full = u + direction
    if (step < 0).all():
        return full
    now = _objective(f, t, penalty, u)
    length = np.ones(len(u))
    for _ in range(60):
        reached = u + length[:, None] * direction
        short = (step > 0) & ~(_objective(f, t, penalty, reached) <= now + 1e-4 * length * slope)
        if not short.any():
            return reached
        length[short] *= 0.5
    raise RuntimeError("the line search of a logistic regression found no descent")
