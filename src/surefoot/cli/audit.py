"""Proofs in the terminal: `surefoot audit` of finished predictions, `surefoot label --target-error` of a new model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from surefoot._files import write_bytes
from surefoot._printing import at_most, count, in_percent, percent, short_percent
from surefoot.active.proof import ProvenLabeling
from surefoot.active.proof_state import AUDIT as JUDGE
from surefoot.bounds.audit import Audit
from surefoot.bounds.engine import PLANNED
from surefoot.bounds.finish import ASSUMPTIONS
from surefoot.bounds.metrics import MetricBound
from surefoot.bounds.result import ErrorBound
from surefoot.cli.label import Asking, StoreAsking
from surefoot.cli.output import NOT_REACHED, OK, Output, rounded_percent
from surefoot.pool.database import AUDIT, FREEZE, LEARN, RANDOM
from surefoot.pool.finishing import STATEMENT, Finishing, finished_table, labels_and_authors, statement_path
from surefoot.pool.stored import Classifier, GivenPredictions, write_predictions
from surefoot.pool.table import Pool, Table, TableError
from surefoot.pool.terminal import FinishLoop, Sitting, save_proved

# Error rate, as a share of the target, for which the length of an audit is estimated.
_BELIEVED_SHARE = 0.25


class AuditAsking(Asking):
    """One session. Each label is in the store, for the audit and the table, before the next row is shown.

    name : name of the audit; subject : description of the audited predictions. others : more predictions to compare
    with on the same sample.
    """

    others: Sequence[GivenPredictions] = ()
    skipped = "Row {} is skipped. It counts as an error, because dropping it would bias the sample."

    def __init__(self, output: Output, sitting: Sitting, audit: Audit, name: str, subject: str) -> None:
        super().__init__(output, sitting, sorted({*sitting.table.classes, *(audit.classes or [])}), audit)
        self.audit, self.name, self.subject = audit, name, subject

    def _next(self) -> tuple[int, str] | None:
        while (row := self.audit.next()) is not None:
            self.sitting.claim(row, AUDIT if self.audit.is_uniform else LEARN)
            known = self.table.labels[row]
            if known is None:
                return row, f"sampled at random for the audit of {self.subject}"
            self.audit.record(row, known)  # filled in since, by whoever it was: the draw does not depend on it
            self._say_state()
        return None

    @property
    def _bound(self) -> ErrorBound | MetricBound:
        return self.audit.bound() if self.audit.rule == PLANNED else self.audit.anytime_bound()

    @property
    def _sentence(self) -> str:
        level, N = percent(self.audit.level), len(self.table.labels)
        if not self.audit.n_labels:
            return "No row of the sample is labeled yet"
        bound = self._bound
        if isinstance(bound, MetricBound):
            return bound.statement
        return f"With {level} confidence, at most {at_most(bound.value)} of the {count(N, 'row')} are misclassified"

    def _begin(self) -> None:
        target = self.audit.target_error
        before = f"{count(len(self.table.labels), 'row')}, {self.audit.n_known} of them labeled before"
        self.say(f"Audit of {self.subject} on {self.table.path.name}: {before}.", "bold")
        self.say("Rows are sampled at random. Predictions are hidden. Each label is stored at once.")
        if self.audit.n_labels:
            self.say(f"Continuing after {count(self.audit.n_labels, 'label')}, {self.audit.n_errors} wrong.")
        if target is not None and self.audit.planned is None and not self.audit.n_labels:
            size = self.audit.expected_size(_BELIEVED_SHARE * target)
            if size.n_anytime is not None:
                self.say(
                    f"If {short_percent(_BELIEVED_SHARE * target)} of the rows are misclassified, "
                    f"{count(size.n_anytime, 'label')} or fewer prove the target of {short_percent(target)} "
                    "in four of five cases."
                )
        self.sitting.check_counted(self.audit.labels)

    def _say_state(self) -> None:
        target = self.audit.target_error
        if self.audit.goal is not None:  # its bound takes a moment, and is not to be read before the end
            n, errors = self.audit.n_labels, count(self.audit.n_errors, "error")
            self.say(f"{n} of {count(self.audit.planned or 0, 'label')}, {errors}.", "bold")
            return
        goal = "" if target is None else f" (target {short_percent(target)})"
        self.say(f"{count(self.audit.n_labels, 'label')}, {self.audit.n_errors} wrong. {self._sentence}{goal}.", "bold")

    def _end(self) -> int:
        bound, proved, goal = self._bound, self.audit.proved, self.audit.goal
        target = self.audit.target_error if goal is None else goal.target
        done = "Proved." if proved else "Done." if self.audit.done else "Not done. Run the command again to continue."
        self.say(f"{done} {self._sentence}.", "bold")
        self.output.rows([("assumes" if k == 0 else "", text) for k, text in enumerate(bound.assumptions)])
        data = {
            "path": str(self.table.path),
            "audit": self.name,
            "labels": self.audit.n_labels,
            "errors": self.audit.n_errors,
            "answered": self.answered,
            "bound": bound.value,
            "metric": "error" if isinstance(bound, ErrorBound) else bound.metric,
            "estimates": None if isinstance(bound, ErrorBound) else dict(bound.estimates),
            "anytime_bound": self.audit.anytime_bound().value if isinstance(bound, ErrorBound) else None,
            "level": self.audit.level,
            "rule": self.audit.rule,
            "target": target,
            "proved": proved,
            "done": self.audit.done,
            "statement": f"{self._sentence}.",
            "assumptions": list(bound.assumptions),
        }
        data["comparison"] = self._compare() if self.others else None
        data |= self._save(audit=self.audit)
        return self.output.finish(data, OK if target is None or proved else NOT_REACHED)

    def _compare(self) -> dict[str, Any]:
        """Say how the predictions differ from the others."""
        found = self.audit.compare({one.column: one.predicted for one in self.others}, name=self.name)
        self.output.say(f"Compared on the same sample, all with {percent(found.level)} confidence together:", "bold")
        self.output.rows([
            *[(name, f"at most {at_most(value)} misclassified") for name, value in found.errors.items()],
            *[
                (f"{first} minus {second}", f"from {short_percent(low)} to {short_percent(high)} of the rows")
                for (first, second), (low, high) in found.differences.items()
            ],
            ("fewest errors", found.best or "not decided"),
        ])  # fmt: skip
        differences = [
            {"first": first, "second": second, "from": low, "to": high}
            for (first, second), (low, high) in found.differences.items()
        ]
        return {"errors": dict(found.errors), "differences": differences, "best": found.best}


class ProofAsking(Asking):
    """One session that alternates training and audits."""

    def __init__(self, output: Output, sitting: Sitting, pool: Pool, labeling: ProvenLabeling, out: Path) -> None:
        super().__init__(output, sitting, pool.classes, labeling)
        self.pool, self.labeling, self.out = pool, labeling, out

    def _begin(self) -> None:
        self._bring_together()
        state = self.labeling.state
        self.say(
            f"Labeling {self.table.label!r} in {self.table.path.name} until the error rate is proved to be at "
            f"most {rounded_percent(state.target_error)}, with {in_percent(state.level)} confidence.",
            "bold",
        )

    def _next(self) -> tuple[int, str] | None:
        with self.output.working("choosing a row"):
            question = self.labeling.next()
        if question is None:
            return None
        judging, audit = question.phase == JUDGE, self.labeling.audit
        uniform = judging and audit is not None and audit.is_uniform
        self.sitting.claim(question.row, AUDIT if uniform else LEARN)
        return (
            question.row,
            "sampled at random, to audit the model" if judging else "its label would change the model most",
        )

    def _bring_together(self) -> None:
        """Train on labels that other programs wrote."""
        labels = self.pool.labels
        if any(event.kind == FREEZE for event in self.sitting.book.events):
            raise TableError(
                f"{self.table.path.name} has audits that began in surefoot serve. Run surefoot serve to continue, "
                "or omit --target-error."
            )
        self.sitting.check_counted(self.labeling.labels)
        known = self.labeling.labels
        new = {row: str(label) for row, label in enumerate(labels) if label is not None and row not in known}
        if new:
            self.labeling.learn(new)
            self.output.note(
                f"{count(len(new), 'label')} written into the table since the last session will train the model."
            )

    def _say_state(self) -> None:
        now = self.labeling.state
        text = f"{count(now.n_labels, 'label')}."
        if now.bound is not None and now.audit_level is not None and now.phase != "learn":
            target = rounded_percent(now.target_error)
            text += (
                f" Audit {now.n_audits}: {now.audit_errors} wrong of {now.audit_labels}, so the error rate is at most "
                f"{at_most(now.bound)} with {in_percent(now.audit_level)} confidence (target {target})."
            )
        elif now.phase == "learn":
            text += f" The next audit begins at {now.n_wanted}."
        self.say(text, "bold")

    def _end(self) -> int:
        found, proof = self.labeling, self.labeling.proof
        state = found.state
        written = None
        if proof is not None:
            save_proved(self.out, self.pool, found)
            written = str(self.out)
            self.say(f"Proved. {proof.statement}. The model is in {self.out}.", "bold")
        else:
            again = "" if found.next() is None else ". Run it again to continue"
            self.say(f"Not proved yet, after {count(state.n_labels, 'label')}{again}.", "bold")
        data = {
            "path": str(self.table.path),
            "answered": self.answered,
            "labeled": state.n_labels,
            "phase": state.phase,
            "audits": state.n_audits,
            "bound": None if proof is None else proof.value,
            "level": state.level,
            "target_error": state.target_error,
            "proved": found.proved,
            "statement": None if proof is None else proof.statement,
            "model": written,
        }
        return self.output.finish(data, OK if found.proved else NOT_REACHED)


class FinishAsking(StoreAsking):
    """One session of finishing a table; out : path of the finished table."""

    def __init__(
        self, output: Output, sitting: Sitting, loop: FinishLoop, out: Path, save: Callable[..., list[Path]] | None
    ) -> None:
        super().__init__(output, sitting, sitting.table.classes)
        self.finish, self.out, self.save = loop, out, save
        self.hidden = loop.goal.columns

    def _begin(self) -> None:
        goal, level = self.finish.goal, percent(self.finish.goal.level or 0.0)
        self.say(
            f"Finishing {self.table.label!r} in {self.table.path.name}: at most {short_percent(goal.max_error)} of its "
            f"{count(len(self.table.labels), 'label')} wrong, with {level} confidence.",
            "bold",
        )
        self.say(
            "The model labels the rows that it is surest of, and you label the others. Each label is stored at once."
        )
        self._say_state()

    def _next(self) -> tuple[int, str] | None:
        row, self.standing = self.standing, None
        if row is not None:
            return row, ""
        with self.output.working("choosing a row"):
            before = self._stage
            chosen = self.finish.choose()
        if self._stage != before:
            self._say_state()
        if chosen is None:
            return None
        return chosen[0], {
            RANDOM: "sampled at random, to train the model",
            AUDIT: "sampled at random, to audit the predictions",
            LEARN: "the model is not sure enough of this row",
        }[chosen[1]]

    @property
    def _stage(self) -> int:
        """0 during training, 1 while the sample is labeled, 2 afterwards."""
        finishing = self.finish.finishing
        return 0 if finishing is None else 1 + finishing.is_sampled

    def _say_state(self) -> None:
        self.finish.follow()
        finishing = self.finish.finishing
        if finishing is None:
            wanted = max(self.finish.n_learn, self.finish.n_labels)
            self.say(f"{self.finish.n_labels} of {count(wanted, 'label')} for training.", "bold")
            return
        plan = finishing.plan()
        if plan is None:
            size = count(finishing.sample_size or 0, "sampled row")
            self.say(f"{finishing.n_sampled} of {size} labeled.", "bold")
        else:
            more, model = count(len(plan.rows), "more row"), count(plan.n_model, "row")
            self.say(f"{more} to label. The model labels {model}.", "bold")

    def _end(self) -> int:
        self.finish.follow()
        finishing, book = self.finish.finishing, self.sitting.book
        plan = None if finishing is None else finishing.plan()
        data: dict[str, Any] = {
            "path": str(self.table.path),
            "answered": self.answered,
            "labeled": len(book.labels),
            "skipped": len(book.skipped),
            "max_error": self.finish.goal.max_error,
            "level": self.finish.goal.level,
            "sample": None if finishing is None else finishing.sample_size,
            "errors": None if finishing is None else finishing.audit.n_errors,
            "rows_left": None if plan is None else len(plan.rows),
            "n_model": None if plan is None else plan.n_model,
            "bound": None if plan is None else plan.bound,
            "curve": None if plan is None else plan.curve(),
            "finished": False,
            "statement": None,
            "table": None,
        }
        if book.conflicts:
            self.output.note(
                f"{count(len(book.conflicts), 'row')} with different labels. Settle them on the page of surefoot serve."
            )
        if not (book.n_unanswered == 0 if finishing is None else finishing.is_finished) or book.conflicts:
            self.say("Not finished. Run the command again to continue, or label on the page of surefoot serve.", "bold")
            return self.output.finish(data, NOT_REACHED)
        statement = f"Annotators labeled all {count(len(book.labels), 'row')}." if plan is None else plan.statement
        self._write(finishing, statement)
        if book.skipped:
            self.output.note(f"{count(len(book.skipped), 'row')} without a label, because annotators skipped them.")
        self.say("Finished.", "bold")
        self.output.rows(
            [("statement", statement), ("table", str(self.out)), ("statement in", str(statement_path(self.out)))]
        )
        data |= {"finished": True, "statement": statement, "table": str(self.out)}
        if finishing is not None:
            data |= self._save(finishing=finishing)
        elif self.save is not None:
            self.output.note("no evidence was written, because annotators labeled every row.")
        return self.output.finish(data)

    def _write(self, finishing: Finishing | None, statement: str) -> None:
        """Write the finished table, and its guarantee into a text file."""
        book = self.sitting.book
        labels, authors = labels_and_authors(book.labels, {}, book.n_rows) if finishing is None else finishing.labels()
        write_predictions(self.out, finished_table(self.table, labels, authors))
        text = [f"{STATEMENT} {self.table.path.name}, column {self.table.label}", statement]
        if finishing is not None:
            text += ["Assumptions:", *[f"- {line}" for line in ASSUMPTIONS]]
        write_bytes(statement_path(self.out), "\n".join([*text, ""]).encode())


def audit_table(
    output: Output,
    subject: Classifier | GivenPredictions,
    sitting: Sitting,
    name: str,
    save: Callable[..., list[Path]] | None,
    others: Sequence[GivenPredictions] = (),
    **options: Any,
) -> int:
    """Audit a stored classifier, or predictions that the table holds; options are those of `Audit`.

    others : predictions in more columns, to compare with.
    """
    if isinstance(subject, Classifier):
        with output.working("predicting"):
            options["clf"] = _frozen(subject, sitting.table)
        options["classes"] = sorted({*sitting.table.classes, *subject.classes})
        words, hidden = subject.path.name, []
    else:
        options |= {"predictions": subject.predicted, "scores": subject.scores, "classes": sitting.table.classes}
        words, hidden = f"column {subject.column!r}", subject.columns
        if subject.n_empty:
            are = "row has no prediction and counts" if subject.n_empty == 1 else "rows have no prediction and count"
            output.note(f"{subject.n_empty} {are} as misclassified.")
    with _audit(sitting, name, **options) as audit:
        asking = AuditAsking(output, sitting, audit, name, words)
        asking.hidden, asking.save, asking.others = [*hidden, *(one.column for one in others)], save, others
        return asking.run()


@contextmanager
def _audit(sitting: Sitting, name: str, **options: Any) -> Iterator[Audit]:
    """Open an audit whose events are in the store of a table."""
    keys = np.frombuffer(sitting.store.row_keys() or b"", dtype="<u8")[:, None]
    with sitting.store.log(f"audit {name}") as log:
        yield Audit(X_pool=keys, y=None if log.read() else sitting.table.labels, journal=log, **options)


def _frozen(classifier: Classifier, table: Table) -> Any:
    """A classifier for the rows of one table, with stored predictions (N,) and probabilities (N, K) if available."""
    inputs = classifier.inputs(table.cells, table.label)
    predicted, known = classifier.predict(inputs), np.array(classifier.classes, dtype=object)
    frozen = SimpleNamespace(classes_=known, predict=lambda _: predicted)
    if classifier.has_proba:
        proba = classifier.proba(inputs)
        frozen.predict_proba = lambda _: proba
    return frozen
