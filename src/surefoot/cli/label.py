"""`surefoot label`: ask for one label at a time, store each at once, and stop when the certificate says so."""

from __future__ import annotations

import shlex

from surefoot._errors import InfeasibleRadiusError
from surefoot._printing import count, rounded_up, share_at_most
from surefoot.cli.asking import COMMANDS, SKIP, UNDO, Asking
from surefoot.cli.output import NOT_REACHED, OK, Output
from surefoot.losses import LOG_LOSS
from surefoot.pool.choices import AUTO, DEFAULT
from surefoot.pool.labeling.label_loop import LabelLoop
from surefoot.pool.learn_pool import Fit
from surefoot.pool.table import Table, TableError
from surefoot.pool.table.reading import is_parquet


class LabelAsking(Asking):
    """One sitting at the store of a table, which learns from the labels and asks for more."""

    commands = COMMANDS

    def __init__(self, output: Output, learning: LabelLoop) -> None:
        super().__init__(output, learning.sitting, learning.pool.classes)
        self.learning = learning
        self.standing = self.sitting.pending()  # a question that is to be put again

    def _begin(self) -> None:
        self.say(f"Labeling {self.table.label!r} in {self.table.path.name}; every answer is stored at once.", "bold")
        kept = len(self.learning.keep)
        if kept < len(self.learning.pool.rows):
            self.output.note(f"the certificate speaks of {kept} rows, drawn at random; --pool-size 0 takes all.")
        self._say_state()

    def _next(self) -> tuple[int, str] | None:
        row, self.standing = self.standing, None
        if self.learning.reached:
            return None
        if row is not None:
            return row, ""
        with self.output.working("choosing a row"):
            chosen = self.learning.choose()
        if chosen is None:
            if not self.sitting.news:
                return None
            self._say_state()
            return self._next()
        row, reason = chosen
        first = self.learning.random_first
        return row, reason or f"drawn at random, {min(self.learning.n_random + 1, first)} of {first}"

    def _take(self, row: int, answer: str) -> None:
        if answer == UNDO:
            self._undo(row)
        elif answer == SKIP:
            self.sitting.answer(row, None)
            self.say(f"Row {row + 1} is skipped and not asked for again.")
        else:
            self.sitting.answer(row, answer.removeprefix("="))
            self.answered += 1
            self._say_state()

    def _undo(self, row: int) -> None:
        if not self.sitting.done:
            self.say("There is nothing to undo.")
            self.standing = row
            return
        self.standing = last = self.sitting.done[-1]
        labeled = self.table.labels[last] is not None
        self.sitting.take_back(last)
        if labeled:
            self.answered -= 1
            self._say_state()
        self.say(f"Row {last + 1} is open again.")

    def _say_state(self) -> None:
        loop = self.learning
        labels = count(loop.n_labels, "label")
        try:
            with self.output.working("certifying"):
                loop.refit()
        except InfeasibleRadiusError as error:
            self.say(f"No certificate: --radius {error.radius:g} is below the minimal {error.minimal_radius:.4f}.")
            return
        if loop.fit is None:
            self.say(f"{labels}. The certificate comes {self._when()}.")
            return
        before = ""
        if len(loop.risks) > 1 and loop.loss == LOG_LOSS:
            before = f", {rounded_up(loop.risks[-2], 4)} before"
        target = "" if loop.target is None else f"; target {loop.target:g}"
        self.say(f"{labels}, {self._risk(loop.fit)}{before}{target}.", "bold")
        if len(loop.risks) == 1 and loop.choices.radius == DEFAULT:
            self.output.note(
                "the number is that of the model whose worst case is smallest; surefoot fit learns one that predicts "
                "better, and its worst case is larger."
            )

    def _when(self) -> str:
        if self.learning.n_random < self.learning.random_first:
            return f"after {self.learning.random_first} random labels"
        return "when two classes are seen" if self.learning.n_seen < 2 else "while rows are unlabeled"

    def _risk(self, fit: Fit) -> str:
        """The risk, certified only where the radius is calibrated or given."""
        risk = self.learning.risks[-1]
        shown = f"log loss {rounded_up(risk, 4)}"
        if self.learning.loss != LOG_LOSS:
            shown = f"errors {share_at_most(risk)}%"
        return f"certified {shown}" if fit.radius_kind != AUTO else f"worst-case {shown} (not a promise)"

    def _end(self) -> int:
        loop, path = self.learning, self.table.path
        ended = "quit" if self.quit else "target reached" if loop.reached else "no row left"
        if self.sitting.book.conflicts:
            rows = count(len(self.sitting.book.conflicts), "row")
            self.output.note(f"{rows} with different answers: surefoot serve shows them to be settled.")
        labels = count(loop.n_labels, "label")
        self.say(f"Done: {ended}. {labels} in {path.name}, {self.answered} of them new.", "bold")
        if not loop.pool.labeled.all():  # else there is nothing to learn about
            self.say(f"Next: surefoot fit {shlex.quote(str(path))} --label {shlex.quote(self.table.label)}")
        data = {
            "path": str(path),
            "ended": ended,
            "answered": self.answered,
            "labeled": loop.n_labels,
            "skipped": len(self.sitting.book.skipped),
            "risk": None if loop.fit is None else loop.risks[-1],
            "risks": loop.risks,
            "loss": loop.loss,
            "target_risk": loop.target,
            "reached": loop.reached,
        }
        return self.output.finish(data, OK if loop.target is None or loop.reached else NOT_REACHED)


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
