"""Labels until a proof: the loop that learns from a table and audits by turns, and the model that it proves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from surefoot._errors import FileError
from surefoot.active.proof import ProvenLabeling
from surefoot.active.strategies import RandomSampling, RobustModelChange
from surefoot.bounds.engine import AuditPolicy, FreezeSchedule
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.pool import database as e
from surefoot.pool.database import LEARN, RANDOM, Event
from surefoot.pool.label_log import OPEN, LabelLog, check_known
from surefoot.pool.model import learned_metric
from surefoot.pool.model_file import ModelFile, save_model, without_pool
from surefoot.pool.next_rows import candidates, working_rows
from surefoot.pool.options import DEFAULT, NONE, WEAK, FitOptions
from surefoot.pool.store import Log, Store
from surefoot.pool.store_labels import open_store, picked_mask, write_table
from surefoot.pool.table import Pool, Table, TableError
from surefoot.pool.table.editing import label_writer
from surefoot.pool.training import Fit, LabeledTable, learn, says_little
from surefoot.problem.losses import LOG_LOSS, ZERO_ONE

# A terminal at the store of a table: it claims rows, stores answers, and writes the table when it ends.

TERMINAL = "(terminal)"
# Seconds after which a row that somebody was asked for, without an answer, may be asked for again.
_LEASE = 600.0


class Sitting:
    """What one terminal does to the labels of a table, and sees of what other processes do.

    table : with the labels of the store; they follow the answers, in place.
    n_picks : how many rows anybody has been asked for; news : whether other processes have changed labels.
    """

    def __init__(self, store: Store, table: Table, content: bytes, read: Callable[[bytes], Table]) -> None:
        self.store, self._content, self._read = store, content, read
        self._found = table
        self.table = replace(table, labels=np.full(len(table.labels), None, dtype=object))
        self.book = LabelLog(len(table.labels), table.classes)
        self.person = store.take_seat(TERMINAL)
        self.n_picks, self.news = 0, False
        self._dirty = True
        self._last_pick: int | None = None
        self._last = 0
        self.catch_up()

    def catch_up(self) -> None:
        """Take what other processes have written."""
        new = self.store.events(self._last)
        check_known(new, self.book.classes)
        self.news |= self._apply(new)

    @property
    def n_waiting(self) -> int:
        """How many labels the table lacks."""
        there = self.store.in_table()
        return sum(label not in (None, there.get(row)) for row, label in enumerate(self.table.labels))

    def claim(self, row: int, purpose: str) -> bool:
        """Record, before the question is put, that a row is asked for; False if another process was faster."""
        with self.store.together():
            self.catch_up()
            if not self.is_free(row):
                return False
            self._write(Event(e.PICK, row, self.person.id, purpose=purpose))
        return True

    def answer(self, row: int, label: str | None) -> None:
        """Store the label of a row; None for a skip."""
        with self.store.together():
            self.catch_up()
            why = self.book.row(row).purpose or e.LEARN
            self._write(Event(e.SKIP if label is None else e.LABEL, row, self.person.id, label, why))

    def take_back(self, row: int) -> None:
        """Open a row again, in the hands of this terminal."""
        with self.store.together():
            self.catch_up()
            state, person = self.book.row(row), self.person.id
            settled = [] if state.settled is None else [Event(e.SETTLE, row, person)]
            again = Event(e.PICK, row, person, "again", state.purpose or e.LEARN)
            self._write(*settled, Event(e.UNDO, row, person), again)

    def is_free(self, row: int) -> bool:
        """Whether a row is open, and in nobody else's hands."""
        if self.book.row(row).state != OPEN:
            return False
        holder = self.book.holders.get(row, self.person.id)
        return holder == self.person.id or time.time() - self.book.held[holder][row].time > _LEASE

    @property
    def done(self) -> list[int]:
        """Rows that this terminal has answered, oldest first."""
        return self.book.done.get(self.person.id, [])

    def pending(self) -> int | None:
        """The row that this terminal was asked for last, if it is still open: the question stands."""
        return self._last_pick if self._last_pick is not None and self.is_free(self._last_pick) else None

    def picked(self) -> NDArray[np.bool_]:
        """(N,) rows that a model picked."""
        return picked_mask(self.book, self.book.n_rows)

    def check_counted(self, labels: Mapping[int, Any]) -> None:
        """Refuse labels that were changed after an audit had counted them."""
        for row, label in labels.items():
            if label is not None and self.table.labels[row] != label:
                raise TableError(
                    f"row {row + 1} was labeled {label!r} when an audit counted it, and is {self.table.labels[row]!r} "
                    "now: what was counted cannot be changed. Restore the label."
                )

    def write_table(self) -> int:
        """Write all labels of the store into the table; how many cells changed."""
        self._dirty = False
        try:
            return write_table(self.store, self._found, self._content, self._read)
        except (FileError, TableError) as error:
            raise type(error)(
                f"{error} All answers are in {self.store.path.name}: surefoot export --in-place writes them later."
            ) from error

    def close(self) -> None:
        """Write the table where that was not done, and let another terminal take this one's place."""
        try:
            if self._dirty:
                self.write_table()
        finally:
            self.store.leave(self.person.name)

    def _write(self, *events: Event) -> None:
        self._dirty = True
        self._apply(self.store.append(events))

    def _apply(self, events: list[Event]) -> bool:
        changed = False
        for event in events:
            self._last = event.id
            self.book.apply(event)
            if event.row < 0:
                continue
            label = self.book.labels.get(event.row)
            changed |= self.table.labels[event.row] != label
            self.table.labels[event.row] = label
            if event.kind == e.PICK:
                self.n_picks += 1
                if event.person == self.person.id:
                    self._last_pick = event.row
        return changed


@contextmanager
def sitting_at(table: Table, content: bytes, read: Callable[[bytes], Table]) -> Iterator[Sitting]:
    """A sitting at a table, whose labels are written into the table however it ends.

    content : of the table's file; read : reads the table from it.
    """
    label_writer(table, content)  # a table that cannot be written to is refused before the first question
    with open_store(table, content, read) as store:
        sitting = Sitting(store, table, content, read)
        try:
            yield sitting
        finally:
            sitting.close()


# Labels one at a time until a certified risk is small enough: at random at first, then where they say most.


@dataclass
class LabelLoop:
    """Learns from the labels of a sitting and chooses rows among at most `most` unlabeled ones (0 for all).

    loss, target : when to stop, at a certified log loss or share of errors; None to go on.
    keep : rows that take part; fit : with all labels so far, None before there are enough; risks : of all fits.
    """

    pool: Pool
    choices: FitOptions
    sitting: Sitting
    loss: str
    target: float | None
    random_first: int
    most: int
    fit: Fit | None = None
    risks: list[float] = field(default_factory=list)
    keep: NDArray[np.intp] = field(init=False)

    def __post_init__(self) -> None:
        self.keep = working_rows(self.pool, self.most, self.choices.seed)

    @property
    def n_labels(self) -> int:
        return int(self.pool.labeled.sum())

    @property
    def n_random(self) -> int:
        return int((self.pool.labeled & ~self.sitting.picked()).sum())

    @property
    def n_seen(self) -> int:
        """Classes that labels show."""
        return len({label for label in self.pool.labels if label is not None})

    @property
    def reached(self) -> bool:
        """Whether the certified risk is at most the target."""
        return self.target is not None and self.fit is not None and self.risks[-1] <= self.target

    def refit(self) -> None:
        """Learn from all labels so far and certify; there is no fit before there are enough random ones."""
        self.fit, self.sitting.news = None, False
        if self.n_random < self.random_first or self.n_seen < 2 or self.pool.labeled[self.keep].all():
            return
        start = LabeledTable.from_pool(self.pool.subset(self.keep), self.sitting.picked()[self.keep], nearest=True)
        self.fit = learn(start, self.choices, error=self.loss == ZERO_ONE)
        self.risks.append(float(self.fit.certificate.risk if self.loss == LOG_LOSS else self.fit.error or 0.0))

    def choose(self) -> tuple[int, str | None] | None:
        """The next row, claimed from other processes, and why, None if it was drawn at random.

        There is none if no row is left, or if other processes have news for the next fit.
        """
        while True:
            self.sitting.catch_up()
            open_rows = self.keep[~self.pool.labeled[self.keep]]
            free = np.array([self.sitting.is_free(row) for row in open_rows.tolist()], dtype=bool)
            if self.sitting.news or not free.any():
                return None
            if self.fit is None or self.n_random < self.random_first:
                rng = np.random.default_rng([self.choices.seed, self.sitting.n_picks])
                row, reason, purpose = int(rng.choice(open_rows[free])), None, RANDOM
            else:
                ranked = candidates(self._chooser(self.fit), 1 + int((~free).sum()), self.choices.seed)
                best = next(one for one in ranked if free[one.position])
                row, reason, purpose = int(open_rows[best.position]), best.reason, LEARN
            if self.sitting.claim(row, purpose):
                return row, reason

    def _chooser(self, fit: Fit) -> Fit:
        """The classifier that chooses rows: a constant one has no opinion; one of a smaller radius takes its place."""
        certificate = fit.certificate
        if not says_little(certificate):
            return fit
        smaller = certificate.minimal_radius + (certificate.radius - certificate.minimal_radius) / 16
        return learn(fit.start, replace(self.choices, radius=smaller), error=False)


class RandomFirst(RandomSampling):
    """Rows at random until there are enough labels, then those whose label says most."""

    def __init__(self, random_first: int, seed: int) -> None:
        super().__init__(missing_label=None, random_state=seed)
        self.random_first, self.seed = random_first, seed

    def query(self, X: Any, y: Any, **options: Any) -> Any:  # type: ignore[override]
        labeled = sum(value is not None for value in np.asarray(y, dtype=object))
        if labeled < self.random_first:
            return super().query(X, y, **options)
        return RobustModelChange(random_state=self.seed, missing_label=None).query(X, y, **options)


def proven_labeling(
    pool: Pool, choices: FitOptions, log: Log, *, target_error: float, level: float, random_first: int
) -> ProvenLabeling:
    """The loop for a pool, resumed where its log is there."""
    own: dict[str, Any] = {"radius": choices.radius}
    if choices.radius == DEFAULT:
        own = {"metric": learned_metric(pool)}
    if choices.prior != WEAK:
        own["label_prior"] = None if choices.prior == NONE else np.array(choices.prior)
    clf = RobustLogisticRegression(tol=choices.tol, classes=pool.classes, n_jobs=choices.n_jobs, **own)
    return ProvenLabeling(
        clf,
        pool.rows,
        None if log.read() else pool.labels,
        target_error=target_error,
        level=level,
        policy=AuditPolicy(FreezeSchedule(max(random_first, 2))),
        strategy=RandomFirst(random_first, choices.seed),
        classes=pool.classes,
        journal=log,
        random_state=choices.seed,
    )


def save_proved(path: Path, pool: Pool, labeling: ProvenLabeling) -> None:
    """Write the model that is proved, with what is proved of it."""
    model, proof = labeling.model, labeling.proof
    if model is None or proof is None:
        raise RuntimeError("only a model that is proved is written")
    # the labels were chosen, so that the certificate of the fit guarantees nothing: what is proved is all
    summary = {
        "proved_error": proof.value,
        "level": proof.level,
        "labels": proof.n_labels,
        "errors": proof.n_errors,
        "statement": proof.statement,
    }
    steps = [*pool.cleaner.steps, ("classify", without_pool(model))]
    save_model(path, ModelFile(Pipeline(steps), pool.table.label, pool.classes, pool.columns.stored(), summary))
