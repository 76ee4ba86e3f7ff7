"""Label in a terminal until a proof: train on a table, audit in turns, and save the proved model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from surefoot._errors import FileError
from surefoot._validation import FloatArray
from surefoot.active.proof import ProvenLabeling
from surefoot.active.strategies import RandomSampling, RobustModelChange
from surefoot.bounds.engine import AuditPolicy
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.pool import database as e
from surefoot.pool.appraisal import losses_of
from surefoot.pool.database import LEARN, RANDOM, Event
from surefoot.pool.finishing import FinishGoal, Finishing, sample_size
from surefoot.pool.label_log import OPEN, LabelLog, check_known
from surefoot.pool.model import train
from surefoot.pool.model_file import ModelFile, save_model, without_pool
from surefoot.pool.next_rows import candidates, impact_of, working_rows
from surefoot.pool.notes import Note
from surefoot.pool.options import DEFAULT, NONE, ROBUST, WEAK, Clock, FitOptions
from surefoot.pool.schedule import AuditSchedule, Goal, freeze_events
from surefoot.pool.store import MOVED_AUDITS, FrozenBlobs, Log, Store
from surefoot.pool.store_labels import open_store, picked_mask, write_table
from surefoot.pool.stored import Classifier, GivenPredictions
from surefoot.pool.table import Pool, Table, TableError
from surefoot.pool.table.editing import label_writer
from surefoot.pool.training import Fit, LabeledTable, learn, says_little, unfitted
from surefoot.pool.worst import worst_case
from surefoot.problem.losses import LOG_LOSS, ZERO_ONE

# A terminal session on the store of a table: it reserves rows, stores labels, and writes the table when it ends.

TERMINAL = "(terminal)"
# Seconds after which a row that someone holds without labeling it may be shown again.
_LEASE = 600.0
# Number of sample rows to look at, to find a row that nobody holds.
_LOOK_AHEAD = 64


class Sitting:
    """The session of one terminal: its labels, and the changes of other processes.

    table : the table with the labels of the store. Its labels are updated in place.
    n_picks : number of rows shown to all annotators; news : whether other processes have changed labels.
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
        """Apply events that other processes have written."""
        new = self.store.events(self._last)
        check_known(new, self.book.classes)
        self.news |= self._apply(new)

    @property
    def n_waiting(self) -> int:
        """Number of labels that are not yet written into the table."""
        there = self.store.in_table()
        return sum(label not in (None, there.get(row)) for row, label in enumerate(self.table.labels))

    def claim(self, row: int, purpose: str) -> bool:
        """Reserve a row before showing it. Return False if another process was faster."""
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
        """Undo the label of a row and reserve the row for this terminal."""
        with self.store.together():
            self.catch_up()
            state, person = self.book.row(row), self.person.id
            settled = [] if state.settled is None else [Event(e.SETTLE, row, person)]
            again = Event(e.PICK, row, person, "again", state.purpose or e.LEARN)
            self._write(*settled, Event(e.UNDO, row, person), again)

    def is_free(self, row: int) -> bool:
        """Return True if a row is open and nobody else holds it."""
        if self.book.row(row).state != OPEN:
            return False
        holder = self.book.holders.get(row, self.person.id)
        return holder == self.person.id or time.time() - self.book.held[holder][row].time > _LEASE

    @property
    def done(self) -> list[int]:
        """Rows that this terminal has labeled or skipped, oldest first."""
        return self.book.done.get(self.person.id, [])

    def pending(self) -> int | None:
        """Return the row that this terminal showed last, if it is still open."""
        return self._last_pick if self._last_pick is not None and self.is_free(self._last_pick) else None

    def picked(self) -> NDArray[np.bool_]:
        """Return (N,) True for rows that a model picked."""
        return picked_mask(self.book, self.book.n_rows)

    def check_counted(self, labels: Mapping[int, Any]) -> None:
        """Raise an error if a label was changed after an audit had counted it."""
        for row, label in labels.items():
            if label is not None and self.table.labels[row] != label:
                raise TableError(
                    f"row {row + 1} was labeled {label!r} when an audit counted it, and is {self.table.labels[row]!r} "
                    "now: what was counted cannot be changed. Restore the label."
                )

    def write_table(self) -> int:
        """Write all labels of the store into the table. Return the number of changed cells."""
        self._dirty = False
        try:
            return write_table(self.store, self._found, self._content, self._read)
        except (FileError, TableError) as error:
            raise type(error)(
                f"{error} All answers are in {self.store.path.name}: surefoot export --in-place writes them later."
            ) from error

    def close(self) -> None:
        """Write the table unless this was done, and release the terminal's rows and name."""
        try:
            held = list(self.book.held.get(self.person.id, {}))  # released for other annotators
            self._apply(self.store.append([Event(e.UNDO, row, self.person.id) for row in held]))
            if self._dirty:
                self.write_table()
        finally:
            self.store.leave(self.person.name)

    def freeze(self, events: Sequence[Event], frozen: FrozenBlobs) -> None:
        """Store frozen predictions for an audit."""
        self._apply(self.store.append(events, frozen))

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
    """Open a session on a table. When it ends, even by an error, the labels are written into the table.

    content : bytes of the table's file; read : reads the table from these bytes.
    """
    label_writer(table, content)  # raises an error if writing is impossible, before the first row is shown
    with open_store(table, content, read) as store:
        sitting = Sitting(store, table, content, read)
        try:
            yield sitting
        finally:
            sitting.close()


# Label one row at a time until a certified risk is small enough: random rows first, then the most informative rows.


@dataclass
class LabelLoop:
    """Train on the labels of a session, and choose rows among at most `most` unlabeled rows (0 for all).

    loss, target : stop at this certified log loss or error rate; a target of None never stops.
    keep : rows in use; fit : the latest fit, or None; risks : the risks of all fits.
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
        """Number of classes among the labels."""
        return len({label for label in self.pool.labels if label is not None})

    @property
    def reached(self) -> bool:
        """Return True if the certified risk is at most the target."""
        return self.target is not None and self.fit is not None and self.risks[-1] <= self.target

    def refit(self) -> None:
        """Train on all labels and certify. There is no fit before there are enough random labels."""
        self.fit, self.sitting.news = None, False
        if self.n_random < self.random_first or self.n_seen < 2 or self.pool.labeled[self.keep].all():
            return
        start = LabeledTable.from_pool(self.pool.subset(self.keep), self.sitting.picked()[self.keep], nearest=True)
        if self.choices.classifier in (DEFAULT, ROBUST):
            self.fit = learn(start, self.choices, error=self.loss == ZERO_ONE)
        else:
            self.fit = _learn_other(start, self.choices, self.loss)
        self.risks.append(float(self.fit.certificate.risk if self.loss == LOG_LOSS else self.fit.error or 0.0))

    def choose(self) -> tuple[int, str | None] | None:
        """Reserve the next row. Return it with the reason, which is None for a random row.

        Return None if no row is left, or if other processes have new labels for the next fit.
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
        """Return the classifier that ranks rows. A nearly constant one is replaced by one with a smaller radius."""
        certificate = fit.certificate
        if fit.stated is not None or not says_little(certificate):
            return fit
        smaller = certificate.minimal_radius + (certificate.radius - certificate.minimal_radius) / 16
        return learn(fit.start, replace(self.choices, radius=smaller), error=False)


def _learn_other(start: LabeledTable, choices: FitOptions, loss: str) -> Fit:
    """Train the classifier of --classifier and certify it at a calibrated or given radius."""
    trained = train(start, choices, Clock())
    found = worst_case(start, choices, {loss: losses_of(trained.clf, start)[loss]})
    if isinstance(found, Note):
        raise TableError(f"--classifier {choices.chosen} cannot be certified: {found} Or omit --classifier.")
    error = found.risk(ZERO_ONE)
    return Fit(start, trained.clf, found.first, error, found.kind, trained.notes, trained.stated)


# Finish a table: labels for training, a sample that tests the predictions, and the remaining rows.


class FrozenPredictions(NamedTuple):
    """Predictions (N,), as class indices or -1, and scores (N,), larger is more certain."""

    predictions: NDArray[np.intp]
    scores: FloatArray
    model: bytes | None = None


def given_predictions(given: GivenPredictions, sitting: Sitting) -> FrozenPredictions:
    """Return the predictions in a column of a table. Annotators label rows without a prediction."""
    if given.scores is None:
        raise TableError(
            "--score must name a column that says how sure each prediction is; got none. Pass --score, since the "
            "surest predictions become labels."
        )
    codes = given.codes(sitting.table.classes)
    return FrozenPredictions(codes, np.where(codes < 0, -np.inf, given.scores))


def model_predictions(classifier: Classifier, sitting: Sitting) -> FrozenPredictions:
    """Return the predictions of a stored model, with the largest probabilities as scores."""
    if not classifier.has_proba:
        raise FileError(
            f"{classifier.path} must hold a classifier with probabilities to finish a table; it holds a "
            f"{classifier.name}. Store one with predict_proba."
        )
    table = sitting.table
    inputs = classifier.inputs(table.cells, table.label)
    codes = [table.classes.index(name) for name in classifier.predict(inputs)]
    return FrozenPredictions(np.array(codes, dtype=np.intp), classifier.proba(inputs).max(axis=1))


def learned_predictions(cleaned: Pool, choices: FitOptions, most: int, sitting: Sitting) -> FrozenPredictions:
    """Return the predictions of a model trained on all labels and `most` unlabeled rows (0 for all)."""
    pool = replace(cleaned, table=sitting.table, labels=sitting.table.labels)
    keep = working_rows(pool, most, choices.seed)
    start = LabeledTable.from_pool(pool.subset(keep), sitting.picked()[keep])
    clf = train(replace(start, nearest=False), choices, Clock()).clf
    place = {value: k for k, value in enumerate(start.classes.tolist())}
    codes = np.array([place[value] for value in np.asarray(clf.predict(pool.rows)).tolist()], dtype=np.intp)
    return FrozenPredictions(codes, np.asarray(clf.predict_proba(pool.rows)).max(axis=1))


class FinishLoop:
    """Choose the rows to label in order to finish the table of a session.

    goal : the goal of a new finish; predict : makes the predictions.
    n_learn : number of labels that `predict` requires.
    """

    def __init__(
        self,
        sitting: Sitting,
        goal: FinishGoal,
        predict: Callable[[Sitting], FrozenPredictions],
        n_learn: int,
        seed: int,
    ) -> None:
        self.sitting, self._new_goal, self._predict, self.n_learn, self._seed = sitting, goal, predict, n_learn, seed
        self._moved = sitting.store.about.get(MOVED_AUDITS, 0)
        self.turns = AuditSchedule(sitting.book, Goal(), 0, sitting.store.frozen)
        self.turns.n_audits = self._moved
        self._n_seen = 0
        self.follow()

    @property
    def finishing(self) -> Finishing | None:
        """Who labels which row, None until predictions are frozen."""
        return self.turns.finishing

    @property
    def goal(self) -> FinishGoal:
        """The goal with which finishing began, or the new goal."""
        return self._new_goal if self.finishing is None else self.finishing.goal

    @property
    def n_labels(self) -> int:
        return len(self.sitting.book.labels)

    @property
    def is_learning(self) -> bool:
        """Return True if the model needs more labels for training."""
        classes = len(set(self.sitting.book.labels.values()))
        few = self.n_labels < self.n_learn or classes < min(self.n_learn, 2)
        return self.finishing is None and few and self.n_labels < self.sitting.book.n_rows

    def follow(self) -> None:
        """Apply events that are new in the log."""
        events = self.sitting.book.events
        for event in events[self._n_seen :]:
            if event.kind not in (e.FREEZE, e.FINISH, e.COLUMN, e.CLOSE) or (event.audit or 0) > self._moved:
                self.turns.apply(event)
        self._n_seen = len(events)

    def choose(self) -> tuple[int, str] | None:
        """Reserve the next row. Return it with its purpose, or None if no row needs a label now."""
        while True:
            self.sitting.catch_up()
            self.follow()
            if self.finishing is None and not self.is_learning:
                if not self.sitting.book.n_unanswered:
                    return None
                self._freeze()
            rows, purpose = self._rows()
            row = next((row for row in rows if self.sitting.is_free(row)), None)
            if row is None:
                return None
            if self.sitting.claim(row, purpose):
                return row, purpose

    def _rows(self) -> tuple[list[int], str]:
        finishing, book = self.finishing, self.sitting.book
        if finishing is not None:
            # rows left by the plan are not random
            return finishing.rows(_LOOK_AHEAD), LEARN if finishing.is_sampled else e.AUDIT
        rng = np.random.default_rng([self._seed, self.sitting.n_picks])
        pending = self.sitting.pending()
        free = rng.permutation([row for row in range(book.n_rows) if self.sitting.is_free(row)]).tolist()
        return ([] if pending is None else [pending]) + free, RANDOM

    def _freeze(self) -> None:
        """Freeze predictions and begin to finish the table, unless another process was faster."""
        found, goal = self._predict(self.sitting), self._new_goal
        with self.sitting.store.together():
            self.sitting.catch_up()
            self.follow()
            if self.finishing is not None:
                return
            known = self.turns.known_rows()
            if goal.planned is None:
                n_rows, level = self.sitting.book.n_rows, float(goal.level or 0.9)
                goal = replace(goal, planned=sample_size(n_rows, len(known), goal.max_error, level), level=level)
            before = [] if self.turns.audit is None else [Event(e.CLOSE, audit=self.turns.n_audits, value=e.FINISH)]
            events, blobs = freeze_events(
                self.turns.n_audits + 1, self.sitting.book.classes, found.predictions, known, found.scores, found.model,
                goal,
            )  # fmt: skip
            self.sitting.freeze([*before, *events], blobs)
        self.follow()


class RandomFirst(RandomSampling):
    """Choose random rows until there are enough labels. Then every second row is random, as a test."""

    def __init__(self, random_first: int, seed: int) -> None:
        super().__init__(missing_label=None, random_state=seed)
        self.random_first, self.seed = random_first, seed

    def is_random(self, n_labels: int) -> bool:
        """Return True if the row after this number of labels is sampled at random."""
        return n_labels < self.random_first or n_labels % 2 == 0

    def query(self, X: Any, y: Any, **options: Any) -> Any:  # type: ignore[override]
        if self.is_random(sum(value is not None for value in np.asarray(y, dtype=object))):
            return super().query(X, y, **options)
        strategy = RobustModelChange(impact=impact_of, random_state=self.seed, missing_label=None)
        return strategy.query(X, y, **options)


def proven_labeling(
    pool: Pool, choices: FitOptions, log: Log, *, target_error: float, level: float, random_first: int
) -> ProvenLabeling:
    """Create the labeling loop of a pool, or resume it if the log is not empty."""
    prior = NONE if choices.prior == WEAK else choices.prior  # chosen labels say nothing about shares
    start = LabeledTable.from_pool(pool, np.zeros(len(pool.rows), dtype=bool))
    clf = unfitted(replace(choices, prior=prior), start, choices.tol, np.array(pool.classes))
    if choices.radius != DEFAULT and isinstance(clf, RobustLogisticRegression):
        clf.set_params(
            radius=choices.radius, metric="auto", label_prior="auto" if choices.prior == WEAK else clf.label_prior
        )
    return ProvenLabeling(
        clf,
        pool.rows,
        None if log.read() else pool.labels,
        target_error=target_error,
        level=level,
        policy=AuditPolicy(first=max(random_first, 2)),
        strategy=RandomFirst(random_first, choices.seed),
        classes=pool.classes,
        journal=log,
        random_state=choices.seed,
    )


def save_proved(path: Path, pool: Pool, labeling: ProvenLabeling) -> None:
    """Write the proved model with its proof."""
    model, proof = labeling.model, labeling.proof
    if model is None or proof is None:
        raise RuntimeError("only a model that is proved is written")
    # the labels were chosen, so the fit has no valid certificate; only the proof is stored
    summary = {
        "proved_error": proof.value,
        "level": proof.level,
        "labels": proof.n_labels,
        "errors": proof.n_errors,
        "statement": proof.statement,
    }
    steps = [*pool.cleaner.steps, ("classify", without_pool(model))]
    save_model(path, ModelFile(Pipeline(steps), pool.table.label, pool.classes, pool.columns.stored(), summary))
