"""When the next audit begins, and when an audit is given up: one default for the loop, the page and the command line.

Both may depend on everything seen so far: the audits of a series hold together, however they begin and end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from surefoot._errors import ParameterError
from surefoot._validation import check_positive_integer, check_positive_scalar
from surefoot.bounds.engine import AuditEngine

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
