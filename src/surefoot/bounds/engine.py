"""The audit engine, and the policy that says when an audit begins and when it is given up.

A policy may depend on everything seen so far: the audits of a series hold together, however they begin and end.
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

# The audit engine: which rows judge frozen predictions, and what their labels prove so far.


@dataclass(frozen=True)
class Draw:
    """A row of the sample, and the probability with which it was drawn from the rows left."""

    row: int
    probability: float
    bet: Bet | None = None


@dataclass(frozen=True, eq=False)
class RowSampler:
    """Draws one row after the other from those left; the same seed and history give the same row.

    Without a belief (N,), the classifier's own probability of being wrong at each row, draws are uniform. Else row i is
    drawn with probability uniform_fraction / r + (1 − uniform_fraction) s_i / Σ s, over the r rows left, s the standard
    deviation of an error that has this probability.
    """

    seed: tuple[int, ...]
    belief: FloatArray | None
    uniform_fraction: float = 1.0

    def probabilities(self, left: NDArray[np.intp]) -> FloatArray:
        """(r,) of the rows left (r,)."""
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
        """Position of the next row among those left, and the probabilities (r,) that it was drawn with."""
        probabilities = self.probabilities(left)
        point = np.random.default_rng([*self.seed, step]).random()
        position = int(np.searchsorted(np.cumsum(probabilities), point, side="right"))
        return min(position, len(left) - 1), probabilities


class AuditEngine:
    """Bounds on the share of wrong predictions in a pool of N rows, from a random sample of labels.

    Parameters
    ----------
    predictions : list of N plain labels
    known : mapping from row to label
        Labels known from the start. They count as they are, None as an error, and are never drawn.
    target : float or None
        The share of errors to prove. Once it is proved no more labels count.
    plan : int or None
        The exact bound at this number of labels proves the target; None: the anytime bound.
    belief : array of shape (N,) or None
        Probabilities that a prediction is wrong. Rows are drawn with weights that follow from them; None: uniformly.
    uniform_fraction : float, of weighted draws.
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
        mark = int(hash_predictions(predictions, belief), 16)
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
        """How many draws count: their labels, and those of all draws before, are settled."""
        return len(self._outcomes)

    @property
    def n_errors(self) -> int:
        """How many of the draws that count the predictions got wrong."""
        return sum(self._outcomes)

    @property
    def outcomes(self) -> list[bool]:
        """Whether the prediction is wrong, of each draw that counts."""
        return list(self._outcomes)

    @property
    def labels(self) -> dict[int, Any]:
        """The labels of the draws that count, in the order of the draws."""
        return {draw.row: self._settled[draw.row] for draw in self.draws[: self.n_labels]}

    @property
    def anytime_upper(self) -> float:
        """Bound on the share of errors in the pool that holds at every number of labels at once."""
        N = len(self.predictions)
        if isinstance(self._errors, PoolErrors):
            return (self.known_errors + self._errors.upper) / N
        # errors come in whole rows, and those left are no more than there are
        most = self.known_errors + self.n_errors + self.n_drawable - self.n_labels
        return float(min(np.floor(self._errors.upper * N + 1e-9), most) / N)

    @property
    def proved(self) -> bool:
        """Whether the bound that decides is at most the target."""
        if self.target is None:
            return False
        return (self.anytime_upper if self.plan is None else self.planned_upper(self.plan)) <= self.target

    def planned_upper(self, n: int) -> float:
        """Exact bound for n labels that were planned beforehand, uniformly drawn; those missing count as errors."""
        n = min(n, self.n_drawable)
        first = self._outcomes[:n]
        return self._planned(sum(first) + n - len(first), n)

    def draw(self, n: int) -> list[Draw]:
        """The first n draws, fewer where the pool ends."""
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
        """The draw of a row, if it has no label and is the next one, or among the first `ahead`."""
        place = self._place.get(row)
        is_given = place is not None and (place < ahead or self.next_draw() is self.draws[place])
        return self.draws[place] if place is not None and is_given and row not in self._settled else None

    def open_draws(self, n: int, most: int) -> tuple[list[Draw], int]:
        """The first n draws without a label, among the first `most` of all; and how many draws were looked at."""
        found: list[Draw] = []
        ahead = self.n_labels
        while len(found) < n and ahead < min(most, self.n_drawable):
            draw = self.draws[ahead] if ahead < len(self.draws) else self.draw(ahead + 1)[ahead]
            found += [] if draw.row in self._settled else [draw]
            ahead += 1
        return found, ahead

    def next_draw(self) -> Draw | None:
        """The first draw without a label; None once the target is proved, or where the pool ends."""
        n = self.n_labels
        if self.proved or n == self.n_drawable:
            return None
        return self.draws[n] if n < len(self.draws) else self.draw(n + 1)[n]

    def settle(self, row: int, label: Any) -> None:
        """Take the label of any row, known or not, or change it; None (it cannot be labeled) counts as an error."""
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
        """Take a label back; a row that was known from the start counts as an error until it has a label again."""
        if row in self.known:
            self.settle(row, None)
        elif row in self._settled:
            del self._settled[row]
            self._count_from(self._place.get(row))

    def can_still_prove(self, n: int) -> bool:
        """Whether n labels in all, or those planned, can prove the target if no more errors come."""
        if self.target is None or self.proved:
            return self.proved
        n = min(n if self.plan is None else self.plan, self.n_drawable)
        if self.plan is not None:
            return self._planned(self.n_errors, n) <= self.target
        return not isinstance(self._errors, PoolErrors) or self._errors.rejects(self._n_too_many, self.n_errors, n)

    def labels_needed(self) -> int | None:
        """Labels until the anytime bound proves the target, if errors go on as so far; None if it is out of reach."""
        n, x = self.n_labels, self.n_errors
        return self._labels_after(n, x, x / n if n else 0.0)

    def least_labels(self) -> int | None:
        """Labels of this audit if it had no error."""
        return self._labels_after(0, 0, 0.0)

    def _labels_after(self, n: int, x: int, rate: float) -> int | None:
        if not isinstance(self._errors, PoolErrors):
            raise ParameterError(
                "sampling",
                "must be uniform to tell the number of labels needed",
                "an audit that weights its draws",
                "Begin an audit with sampling='uniform'.",
            )
        case = self._n_too_many, n, x
        if case not in self._needed:
            self._needed[case] = self._errors.labels_needed(*case, rate)
        return self._needed[case]

    @property
    def _n_too_many(self) -> int:
        """The least number of errors, among the rows to draw from, that the target rules out."""
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
        """Count the labels from this draw on, as far as they are settled without a gap."""
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
    """The level of the audit with this number, from 1: all together keep `level`."""
    return 1.0 - (1.0 - level) / (audit * (audit + 1))


@dataclass(frozen=True)
class FreezeSchedule:
    """The first audit begins at `first` labels, each further one at `growth` times the labels of the one before.

    Attributes
    ----------
    first : int, default=20
        Labels, known ones included, at which the first audit begins.
    growth : float, default=1.2
        Labels at which an audit begins, over those at which the one before began.
    """

    first: int = 20
    growth: float = 1.2

    def __post_init__(self) -> None:
        check_positive_integer(self.first, "first")
        if check_positive_scalar(self.growth, "growth") < 1:
            raise ParameterError("growth", "must be at least 1", repr(self.growth), "Pass 1.2, say.")

    def n_labels(self, before: int) -> int:
        """Labels in all at which the next audit begins.

        Parameters
        ----------
        before : int
            Labels at which the last audit began; 0 if there was none.

        Returns
        -------
        int
            The labels.
        """
        return max(self.first, math.ceil(self.growth * before))


@dataclass(frozen=True)
class GiveUp:
    """An audit is given up when its target takes too many more labels, at the error rate observed.

    Too many are more than `patience` times those of an audit without an error. The rule needs uniform draws and the
    anytime bound; other audits end with their budget.

    Attributes
    ----------
    patience : float, default=30.0
        Larger: audits go on for longer.
    after : int, default=30
        Labels before the error rate is looked at.
    """

    patience: float = 30.0
    after: int = 30

    def __post_init__(self) -> None:
        check_positive_scalar(self.patience, "patience")

    def reason(self, audit: AuditEngine) -> str | None:
        """Why an audit should end without a proof.

        Parameters
        ----------
        audit : AuditEngine
            The audit.

        Returns
        -------
        {"no row left", "out of reach", "too long"} or None
            None where it should go on.
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
    """How audits alternate with learning.

    Attributes
    ----------
    freeze : FreezeSchedule
        When the next audit begins; any object with its method.
    give_up : GiveUp
        When an audit ends without a proof; any object with its method.
    budget : int or None, default=None
        Labels that an audit may take; it ends as soon as the target is out of reach within them. None: no limit with
        uniform draws; with weighted ones, the labels of an audit that is planned for a quarter of the target.
    rule : {"anytime", "planned"}, default="anytime"
        Which bound proves the target; "planned", the exact one at `budget` labels, needs a budget.
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
    """Which bound decides: by default the exact one where a number of labels is planned, by the parameter `name`."""
    if rule not in (None, ANYTIME, PLANNED):
        raise ParameterError("rule", "must be 'anytime', 'planned' or None", repr(rule), "Pass one of these.")
    if rule == PLANNED and planned is None:
        raise ParameterError(name, "must be given for rule='planned'", "None", f"Pass {name}=.")
    return rule or (ANYTIME if planned is None else PLANNED)
