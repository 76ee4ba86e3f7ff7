"""The audit engine, and the policy that decides when an audit begins and when it stops without a proof.

A policy may use all past observations. The guarantees of a series of audits hold jointly under any policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, check_positive_integer, check_positive_scalar
from surefoot.bounds.betting import Bet, PoolErrors, WeightedErrors
from surefoot.bounds.journal import hash_predictions
from surefoot.priors.clopper_pearson import hypergeometric_upper

# The audit engine samples the rows that test frozen predictions, and computes the bounds from their labels.


@dataclass(frozen=True)
class Draw:
    """A sampled row, and its sampling probability among the remaining rows."""

    row: int
    probability: float
    bet: Bet | None = None


@dataclass(frozen=True, eq=False)
class RowSampler:
    """Samples rows one by one without replacement. The same seed and history give the same row.

    belief (N,) holds the classifier's own probability of an error at each row. Without it, sampling is uniform.
    Otherwise row i has probability uniform_fraction / r + (1 − uniform_fraction) s_i / Σ s over the r remaining rows,
    where s is the standard deviation of an error with this probability.
    """

    seed: tuple[int, ...]
    belief: FloatArray | None
    uniform_fraction: float = 1.0

    def probabilities(self, left: NDArray[np.intp]) -> FloatArray:
        """Return the sampling probabilities (r,) of the remaining rows (r,)."""
        uniform = np.full(len(left), 1.0 / len(left))
        if self.belief is None:
            return uniform
        p = self.belief[left]
        spread = np.sqrt(p * (1.0 - p))
        total = float(spread.sum())
        if total <= 0:
            return uniform
        mixed: FloatArray = self.uniform_fraction * uniform + (1.0 - self.uniform_fraction) * spread / total
        return mixed / mixed.sum()

    def draw(self, left: NDArray[np.intp], step: int) -> tuple[int, FloatArray]:
        """Return the position of the next row among the remaining rows, and the sampling probabilities (r,)."""
        probabilities = self.probabilities(left)
        point = np.random.default_rng([*self.seed, step]).random()
        position = int(np.searchsorted(np.cumsum(probabilities), point, side="right"))
        return min(position, len(left) - 1), probabilities


class AuditEngine:
    """Bounds the share of wrong predictions in a pool of N rows from a random sample of labels.

    Parameters
    ----------
    predictions : list of N plain labels
    known : mapping from row to label
        Labels known from the start. They count as given (None counts as an error), and their rows are never sampled.
    target : float or None
        The error rate to prove. Once it is proved, further labels do not count.
    plan : int or None
        Number of labels at which the exact bound must prove the target. None: the anytime bound proves it.
    belief : array of shape (N,) or None
        Estimated probabilities of a wrong prediction, which weight the sampling. None: sample uniformly.
    uniform_fraction : float
        Fraction of uniform draws in weighted sampling.
    """

    def __init__(
        self,
        predictions: list[Any],
        known: Mapping[int, Any],
        *,
        level: float,
        seed: int,
        target: float | None = None,
        plan: int | None = None,
        belief: FloatArray | None = None,
        uniform_fraction: float = 1.0,
    ) -> None:
        self.predictions, self.level = predictions, level
        self.target, self.plan = target, plan
        self.known = dict(known)
        self.known_errors = sum(self._is_wrong(row, label) for row, label in self.known.items())
        self.is_uniform, self.uniform_fraction = belief is None, uniform_fraction
        self.seed, mark = seed, int(hash_predictions(predictions, belief), 16)
        self._sampler = RowSampler((seed, mark), belief, uniform_fraction)
        self._left: NDArray[np.intp] = np.setdiff1d(np.arange(len(predictions)), list(self.known)).astype(np.intp)
        self.n_drawable = len(self._left)
        self.draws: list[Draw] = []
        self._place: dict[int, int] = {}
        self._settled: dict[int, Any] = {}
        self._outcomes: list[bool] = []
        self.belief = belief
        self._needed: dict[tuple[float, ...], int | None] = {}
        self._errors = self._new_errors()

    @property
    def n_labels(self) -> int:
        """Number of draws that count. A draw counts once it and all earlier draws have labels."""
        return len(self._outcomes)

    @property
    def n_errors(self) -> int:
        """Number of wrong predictions among the draws that count."""
        return sum(self._outcomes)

    @property
    def outcomes(self) -> list[bool]:
        """Whether the prediction is wrong, for each draw that counts."""
        return list(self._outcomes)

    @property
    def labels(self) -> dict[int, Any]:
        """The labels of the draws that count, in sampling order."""
        return {draw.row: self._settled[draw.row] for draw in self.draws[: self.n_labels]}

    @property
    def anytime_upper(self) -> float:
        """Bound on the error rate in the pool that holds at all numbers of labels simultaneously."""
        N = len(self.predictions)
        if isinstance(self._errors, PoolErrors):
            return (self.known_errors + self._errors.upper) / N
        # the number of errors is an integer, and at most all remaining rows are errors
        most = self.known_errors + self.n_errors + self.n_drawable - self.n_labels
        return float(min(np.floor(self._errors.upper * N + 1e-9), most) / N)

    @property
    def proved(self) -> bool:
        """Whether the bound that the plan names is at most the target."""
        if self.target is None:
            return False
        return (self.anytime_upper if self.plan is None else self.planned_upper(self.plan)) <= self.target

    def planned_upper(self, n: int) -> float:
        """Return the exact bound for n labels, planned in advance and sampled uniformly. Missing labels are errors."""
        n = min(n, self.n_drawable)
        first = self._outcomes[:n]
        return self._planned(sum(first) + n - len(first), n)

    def draw(self, n: int) -> list[Draw]:
        """Return the first n draws, or all rows if there are fewer."""
        while len(self.draws) < n and len(self._left):
            position, probabilities = self._sampler.draw(self._left, len(self.draws))
            row, bet = int(self._left[position]), None
            if isinstance(self._errors, WeightedErrors):
                bet = self._errors.bet(position, self._left, probabilities)
            self._place[row] = len(self.draws)
            self.draws.append(Draw(row, float(probabilities[position]), bet))
            self._left = np.delete(self._left, position)
        return self.draws[:n]

    def open_draw(self, row: int, ahead: int) -> Draw | None:
        """Return the draw of a row without a label, if it is the next draw or among the first `ahead`."""
        place = self._place.get(row)
        is_given = place is not None and (place < ahead or self.next_draw() is self.draws[place])
        return self.draws[place] if place is not None and is_given and row not in self._settled else None

    def open_draws(self, n: int, most: int) -> tuple[list[Draw], int]:
        """Return the first n unlabeled draws among the first `most` draws, and the number of draws scanned."""
        found: list[Draw] = []
        ahead = self.n_labels
        while len(found) < n and ahead < min(most, self.n_drawable):
            draw = self.draws[ahead] if ahead < len(self.draws) else self.draw(ahead + 1)[ahead]
            found += [] if draw.row in self._settled else [draw]
            ahead += 1
        return found, ahead

    def next_draw(self) -> Draw | None:
        """Return the first draw without a label, or None if the target is proved or no row is left."""
        n = self.n_labels
        if self.proved or n == self.n_drawable:
            return None
        return self.draws[n] if n < len(self.draws) else self.draw(n + 1)[n]

    def settle(self, row: int, label: Any) -> None:
        """Set or change the label of any row. None (unlabelable) counts as an error."""
        if row in self.known:
            change = self._is_wrong(row, label) - self._is_wrong(row, self.known[row])
            self.known[row] = label
            self.known_errors += change
            if change:
                self._errors = self._errors if self.is_uniform else self._new_errors()
                self._count_from(0)
        elif row not in self._settled or self._settled[row] != label:
            self._settled[row] = label
            self._count_from(self._place.get(row))

    def unsettle(self, row: int) -> None:
        """Remove a label. A row that was known from the start counts as an error until it gets a new label."""
        if row in self.known:
            self.settle(row, None)
        elif row in self._settled:
            del self._settled[row]
            self._count_from(self._place.get(row))

    def aim(self, target: float) -> None:
        """Change the target. Labels recorded after the first target was proved now count."""
        self.target = target
        self._count_from(None)

    def can_still_prove(self, n: int) -> bool:
        """Return True if n labels in total, or the planned labels, can prove the target without further errors."""
        if self.target is None or self.proved:
            return self.proved
        n = min(n if self.plan is None else self.plan, self.n_drawable)
        if self.plan is not None:
            return self._planned(self.n_errors, n) <= self.target
        return not isinstance(self._errors, PoolErrors) or self._errors.rejects(
            self._too_many(self.target), self.n_errors, n
        )

    def labels_needed(self, rate: float | None = None, target: float | None = None) -> int | None:
        """Estimate the labels until the anytime bound proves the target at an error rate. None if it never does.

        rate : by default the observed error rate; target : by default the target of the audit.
        """
        n, x = self.n_labels, self.n_errors
        return self._labels_after(n, x, (x / n if n else 0.0) if rate is None else float(f"{rate:.2g}"), target)

    def least_labels(self) -> int | None:
        """Return the number of labels of this audit if it finds no errors."""
        return self._labels_after(0, 0, 0.0)

    def _labels_after(self, n: int, x: int, rate: float, target: float | None = None) -> int | None:
        if not isinstance(self._errors, PoolErrors):
            raise ParameterError(
                "sampling",
                "must be uniform to estimate the number of labels",
                "'weighted'",
                "Begin an audit with sampling='uniform'.",
            )
        case = self._too_many(self.target if target is None else target), n, x, rate
        if case not in self._needed:
            self._needed[case] = self._errors.labels_needed(*case)
        return self._needed[case]

    def _too_many(self, target: float | None) -> int:
        """Return the smallest number of errors among the unlabeled rows that a target rules out."""
        return int(np.floor((target or 0.0) * len(self.predictions) + 1e-9)) - self.known_errors + 1

    def _planned(self, errors: int, n: int) -> float:
        most = hypergeometric_upper(errors, n, self.n_drawable, self.level)
        return (self.known_errors + most) / len(self.predictions)

    def _is_wrong(self, row: int, label: Any) -> bool:
        return label is None or bool(label != self.predictions[row])

    def _new_errors(self) -> PoolErrors | WeightedErrors:
        if self.belief is None:
            return PoolErrors(self.n_drawable, self.level)
        return WeightedErrors(len(self.predictions), float(self.known_errors), self.belief, self.level)

    def _count_from(self, place: int | None) -> None:
        """Count the labels from this draw on, up to the first draw without a label."""
        if place is not None and place < self.n_labels:
            del self._outcomes[place:]
            self._errors.cut(place)
        while (draw := self.next_draw()) is not None and draw.row in self._settled:
            wrong = self._is_wrong(draw.row, self._settled[draw.row])
            if isinstance(self._errors, PoolErrors):
                self._errors.add(wrong)
            elif draw.bet is not None:
                self._errors.add(float(wrong), draw.bet)
            self._outcomes.append(wrong)


ANYTIME, PLANNED = "anytime", "planned"
NO_ROW_LEFT, OUT_OF_REACH, TOO_LONG = "no row left", "out of reach", "too long"


def level_of(level: float, audit: int) -> float:
    """Return the confidence level of one audit, numbered from 1, such that all audits hold jointly at `level`."""
    return 1.0 - (1.0 - level) / (audit * (audit + 1))


@dataclass(frozen=True)
class LearningState:
    """Describe a labeling loop to a policy.

    Attributes
    ----------
    n_rows : int
        Number of rows in the pool.
    n_labels : int
        Number of labels, excluding the labels of an open audit.
    n_wrong : int
        Number of wrong predictions of the model at the `n_labels` labeled rows.
    n_trained : int
        Number of labels that the model was trained on.
    n_tested, n_errors : int
        Number of random labels that tested the model in cross-validation, and number of errors among them. 0 without a
        test.
    n_frozen : int
        Number of labels when the last audit began, or 0 without an audit.
    audit : int
        Number of the open audit, or of the next audit.
    target, level : float
        The error rate to prove, and the confidence level of all audits together.
    """

    n_rows: int
    n_labels: int
    n_wrong: int
    n_trained: int
    n_tested: int
    n_errors: int
    n_frozen: int
    audit: int
    target: float
    level: float


class ProofPlan(NamedTuple):
    """Expected numbers of labels until a proof: `learn` to train the model first, then `audit` to audit it."""

    learn: int
    audit: int

    @property
    def labels(self) -> int:
        """Total number of labels."""
        return self.learn + self.audit


# Plans use this beta quantile of the error rate. It is below the median, because an audit that begins too early costs
# little, while a model that is never audited proves nothing.
_HOPE = 0.25
# A model that learns from m times the labels has m^(-1/2) times the error rate. Plans try numbers of labels in steps.
_LEARNING, _STEP = 0.5, 1.2
# Expected labels of an audit are computed for a pool of at most this size. The difference is small.
_MOST_ROWS = 10_000


@dataclass(frozen=True)
class AuditPolicy:
    """Decide when an audit begins and when it ends without a proof.

    An audit begins unless further learning would need clearly fewer labels in total, for training and audit together.
    It ends when a new audit, of a model that has learned from all labels, would need clearly fewer labels. The policy
    estimates both numbers from the errors in cross-validation and in the audit. It expects a model that learns from m
    times the labels to have 1/√m of the error rate. The guarantees hold under any policy.

    Attributes
    ----------
    first : int, default=20
        Number of labels, including known labels, at which the first audit may begin. Also the number of labels in an
        audit before the policy may end it without a proof.
    growth : float, default=1.2
        Smallest ratio between the numbers of labels at which successive audits begin.
    patience : float, default=1.25
        An audit begins and continues if it needs at most `patience` times the labels of further learning.
    budget : int or None, default=None
        Maximum number of labels per audit. The audit ends once the target is out of reach within the budget. None: no
        limit with uniform sampling. With weighted sampling, the size of an audit planned for a quarter of the target.
    rule : {"anytime", "planned"}, default="anytime"
        The bound that proves the target. "planned", the exact bound at `budget` labels, requires a budget.
    """

    first: int = 20
    growth: float = 1.2
    patience: float = 1.25
    budget: int | None = None
    rule: str = ANYTIME

    def __post_init__(self) -> None:
        check_positive_integer(self.first, "first")
        for name in ("growth", "patience"):
            if check_positive_scalar(getattr(self, name), name) < 1:
                raise ParameterError(
                    name, "must be at least 1", repr(getattr(self, name)), "Pass a value such as 1.25."
                )
        if self.budget is not None:
            check_positive_integer(self.budget, "budget")
        check_rule(self.rule, self.budget, "budget")

    def n_first(self, state: LearningState) -> int:
        """Return the smallest number of labels at which an audit may begin.

        Parameters
        ----------
        state : LearningState
            The labeling loop.

        Returns
        -------
        int
            The number of labels.
        """
        return max(self.first, math.ceil(self.growth * state.n_frozen))

    def plan(self, state: LearningState) -> ProofPlan | None:
        """Plan the proof that needs the fewest labels.

        Parameters
        ----------
        state : LearningState
            The labeling loop between two audits.

        Returns
        -------
        ProofPlan or None
            None if the test results put the target out of reach, or before the first test.
        """
        return self._plan(state, max(self.n_first(state), state.n_labels))

    def begins(self, state: LearningState) -> bool:
        """Return True if the present model should be audited now.

        Parameters
        ----------
        state : LearningState
            The labeling loop between two audits.

        Returns
        -------
        bool
            Whether an audit should begin.
        """
        n = state.n_labels
        if n < self.n_first(state):
            return False
        if not state.n_tested:
            return True
        now = self._audit_labels(state, n)
        later = self._plan(state, math.ceil(_STEP * n))
        return now is not None and (later is None or now <= self.patience * later.labels)

    def reason(self, audit: AuditEngine, state: LearningState) -> str | None:
        """Return the reason why an audit should end without a proof.

        Parameters
        ----------
        audit : AuditEngine
            The audit.
        state : LearningState
            The labeling loop when the audit began.

        Returns
        -------
        {"no row left", "out of reach", "too long"} or None
            None if the audit should continue.
        """
        if audit.proved or audit.target is None:
            return None
        if audit.n_labels == audit.n_drawable:
            return NO_ROW_LEFT
        if not audit.is_uniform or audit.plan is not None:
            return None
        if audit.least_labels() is None:
            return OUT_OF_REACH
        if audit.n_labels < self.first:
            return None
        tested, errors = state.n_tested + audit.n_labels, state.n_errors + audit.n_errors
        n = state.n_labels + audit.n_labels
        after = replace(
            state, n_labels=n, n_wrong=round(state.n_wrong / max(state.n_labels, 1) * n), n_tested=tested,
            n_errors=errors, audit=state.audit + 1,
        )  # fmt: skip
        more, again = self.labels_left(state, audit), self._plan(after, n)
        return None if more is not None and (again is None or more <= self.patience * again.labels) else TOO_LONG

    def labels_left(self, state: LearningState, audit: AuditEngine | None = None) -> int | None:
        """Return the expected number of further labels until a proof.

        Parameters
        ----------
        state : LearningState
            The labeling loop: now, or when the open audit began.
        audit : AuditEngine or None, default=None
            The open audit, if there is one.

        Returns
        -------
        int or None
            None if the test results put the target out of reach, or before the first test.
        """
        if audit is None:
            plan = self.plan(state)
            return None if plan is None else plan.labels
        tested = state.n_tested + audit.n_labels
        if not tested:
            return None
        if audit.anytime_upper <= state.target:
            return 0
        return audit.labels_needed(_hoped_rate(state.n_errors + audit.n_errors, tested), state.target)

    def _plan(self, state: LearningState, first: int) -> ProofPlan | None:
        """Return the plan with the fewest labels among audits that begin at `first` labels or later."""
        best: ProofPlan | None = None
        n, most = first, state.n_rows - state.n_labels
        while n < state.n_rows and (best is None or n - state.n_labels < best.labels):
            audit = self._audit_labels(state, n)
            learn = n - state.n_labels
            if audit is not None and learn + audit <= most and (best is None or learn + audit < best.labels):
                best = ProofPlan(learn, audit)
            n = math.ceil(_STEP * n)
        return best

    def _audit_labels(self, state: LearningState, n: int) -> int | None:
        """Return the expected labels of the next audit if it begins at n labels, or None if it would prove nothing."""
        if not state.n_tested:
            return None
        rate = _hoped_rate(state.n_errors, state.n_tested) * (max(state.n_trained, 1) / n) ** _LEARNING
        known = round(state.n_wrong / max(state.n_labels, 1) * n)
        bad, left = int(np.floor(state.target * state.n_rows + 1e-9)) - known + 1, state.n_rows - n
        if bad <= rate * left:
            return None
        digits = max(len(str(left)) - 2, 0)  # round the pool size to two digits, so that the cached numbers are reused
        size = min(max(round(left, -digits), 1), _MOST_ROWS)
        return _labels_in_pool(
            size, max(round(bad * size / left), 1), float(f"{rate:.2g}"), level_of(state.level, state.audit)
        )


def _hoped_rate(errors: int, tested: int) -> float:
    """Return an optimistic estimate of an error rate."""
    return float(betaincinv(errors + 0.5, tested - errors + 0.5, _HOPE))


@lru_cache(maxsize=2048)
def _labels_in_pool(size: int, bad: int, rate: float, level: float) -> int | None:
    return 0 if bad > size else _pool_errors(size, level).labels_needed(bad, 0, 0, rate)


@lru_cache(maxsize=64)
def _pool_errors(size: int, level: float) -> PoolErrors:
    return PoolErrors(size, level)


def check_rule(rule: str | None, planned: int | None, name: str) -> str:
    """Return the rule. The default is the exact bound if the parameter `name` plans a number of labels."""
    if rule not in (None, ANYTIME, PLANNED):
        raise ParameterError("rule", "must be 'anytime', 'planned' or None", repr(rule), "Pass one of these.")
    if rule == PLANNED and planned is None:
        raise ParameterError(name, "must be given for rule='planned'", "None", f"Pass {name}=.")
    return rule or (ANYTIME if planned is None else PLANNED)
