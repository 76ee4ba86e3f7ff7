"""Audits of one classifier after another on one pool, all of which hold together, and the labels of all of them.

A theorem needs a classifier that did not see the labels that judge it. So learning and auditing take turns: the
classifier is frozen, rows drawn at random from those without a label judge it, and the labels of an audit without a
proof go to learning. The j-th audit spends (1 − level) / (j (j + 1)) of the level; these sum to 1 − level, so with
probability at least `level` no bound of any audit, at any time, is below the error of the classifier that it judges.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from surefoot._errors import ParameterError
from surefoot._printing import PrintsAsTable, count, rounded_up
from surefoot.bounds._arguments import check_known_label
from surefoot.bounds.audit import audit_bound
from surefoot.bounds.engine import AuditEngine
from surefoot.bounds.journal import EventLog, Journal, answer_of
from surefoot.bounds.result import ErrorBound

# Where a loop of learning and audits stands: the question that is open, and what has been shown so far.

LEARN, AUDIT, PROVED, EXHAUSTED = "learn", "audit", "proved", "no row left"


@dataclass(frozen=True)
class Question:
    """A row to label, and what its label is for.

    Attributes
    ----------
    row : int
        Its number in the pool.
    phase : {"learn", "audit"}
        Whether its label teaches, or judges the frozen classifier.
    """

    row: int
    phase: str


@dataclass(frozen=True, eq=False, repr=False)
class ProofState(PrintsAsTable):
    """Where a labeling loop stands.

    Attributes
    ----------
    phase : {"learn", "audit", "proved", "no row left"}
        What the next label is for, or why there is none.
    n_labels : int
        All labels.
    n_wanted : int
        Labels at which the next audit begins.
    n_audits : int
        Audits begun.
    audit_labels : int
        Labels of the open audit, or of the last one.
    audit_errors : int
        Labels among them that the frozen classifier got wrong.
    budget : int or None
        Labels that an audit may take; None without a limit.
    bound : float or None
        Anytime bound of that audit on the share of errors in the pool; None before the first.
    audit_level : float or None
        The level of that audit, its share of the whole.
    target_error : float
        The share of errors to prove.
    level : float
        Of all audits together.
    """

    phase: str
    n_labels: int
    n_wanted: int
    n_audits: int
    audit_labels: int
    audit_errors: int
    budget: int | None
    bound: float | None
    audit_level: float | None
    target_error: float
    level: float

    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            ("phase", self.phase),
            ("labels", f"{self.n_labels}" + (f" of {self.n_wanted} to learn from" if self.phase == LEARN else "")),
            ("target", f"an error of at most {self.target_error:.4g} at level {self.level:.4g}"),
        ]
        if self.bound is not None and self.audit_level is not None:
            limit = "" if self.budget is None else f" (at most {self.budget})"
            rows.append(
                (
                    f"audit {self.n_audits}",
                    f"{count(self.audit_errors, 'error')} on {count(self.audit_labels, 'label')}{limit}; "
                    f"bound {rounded_up(self.bound, 4)} at level {self.audit_level:.4g}",
                )
            )
        return rows


KIND = "surefoot.audits"


class AuditRecord:
    """What the events so far add up to; each new one is in the journal before it counts. Parameters as in `Journal`."""

    def __init__(
        self, journal: str | os.PathLike[str] | EventLog | None, about: dict[str, Any], free: tuple[str, ...]
    ) -> None:
        self._journal = Journal(journal, KIND, about, free)
        about = self._journal.about
        self.level: float = about["level"]
        self._n_rows, self._seed, self._budget = about["rows"], about["seed"], about["budget"]
        self._learned: dict[int, Any] = dict(about["known"])
        self._audited: dict[int, Any] = {}  # by the open audit, in the order of its draws
        self._skipped: set[int] = set()
        self.audits: dict[int, AuditEngine] = {}
        self.n_audits = 0
        self._n_frozen = 0  # labels when the last audit began
        self._mark: str | None = None  # hash of the classifier that is audited now
        self._journal.replay(self._apply)

    @property
    def labels(self) -> dict[int, Any]:
        """All labels, by row: those known from the start, those learned from and those of audits."""
        return self._learned | {row: label for row, label in self._audited.items() if label is not None}

    @property
    def learned(self) -> dict[int, Any]:
        """The labels that learning may use now: all but those of the audit that is open."""
        return dict(self._learned)

    @property
    def skipped(self) -> set[int]:
        """Rows whose label could not be told, in audits or in learning, and that have none."""
        return (self._skipped | {row for row, label in self._audited.items() if label is None}) - set(self._learned)

    @property
    def is_auditing(self) -> bool:
        """Whether an audit is open, a resumed one included: its labels judge the classifier that was frozen."""
        return self._mark is not None

    @property
    def audit(self) -> AuditEngine | None:
        """The audit that is open, or was the last of this process."""
        return self.audits[max(self.audits)] if self.audits else None

    @property
    def proved(self) -> bool:
        """Whether a classifier is proved to err on at most the target share of the pool."""
        return any(audit.proved for audit in self.audits.values())

    @property
    def proof(self) -> ErrorBound | None:
        """The bound of the first audit that proved the target, at the level that all audits hold together."""
        for number, audit in self.audits.items():
            if audit.proved:
                bound = audit_bound(audit, audit.plan)
                together = f"audit {number} of a series, each at its share of the level, so that all hold together"
                return replace(bound, level=self.level, assumptions=(*bound.assumptions, together))
        return None

    def close(self) -> None:
        """Let others open the journal, to go on from here."""
        self._journal.close()

    def _check_free(self, row: Any) -> int:
        """A row of the pool that has no label."""
        if isinstance(row, bool) or row not in range(self._n_rows):
            raise ParameterError(
                "row", f"must be a row of the pool, 0 to {self._n_rows - 1}", repr(row), "Pass its number."
            )
        if row in self.labels:
            raise ParameterError(
                "row", "must have no label, since audits have counted with it", f"row {row}", "Label another."
            )
        return int(row)

    def _write(self, event: dict[str, Any]) -> None:
        self._journal.append(event)
        self._apply(event)

    def _apply(self, event: dict[str, Any]) -> None:
        if "learn" in event:
            row, label = event["learn"]
            row, label = self._check_free(row), check_known_label(label, None)
            self._end_audit()
            self._learned[row] = label
        elif "pass" in event:
            self._skipped.add(self._check_free(event["pass"]))
        elif "give_up" in event:
            self._end_audit()
        elif "freeze" in event:
            if event["freeze"] != self.n_audits + 1:
                raise ValueError(f"audit {event['freeze']!r} cannot follow audit {self.n_audits}")
            self._end_audit()
            self._n_frozen = len(self._learned)
            self.n_audits, self._mark = self.n_audits + 1, str(event["predictions"])
        else:
            row, label = answer_of(event)
            if event["audit"] != self.n_audits or self._mark is None:
                raise ValueError(f"audit {event['audit']!r} is not open")
            self._audited[self._check_free(row)] = label

    def _end_audit(self) -> None:
        """The labels of the open audit go to learning; it takes no more."""
        self._skipped |= {row for row, label in self._audited.items() if label is None}
        self._learned |= {row: label for row, label in self._audited.items() if label is not None}
        self._audited, self._mark = {}, None
