"""The audit engine, and the policy that decides when an audit begins and when it stops without a proof.

A policy may use everything seen so far. The guarantees of a series of audits hold jointly under any policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, check_positive_integer, check_positive_scalar
from surefoot.bounds.betting import Bet, PoolErrors, WeightedErrors
from surefoot.bounds.journal import hash_predictions
from surefoot.priors.clopper_pearson import hypergeometric_upper

# The audit engine samples the rows that test frozen predictions, and computes the bounds from their labels.


@dataclass(frozen=True)
class Draw:
    """A sampled row, and its probability when it was drawn from the remaining rows."""

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
        """Return the position of the next row among the remaining ones, and the sampling probabilities (r,)."""
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
        Labels known from the start. They count as they are (None counts as an error) and are never sampled.
    target : float or None
        The error rate to prove. Once it is proved, further labels do not count.
    plan : int or None
        Prove the target by the exact bound at this number of labels. None: by the anytime bound.
    belief : array of shape (N,) or None
        Estimated probabilities of a wrong prediction, which weight the sampling. None: sample uniformly.
    uniform_fraction : float, of weighted sampling.
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
        self._needed: dict[tuple[int, ...], int | None] = {}
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
        """Return the exact bound for n labels, planned in advance and sampled uniformly. Missing ones are errors."""
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
        """Return the first n draws without a label, among the first `most` draws, and how many draws were scanned."""
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

    def can_still_prove(self, n: int) -> bool:
        """Return True if n labels in all, or the planned labels, can prove the target without further errors."""
        if self.target is None or self.proved:
            return self.proved
        n = min(n if self.plan is None else self.plan, self.n_drawable)
        if self.plan is not None:
            return self._planned(self.n_errors, n) <= self.target
        return not isinstance(self._errors, PoolErrors) or self._errors.rejects(self._n_too_many, self.n_errors, n)

    def labels_needed(self) -> int | None:
        """Estimate the labels until the anytime bound proves the target, at the observed error rate; None if never."""
        n, x = self.n_labels, self.n_errors
        return self._labels_after(n, x, x / n if n else 0.0)

    def least_labels(self) -> int | None:
        """Return the number of labels of this audit if there were no errors."""
        return self._labels_after(0, 0, 0.0)

    def _labels_after(self, n: int, x: int, rate: float) -> int | None:
        if not isinstance(self._errors, PoolErrors):
            raise ParameterError(
                "sampling",
                "must be uniform to estimate the number of labels",
                "'weighted'",
                "Begin an audit with sampling='uniform'.",
            )
        case = self._n_too_many, n, x
        if case not in self._needed:
            self._needed[case] = self._errors.labels_needed(*case, rate)
        return self._needed[case]

    @property
    def _n_too_many(self) -> int:
        """The smallest number of errors among the unlabeled rows that the target rules out."""
        return int(np.floor((self.target or 0.0) * len(self.predictions) + 1e-9)) - self.known_errors + 1

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
class FreezeSchedule:
    """Start the first audit at `first` labels, and each later audit at `growth` times as many as the one before.

    Attributes
    ----------
    first : int, default=20
        Number of labels, including known ones, at which the first audit begins.
    growth : float, default=1.2
        Ratio between the numbers of labels at which successive audits begin.
    """

    first: int = 20
    growth: float = 1.2

    def __post_init__(self) -> None:
        check_positive_integer(self.first, "first")
        if check_positive_scalar(self.growth, "growth") < 1:
            raise ParameterError("growth", "must be at least 1", repr(self.growth), "Pass a value such as 1.2.")

    def n_labels(self, before: int) -> int:
        """Return the number of labels at which the next audit begins.

        Parameters
        ----------
        before : int
            Number of labels at which the last audit began, or 0 if there was none.

        Returns
        -------
        int
            The number of labels.
        """
        return max(self.first, math.ceil(self.growth * before))


@dataclass(frozen=True)
class GiveUp:
    """Stop an audit if its target requires too many more labels at the observed error rate.

    The limit is `patience` times the labels of an audit without errors. The rule applies to uniform sampling with the
    anytime bound. Other audits end with their budget.

    Attributes
    ----------
    patience : float, default=30.0
        Audits continue longer with a larger value.
    after : int, default=30
        Number of labels before the rule uses the observed error rate.
    """

    patience: float = 30.0
    after: int = 30

    def __post_init__(self) -> None:
        check_positive_scalar(self.patience, "patience")

    def reason(self, audit: AuditEngine) -> str | None:
        """Return the reason why an audit should end without a proof.

        Parameters
        ----------
        audit : AuditEngine
            The audit.

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
        least = audit.least_labels()
        if least is None:
            return OUT_OF_REACH
        more = audit.labels_needed() if audit.n_labels >= self.after else 0
        return TOO_LONG if more is None or more > self.patience * least else None


@dataclass(frozen=True)
class AuditPolicy:
    """Policy for alternating between learning and audits.

    Attributes
    ----------
    freeze : FreezeSchedule
        Decides when the next audit begins. Any object with the same method works.
    give_up : GiveUp
        Decides when an audit ends without a proof. Any object with the same method works.
    budget : int or None, default=None
        Maximum number of labels per audit. The audit ends once the target is out of reach within the budget. None: no
        limit with uniform sampling. With weighted sampling, the size of an audit planned for a quarter of the target.
    rule : {"anytime", "planned"}, default="anytime"
        The bound that proves the target. "planned", the exact bound at `budget` labels, requires a budget.
    """

    freeze: FreezeSchedule = field(default_factory=FreezeSchedule)
    give_up: GiveUp = field(default_factory=GiveUp)
    budget: int | None = None
    rule: str = ANYTIME

    def __post_init__(self) -> None:
        if self.budget is not None:
            check_positive_integer(self.budget, "budget")
        check_rule(self.rule, self.budget, "budget")


def check_rule(rule: str | None, planned: int | None, name: str) -> str:
    """Return the rule. The default is the exact bound if a number of labels is planned, by the parameter `name`."""
    if rule not in (None, ANYTIME, PLANNED):
        raise ParameterError("rule", "must be 'anytime', 'planned' or None", repr(rule), "Pass one of these.")
    if rule == PLANNED and planned is None:
        raise ParameterError(name, "must be given for rule='planned'", "None", f"Pass {name}=.")
    return rule or (ANYTIME if planned is None else PLANNED)
