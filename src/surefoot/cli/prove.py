"""`surefoot label --target-error`: learn, freeze, prove; labels go into the table, and the proved model into a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from surefoot._printing import count, share_at_most
from surefoot.active.base import QueryStrategy
from surefoot.active.proof import ProvenLabeling
from surefoot.active.proof_state import AUDIT
from surefoot.active.strategies import RandomSampling, RobustModelChange
from surefoot.cli.output import NOT_REACHED, OK, Output, percent
from surefoot.cli.questions import QUIT, SKIP, Questions
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.pool.choices import DEFAULT, NONE, WEAK, Choices
from surefoot.pool.model import learned_metric
from surefoot.pool.model_file import ModelFile, save_model, without_pool
from surefoot.pool.recorded import write_missing
from surefoot.pool.table import Pool
from surefoot.pool.table.asked import AskedRows
from surefoot.pool.table.editing import LabelWriter


class RandomFirst(QueryStrategy):
    """Rows at random until there are enough labels, then those whose label says most."""

    def __init__(self, random_first: int, seed: int) -> None:
        self.random_first = random_first
        self.seed = seed
        self.missing_label = None

    def query(self, X: Any, y: Any, **options: Any) -> Any:  # type: ignore[override]
        labeled = sum(value is not None for value in np.asarray(y, dtype=object))
        if labeled < self.random_first:
            return RandomSampling(random_state=self.seed, missing_label=None).query(X, y, **options)
        return RobustModelChange(random_state=self.seed, missing_label=None).query(X, y, **options)

    def _utilities(self, model: Any, pool: Any, positions: Any) -> Any:
        raise NotImplementedError("query chooses between two strategies, which have utilities")


@dataclass
class ProofSession:
    """One sitting of a loop that learns and audits by turns."""

    output: Output
    pool: Pool
    labeling: ProvenLabeling
    writer: LabelWriter
    asked: AskedRows
    journal: Path
    out: Path
    answered: int = 0
    questions: Questions = field(init=False)

    def __post_init__(self) -> None:
        self.questions = Questions(self.output, self.pool.table, self.pool.classes, (SKIP, QUIT))

    def run(self) -> int:
        """Ask until the target is proved, no row is left, or the user has had enough."""
        self._bring_together()
        say, state = self.questions.say, self.labeling.state
        say(
            f"Labeling {self.pool.table.label!r} in {self.pool.table.path.name} until the model is proved to err on at "
            f"most {percent(state.target_error)} of its rows (level {state.level:g}).",
            "bold",
        )
        while (question := self._next()) is not None:
            judging = question.phase == AUDIT
            uniform = self.labeling.series.audit is not None and "betting" not in self._audit_method
            self.asked.ask(question.row, random=judging and uniform)
            why = "drawn at random, to judge the model" if judging else "its label teaches the model most"
            self.questions.show(question.row, why)
            answer = self.questions.answer()
            if answer == QUIT:
                break
            self._take(question.row, answer)
            self._say_state()
        return self._end()

    @property
    def _audit_method(self) -> str:
        audit = self.labeling.series.audit
        return "" if audit is None else audit.anytime_bound().method

    def _next(self) -> Any:
        with self.output.working("choosing a row"):
            return self.labeling.next()

    def _bring_together(self) -> None:
        """Labels that the journal holds go into the table; those that only the table holds teach."""
        labels = self.pool.labels
        write_missing(labels, self.labeling.labels, self.writer, self.journal)
        known = self.labeling.labels
        new = {row: str(label) for row, label in enumerate(labels) if label is not None and row not in known}
        if new:
            self.labeling.teach(new)
            self.output.note(f"{count(len(new), 'label')} came into the table since the last sitting: they teach.")

    def _take(self, row: int, answer: str) -> None:
        self.answered += 1
        if answer == SKIP:
            self.labeling.skip(row)
            self.asked.skip(row)
            self.questions.say(f"Row {row + 1} is skipped.")
            return
        label = answer.removeprefix("=")
        self.labeling.record(row, label)
        self.writer.write(row, label)
        self.pool.labels[row] = label

    def _say_state(self) -> None:
        now = self.labeling.state
        text = f"{count(now.n_labels, 'label')}."
        if now.bound is not None and now.audit_level is not None and now.phase != "learn":
            target = percent(now.target_error)
            text += (
                f" Audit {now.n_audits}: {now.audit_errors} wrong of {now.audit_labels}, so the model errs on at most "
                f"{share_at_most(now.bound)}% of the rows (level {now.audit_level:.3g}; target {target})."
            )
        elif now.phase == "learn":
            text += f" The next audit begins at {now.n_wanted}."
        self.questions.say(text, "bold")

    def _end(self) -> int:
        found, proof = self.labeling, self.labeling.proof
        state = found.state
        written = None
        if proof is not None:
            self._write_model()
            written = str(self.out)
            self.questions.say(f"Proved: {proof.statement}. The model is in {self.out}.", "bold")
        else:
            again = "" if found.next() is None else "; run it again to go on"
            self.questions.say(f"Not proved yet, after {count(state.n_labels, 'label')}{again}.", "bold")
        data = {
            "path": str(self.pool.table.path),
            "journal": str(self.journal),
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

    def _write_model(self) -> None:
        model, proof = self.labeling.model, self.labeling.proof
        if model is None or proof is None:
            raise RuntimeError("only a model that is proved is written")
        # the labels were chosen, so that the certificate of the fit promises nothing: what is proved is all
        summary = {
            "proved_error": proof.value,
            "level": proof.level,
            "labels": proof.n_labels,
            "errors": proof.n_errors,
            "statement": proof.statement,
        }
        steps = [*self.pool.cleaner.steps, ("classify", without_pool(model))]
        save_model(self.out, ModelFile(Pipeline(steps), self.pool.table.label, self.pool.classes, summary))


def proven_labeling(
    pool: Pool, choices: Choices, journal: Path, *, target_error: float, level: float, random_first: int
) -> ProvenLabeling:
    """The loop for a pool, resumed where its journal is there."""
    own: dict[str, Any] = {"radius": choices.radius}
    if choices.radius == DEFAULT:
        own = {"metric": learned_metric(pool)}
    if choices.prior != WEAK:
        own["label_prior"] = None if choices.prior == NONE else np.array(choices.prior)
    clf = RobustLogisticRegression(tol=choices.tol, classes=pool.classes, n_jobs=choices.n_jobs, **own)
    return ProvenLabeling(
        clf,
        pool.rows,
        None if journal.exists() else pool.labels,
        target_error=target_error,
        level=level,
        first=max(random_first, 2),
        strategy=RandomFirst(random_first, choices.seed),
        classes=pool.classes,
        journal=journal,
        random_state=choices.seed,
    )
