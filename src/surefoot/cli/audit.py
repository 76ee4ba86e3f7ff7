"""`surefoot audit`: prove in the terminal how often a stored model errs on the rows of a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._outputs import OutputFile
from surefoot._printing import count, share_at_most
from surefoot._types import FloatArray
from surefoot.bounds.audit import PLANNED, Audit
from surefoot.bounds.result import ErrorBound
from surefoot.cli.output import NOT_REACHED, OK, Output, percent
from surefoot.cli.questions import QUIT, SKIP, Questions
from surefoot.pool.recorded import write_missing
from surefoot.pool.stored import Classifier
from surefoot.pool.table import Table
from surefoot.pool.table.asked import row_hashes
from surefoot.pool.table.editing import LabelWriter

# How often a classifier that is worth an audit is taken to err, as a share of the target, to say how long it may take.
_BELIEVED_SHARE = 0.25


@dataclass(frozen=True, eq=False)
class FrozenAnswers:
    """What a stored model says of each row of a table: predictions (N,), and probabilities (N, K) where it has them."""

    classes_: NDArray[Any]
    predicted: NDArray[Any]
    proba: FloatArray | None

    @classmethod
    def of(cls, classifier: Classifier, table: Table) -> FrozenAnswers:
        inputs = classifier.inputs(table.cells, table.label)
        proba = classifier.proba(inputs) if hasattr(classifier.model, "predict_proba") else None
        return cls(np.array(classifier.classes, dtype=object), classifier.predict(inputs), proba)

    def predict(self, X: Any) -> NDArray[Any]:
        del X  # the rows of the table, always
        return self.predicted

    def __getattr__(self, name: str) -> Any:
        if name == "predict_proba" and self.proba is not None:
            return lambda _X: self.proba
        raise AttributeError(name)


@dataclass
class AuditSession:
    """One sitting. Each answer is in the journal of the audit, then in the table, before the next row is asked for."""

    output: Output
    table: Table
    audit: Audit
    writer: LabelWriter
    journal: Path
    model: str
    answered: int = 0
    questions: Questions = field(init=False)

    def __post_init__(self) -> None:
        classes = sorted({*self.table.classes, *(self.audit.classes or [])})
        self.questions = Questions(self.output, self.table, classes, (SKIP, QUIT))

    def run(self) -> int:
        """Ask until the target is proved, the labels planned are there, no row is left, or the user has had enough."""
        self._greet()
        write_missing(self.table.labels, self.audit.labels, self.writer, self.journal)
        while (row := self.audit.next()) is not None:
            known = self.table.labels[row]
            if known is None:
                self.questions.show(row, "drawn at random, to judge the model")
                answer = self.questions.answer()
                if answer == QUIT:
                    break
                self._take(row, answer)
            else:  # filled in since the audit began, by whoever it was: the draw does not depend on it
                self.audit.record(row, known)
            self._say_bound()
        return self._end()

    def _take(self, row: int, answer: str) -> None:
        self.answered += 1
        if answer == SKIP:
            self.audit.skip(row)
            self.questions.say(f"Row {row + 1} is skipped, and counts as an error.")
            return
        label = answer.removeprefix("=")
        self.audit.record(row, label)
        self.writer.write(row, label)
        self.table.labels[row] = label

    @property
    def _bound(self) -> ErrorBound:
        return self.audit.bound() if self.audit.rule == PLANNED else self.audit.anytime_bound()

    def _greet(self) -> None:
        target = self.audit.target_error
        self.questions.say(f"Auditing {self.model} on {self.table.path.name}; every answer is written at once.", "bold")
        rows = count(len(self.table.labels), "row")
        before = f"{self.audit.n_known} with a label from before"
        self.questions.say(f"{rows}, {before}; the model is judged by rows drawn at random.")
        if self.audit.n_labels:
            self.questions.say(f"Going on after {count(self.audit.n_labels, 'label')}, {self.audit.n_errors} wrong.")
        if target is not None and self.audit.planned is None and not self.audit.n_labels:
            size = self.audit.expected_size(_BELIEVED_SHARE * target)
            if size.n_anytime is not None:
                self.questions.say(
                    f"If the model errs on {percent(_BELIEVED_SHARE * target)}, {percent(target)} will be proved "
                    f"within {count(size.n_anytime, 'label')} in four of five cases."
                )

    def _say_bound(self) -> None:
        target = self.audit.target_error
        goal = "" if target is None else f"; target {percent(target)}"
        self.questions.say(
            f"{count(self.audit.n_labels, 'label')}, {self.audit.n_errors} wrong: the model errs on at most "
            f"{share_at_most(self._bound.value)}% of the rows (level {self.audit.level:g}){goal}.",
            "bold",
        )

    def _end(self) -> int:
        bound, proved = self._bound, self.audit.proved
        done = "proved" if proved else "ended" if self.audit.done else "interrupted; run it again to go on"
        self.questions.say(f"Done: {done}. {bound.statement}.", "bold")
        for text in bound.assumptions:
            self.questions.say(f"  assumes that {text}")
        data = {
            "path": str(self.table.path),
            "journal": str(self.journal),
            "labels": self.audit.n_labels,
            "errors": self.audit.n_errors,
            "answered": self.answered,
            "bound": bound.value,
            "anytime_bound": self.audit.anytime_bound().value,
            "level": self.audit.level,
            "rule": self.audit.rule,
            "target": self.audit.target_error,
            "proved": proved,
            "done": self.audit.done,
            "statement": bound.statement,
            "assumptions": list(bound.assumptions),
        }
        return self.output.finish(data, OK if self.audit.target_error is None or proved else NOT_REACHED)


def journal_file(path: Path) -> OutputFile:
    """The journal of an audit, which is only ever added to; `Audit` refuses one that is not its own."""
    return OutputFile(path, "journal of the audit", "--journal", lambda _: True)


def audit_table(
    output: Output,
    classifier: Classifier,
    table: Table,
    writer: LabelWriter,
    journal: Path,
    **options: Any,
) -> int:
    """Audit a stored classifier on the rows of a table; options are those of `Audit`."""
    with output.working("asking the model"):
        answers = FrozenAnswers.of(classifier, table)
    classes = sorted({*table.classes, *classifier.classes})
    audit = Audit(
        answers,
        row_hashes(table.features)[:, None],
        None if journal.exists() else table.labels,
        classes=classes,
        journal=journal,
        **options,
    )
    return AuditSession(output, table, audit, writer, journal, classifier.path.name).run()
