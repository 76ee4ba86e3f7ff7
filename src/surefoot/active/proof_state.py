"""Successive audits of classifiers on one pool that are valid simultaneously, and the labels of all audits.

The theorem requires a classifier that did not see the labels of its audit. Therefore learning and auditing alternate.
The classifier is frozen, then audited on rows sampled at random from the unlabeled rows. If the audit ends without a
proof, its labels become available for learning. The j-th audit has error probability (1 − level) / (j (j + 1)). These
probabilities sum to 1 − level. Therefore, with probability at least `level`, no bound of any audit is ever below the
error rate of the audited classifier.
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

# The state of a loop of learning and audits: the row to label next, and the proved bounds.

LEARN, AUDIT, PROVED, EXHAUSTED = "learn", "audit", "proved", "no row left"


@dataclass(frozen=True)
class Question:
    """Hold a row to label and the purpose of its label.

    Attributes
    ----------
    row : int
        Row number in the pool.
    phase : {"learn", "audit"}
        Whether its label is used for learning or to audit the frozen classifier.
    """

    row: int
    phase: str


@dataclass(frozen=True, eq=False, repr=False)
class ProofState(PrintsAsTable):
    """Hold the progress of a labeling loop.

    Attributes
    ----------
    phase : {"learn", "audit", "proved", "no row left"}
        Purpose of the next label, or the reason why there is none.
    n_labels : int
        Total number of labels.
    n_wanted : int
        Expected number of labels at which the next audit begins.
    n_expected : int or None
        Expected number of further labels until the proof. None before the first test of the classifier, and if the test
        results put the target out of reach.
    n_audits : int
        Number of audits begun.
    audit_labels : int
        Number of labels of the open audit, or of the last audit.
    audit_errors : int
        Number of wrong predictions of the frozen classifier in this audit.
    budget : int or None
        Maximum number of labels of an audit, None without a limit.
    bound : float or None
        Anytime bound of this audit on the error rate in the pool, None before the first label.
    audit_level : float or None
        Confidence level of this audit alone.
    target_error : float
        The error rate to prove.
    level : float
        Confidence level of all audits together.
    """

    phase: str
    n_labels: int
    n_wanted: int
    n_expected: int | None
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
            *([] if not self.n_expected else [("expected", f"about {count(self.n_expected, 'more label')}")]),
            ("target", f"an error rate of at most {self.target_error:.4g} at confidence level {self.level:.4g}"),
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
    """State computed from past events. Each event is first written to the journal. Parameters as in `Journal`."""

    def __init__(
        self, journal: str | os.PathLike[str] | EventLog | None, about: dict[str, Any], free: tuple[str, ...]
    ) -> None:
        self._journal = Journal(journal, KIND, about, free)
        about = self._journal.about
        self.level: float = about["level"]
        self._n_rows, self._seed, self._budget = about["rows"], about["seed"], about["budget"]
        self._learned: dict[int, Any] = dict(about["known"])
        self._audited: dict[int, Any] = {}  # labels of the open audit, in sampling order
        self._skipped: set[int] = set()
        self.audits: dict[int, AuditEngine] = {}
        self.n_audits = 0
        self._n_frozen = 0  # number of labels when the last audit began
        self._n_begun = len(self._learned)  # number of labels when learning last began
        self._sampled: set[int] = set()  # rows labeled by past audits
        self._mark: str | None = None  # hash of the classifier under audit
        self._journal.replay(self._apply)

    @property
    def labels(self) -> dict[int, Any]:
        """All labels, by row: labels known at the start, labels for learning and audit labels."""
        return self._learned | {row: label for row, label in self._audited.items() if label is not None}

    @property
    def learned(self) -> dict[int, Any]:
        """Labels available for learning: all labels except the labels of the open audit."""
        return dict(self._learned)

    @property
    def skipped(self) -> set[int]:
        """Rows that could not be labeled, in audits or in learning, and still have no label."""
        return (self._skipped | {row for row, label in self._audited.items() if label is None}) - set(self._learned)

    @property
    def is_auditing(self) -> bool:
        """Whether an audit is open, possibly resumed from the journal. Its labels test the frozen classifier."""
        return self._mark is not None

    @property
    def audit(self) -> AuditEngine | None:
        """The open audit, or the last audit of this process."""
        return self.audits[max(self.audits)] if self.audits else None

    @property
    def proved(self) -> bool:
        """Whether the error rate of a classifier on the pool is proved to be at most the target."""
        return any(audit.proved for audit in self.audits.values())

    @property
    def proof(self) -> ErrorBound | None:
        """The bound of the first audit that proved the target, at the confidence level of all audits together."""
        for number, audit in self.audits.items():
            if audit.proved:
                bound = audit_bound(audit, audit.plan)
                together = (
                    f"audit {number} of a series that shares the confidence level, so that all audits hold together"
                )
                return replace(bound, level=self.level, assumptions=(*bound.assumptions, together))
        return None

    def close(self) -> None:
        """Release the journal so that another process can resume it."""
        self._journal.close()

    def _check_free(self, row: Any) -> int:
        """Validate a row of the pool that has no label."""
        if isinstance(row, bool) or row not in range(self._n_rows):
            raise ParameterError(
                "row", f"must be a row of the pool, 0 to {self._n_rows - 1}", repr(row), "Pass a row number."
            )
        if row in self.labels:
            raise ParameterError(
                "row", "must have no label, because audits have used it", f"row {row}", "Label another row."
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
        """Close the open audit. Its labels become available for learning."""
        self._skipped |= {row for row, label in self._audited.items() if label is None}
        found = {row: label for row, label in self._audited.items() if label is not None}
        self._learned |= found
        self._sampled |= found.keys()
        if self._mark is not None:
            self._n_begun = len(self._learned)
        self._audited, self._mark = {}, None
