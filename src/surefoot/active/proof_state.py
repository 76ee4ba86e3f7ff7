"""Where a loop of learning and audits stands: the question that is open, and what has been shown so far."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot._printing import PrintsAsTable, count, rounded_up

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
