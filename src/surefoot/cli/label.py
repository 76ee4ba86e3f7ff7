"""`surefoot label`: ask for one label at a time, write each at once, and stop when the certificate says so."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot._errors import InfeasibleRadiusError
from surefoot._printing import count, rounded_up, share_at_most
from surefoot.cli.output import NOT_REACHED, OK, Output
from surefoot.cli.questions import QUIT, SKIP, UNDO, Questions
from surefoot.losses import LOG_LOSS, ZERO_ONE
from surefoot.pool.choices import AUTO, DEFAULT, Choices
from surefoot.pool.learn_pool import Fit, Start, learn, says_little
from surefoot.pool.next_rows import candidates, working_rows
from surefoot.pool.table import Pool, Table, TableError
from surefoot.pool.table.beside import store_path
from surefoot.pool.table.reading import is_parquet

REACHED, EXHAUSTED = "target reached", "no row left"


@dataclass
class Goal:
    """When to stop: a certified risk, of the log loss or of the share of errors; None to go on."""

    loss: str
    target: float | None

    def risk(self, fit: Fit) -> float:
        return float(fit.certificate.risk if self.loss == LOG_LOSS else fit.error or 0.0)

    def reached(self, fit: Fit | None) -> bool:
        return self.target is not None and fit is not None and self.risk(fit) <= self.target

    def words(self, fit: Fit) -> str:
        """The risk, certified only where the radius is calibrated or given."""
        risk = self.risk(fit)
        shown = f"log loss {rounded_up(risk, 4)}" if self.loss == LOG_LOSS else f"errors {share_at_most(risk)}%"
        return f"certified {shown}" if fit.radius_kind != AUTO else f"worst-case {shown} (not a promise)"


class Labels(Protocol):
    """Where answers go: the table's file, or the store of a labeling page."""

    def write(self, row: int, label: str | None) -> None: ...


class AskedRows(Protocol):
    """Which rows were asked for, and skipped: in a journal beside the table, or in that store."""

    order: list[int]

    @property
    def skipped(self) -> set[int]: ...
    def ask(self, row: int, *, random: bool) -> None: ...
    def skip(self, row: int) -> None: ...
    def unskip(self, row: int) -> None: ...
    def pending(self, labeled: NDArray[np.bool_]) -> int | None: ...
    def picked(self, n_rows: int) -> NDArray[np.bool_]: ...


@dataclass
class Session:
    """One sitting. Labels live in the table's file; which rows were asked for, and skipped, in a journal beside it.

    stored : whether both are in the store of a labeling page instead, and the table does not have the labels yet.
    """

    output: Output
    pool: Pool
    choices: Choices
    goal: Goal
    writer: Labels
    asked: AskedRows
    random_first: int
    most: int
    stored: bool = False
    fit: Fit | None = None
    risks: list[float] = field(default_factory=list)
    answered: int = 0
    keep: NDArray[np.intp] = field(init=False)
    history: list[int] = field(init=False)
    questions: Questions = field(init=False)

    def __post_init__(self) -> None:
        self.questions = Questions(self.output, self.pool.table, self.pool.classes)
        self.keep = working_rows(self.pool, self.most, self.choices.seed)
        self.history = [row for row in self.asked.order if self._is_done(row)]

    @property
    def picked(self) -> NDArray[np.bool_]:
        return self.asked.picked(len(self.pool.rows))

    @property
    def n_random(self) -> int:
        return int((self.pool.labeled & ~self.picked).sum())

    def run(self) -> int:
        """Ask until the goal is reached, no row is left, or the user has had enough."""
        self._greet()
        self._refit()
        row = self.asked.pending(self.pool.labeled)
        while True:
            if self.goal.reached(self.fit):
                return self._end(REACHED)
            why = ""
            if row is None:
                row, why = self._next()
            if row is None:
                return self._end(EXHAUSTED)
            self.questions.show(row, why)
            answer = self.questions.answer()
            if answer == QUIT:
                return self._end(QUIT)
            row = self._take(row, answer)

    def _take(self, row: int, answer: str) -> int | None:
        """Act on an answer; the row to ask for next, if that is settled."""
        if answer == UNDO:
            return self._undo(row)
        if answer == SKIP:
            self.asked.skip(row)
            self.history.append(row)
            self._say(f"Row {row + 1} is skipped and not asked for again.")
            return None
        label = answer.removeprefix("=")
        self.writer.write(row, label)
        self.pool.labels[row] = label
        self.history.append(row)
        self.answered += 1
        self._refit()
        return None

    def _undo(self, row: int) -> int:
        if not self.history:
            self._say("There is nothing to undo.")
            return row
        last = self.history.pop()
        if last in self.asked.skipped:
            self.asked.unskip(last)
        else:
            self.writer.write(last, None)
            self.pool.labels[last] = None
            self.answered -= 1
            self._refit()
        self._say(f"Row {last + 1} is open again.")
        return last

    def _next(self) -> tuple[int | None, str]:
        """The next row and why: at random at first, then the one whose label says most."""
        is_open = ~self.pool.labeled[self.keep]
        rows = self.keep[is_open]
        free = np.array([row not in self.asked.skipped for row in rows], dtype=bool)
        if not free.any():
            return None, ""
        if self.fit is None or self.n_random < self.random_first:
            rng = np.random.default_rng([self.choices.seed, len(self.asked.order)])
            row = int(rng.choice(rows[free]))
            self.asked.ask(row, random=True)
            return row, f"drawn at random, {min(self.n_random + 1, self.random_first)} of {self.random_first}"
        with self._working("choosing a row"):
            chosen = candidates(self._chooser(self.fit), 1 + int((~free).sum()), self.choices.seed)
        best = next(c for c in chosen if free[c.position])
        row = int(rows[best.position])
        self.asked.ask(row, random=False)
        return row, best.reason

    def _chooser(self, fit: Fit) -> Fit:
        """The classifier that chooses rows: a constant one has no opinion; one of a smaller radius takes its place."""
        certificate = fit.certificate
        if not says_little(certificate):
            return fit
        smaller = certificate.minimal_radius + (certificate.radius - certificate.minimal_radius) / 16
        return learn(fit.start, replace(self.choices, radius=smaller), error=False)

    def _refit(self) -> None:
        """The classifier and its certificate with all labels so far; none before there are enough random ones."""
        seen = {label for label in self.pool.labels if label is not None}
        self.fit = None
        if self.n_random < self.random_first or len(seen) < 2 or self.pool.labeled[self.keep].all():
            self._say(f"{count(int(self.pool.labeled.sum()), 'label')}. The certificate comes {self._when(seen)}.")
            return
        with self._working("certifying"):
            start = Start.of(self.pool.subset(self.keep), self.picked[self.keep], nearest=True)
            try:
                self.fit = learn(start, self.choices, error=self.goal.loss == ZERO_ONE)
            except InfeasibleRadiusError as error:
                self._say(f"No certificate: --radius {error.radius:g} is below the minimal {error.minimal_radius:.4f}.")
                return
        self.risks.append(self.goal.risk(self.fit))
        before = ""
        if len(self.risks) > 1 and self.goal.loss == LOG_LOSS:
            before = f", {rounded_up(self.risks[-2], 4)} before"
        target = "" if self.goal.target is None else f"; target {self.goal.target:g}"
        words = self.goal.words(self.fit)
        self._say(f"{count(int(self.pool.labeled.sum()), 'label')}, {words}{before}{target}.", "bold")
        if len(self.risks) == 1 and self.choices.radius == DEFAULT:
            self.output.note(
                "the number is that of the model whose worst case is smallest; surefoot fit learns one that predicts "
                "better, and its worst case is larger."
            )

    def _when(self, seen: set[str]) -> str:
        if self.n_random < self.random_first:
            return f"after {self.random_first} random labels"
        return "when two classes are seen" if len(seen) < 2 else "while rows are unlabeled"

    def _greet(self) -> None:
        table = self.pool.table
        self._say(f"Labeling {table.label!r} in {table.path.name}; every answer is written at once.", "bold")
        if len(self.keep) < len(self.pool.rows):
            self.output.note(
                f"the certificate speaks of {len(self.keep)} rows, drawn at random; --pool-size 0 takes all."
            )

    def _end(self, why: str) -> int:
        reached = self.goal.reached(self.fit)
        labels = count(int(self.pool.labeled.sum()), "label")
        where = store_path(self.pool.table.path).name if self.stored else self.pool.table.path.name
        self._say(f"Done: {why}. {labels} in {where}, {self.answered} of them new.", "bold")
        path, label = shlex.quote(str(self.pool.table.path)), shlex.quote(self.pool.table.label)
        if self.stored:
            self._say(f"Next: surefoot export {path} --label {label} --in-place")
        elif not self.pool.labeled.all():  # else there is nothing to learn about
            self._say(f"Next: surefoot fit {path} --label {label}")
        data = {
            "path": str(self.pool.table.path),
            "ended": why,
            "answered": self.answered,
            "labeled": int(self.pool.labeled.sum()),
            "skipped": len(self.asked.skipped),
            "risk": self.risks[-1] if self.fit is not None else None,
            "risks": self.risks,
            "loss": self.goal.loss,
            "target_risk": self.goal.target,
            "reached": reached,
        }
        return self.output.finish(data, OK if self.goal.target is None or reached else NOT_REACHED)

    def _is_done(self, row: int) -> bool:
        return self.pool.labels[row] is not None or row in self.asked.skipped

    def _say(self, text: str, style: str = "") -> None:
        self.questions.say(text, style)

    def _working(self, what: str) -> Any:
        return self.output.working(what)


def check_labelable(table: Table) -> None:
    """Two classes must be known, to be asked for, and none may read as an empty cell."""
    if len(table.classes) < 2:
        shown = ", ".join(table.classes)
        seen = f"the labels in {table.label!r} show {shown} only" if shown else f"{table.label!r} is empty"
        raise TableError(f"the classes to choose from must be known; {seen}. Pass --classes yes,no, say.")
    empty = [name for name in table.classes if name in table.how.empty and not is_parquet(table.path)]
    if empty:
        raise TableError(
            f"no class may be called {empty[0]!r}: a cell that holds it is empty, and the answers would be lost. Pass "
            "another name in --classes."
        )
