"""Options of commands. The store of a table remembers them for later commands."""

from __future__ import annotations

import csv
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from surefoot._errors import FileError
from surefoot._printing import in_words
from surefoot.pool.store import Store, store_path
from surefoot.pool.table.cells import TableError

# The time limit of a fit, the time used, and the time left.


class TimeIsUpError(Exception):
    """The time limit has passed."""


@dataclass
class Clock:
    """A time budget in seconds, or None, and the progress line.

    say : shows a text about the current work; one line in a terminal.
    """

    budget: float | None = None
    say: Callable[[str], None] = lambda _text: None
    began: float = field(default_factory=time.monotonic)

    @property
    def passed(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        """Seconds left; infinite without a budget."""
        return float("inf") if self.budget is None else self.budget - self.passed

    def check(self) -> None:
        """Raise an error if the time limit has passed."""
        if self.left <= 0:
            raise TimeIsUpError

    @contextmanager
    def stage(self, what: str, seconds: float | None = None) -> Iterator[None]:
        """Show the progress of one stage. Check the clock at its start and in each round of training.

        seconds : expected duration, None if unknown.
        """
        from surefoot._validation import watch_rounds  # imports scikit-learn, which takes seconds

        began = time.monotonic()

        def tick() -> None:
            self.check()
            self.say(f"{what}{self._left(began, seconds)}")

        tick()
        with watch_rounds(tick):
            yield

    def counted(self, what: str, n: int) -> Callable[[], None]:
        """Return a function to call before each of n equal pieces of work. It shows the piece and the time left.

        Any thread may call it.
        """
        began, done, lock = time.monotonic(), 0, Lock()

        def tick() -> None:
            nonlocal done
            self.check()
            with lock:
                rest = (n - done) * (time.monotonic() - began) / done if done else None
                done += 1
                left = "" if rest is None else f", about {in_words(rest)} left"
                self.say(f"{what} {min(done, n)} of {n}{left}")

        return tick

    def _left(self, began: float, seconds: float | None) -> str:
        if seconds is None or seconds < 2:
            return ""
        rest = seconds - (time.monotonic() - began)
        return f", about {in_words(rest)} left" if rest > 1 else ", nearly done"


# Options of a fit as plain values, so that errors are reported before anything is loaded.

DEFAULT, CALIBRATED, AUTO, NUMBER = "default", "calibrated", "auto", "number"
WEAK, NONE = "weak", "none"
LOSSES = {"log_loss": "log_loss", "zero_one": "zero_one", "log": "log_loss", "error": "zero_one"}


# Names of classifiers. Any other classifier is MODULE:OBJECT, which is imported.
ROBUST, MINIMAX, LOGISTIC, FOREST, BOOSTING, BLEND, BEST = (
    "robust", "minimax", "logistic", "forest", "boosting", "blend", "auto",
)  # fmt: skip
CLASSIFIERS = (ROBUST, MINIMAX, LOGISTIC, FOREST, BOOSTING, BLEND, BEST)


@dataclass(frozen=True)
class FitOptions:
    """Options of a fit.

    radius : "default", "calibrated", "auto" or a number; prior : "weak", "none" or probabilities (K,).
    classifier : "default", one of CLASSIFIERS, or module:object.
    learn_rows : unlabeled rows to train on, 0 for all, None for a number that depends on the table's size.
    max_error : largest acceptable error rate.
    """

    radius: str | float = DEFAULT
    prior: str | tuple[float, ...] = WEAK
    seed: int = 0
    n_jobs: int | None = None
    tol: float = 1e-4
    learn_rows: int | None = None
    max_error: float | None = None
    classifier: str = DEFAULT

    @property
    def chosen(self) -> str:
        """The classifier to train."""
        return ROBUST if self.classifier == DEFAULT else self.classifier


def split_names(text: str) -> list[str]:
    """Split names at commas. A name with a comma must be in quotes."""
    try:
        split = next(csv.reader([text], skipinitialspace=True), [])
    except csv.Error:  # a line end
        split = text.split(",")
    return [name.strip() for name in split if name.strip()]


def read_radius(text: str) -> str | float:
    """Parse the radius option."""
    if text in (DEFAULT, CALIBRATED, AUTO):
        return text
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise TableError(f"--radius must be 'calibrated', 'auto' or a number at least 0; got {text!r}. Pass one.")
    return value


def read_prior(text: str) -> str | tuple[float, ...]:
    """Parse the prior option."""
    if text in (WEAK, NONE):
        return text
    try:
        shares = tuple(float(part) for part in split_names(text))
    except ValueError as error:
        raise TableError(
            f"--prior must be 'weak', 'none' or one probability per class, such as 0.3,0.7; got {text!r}. Pass one."
        ) from error
    if any(not 0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > 1e-6:
        raise TableError(
            f"the probabilities in --prior must lie in [0, 1] and sum to 1; got {text}, which sum to {sum(shares):g}. "
            "Pass such ones."
        )
    return shares


def read_classifier(text: str) -> str:
    """Parse the classifier option: a name, or module:object."""
    module, colon, name = text.partition(":")
    named = all(part.isidentifier() for part in [*module.split("."), *name.split(".")])
    if text not in (DEFAULT, *CLASSIFIERS) and not (colon and named):
        raise TableError(
            f"--classifier must be {', '.join(map(repr, CLASSIFIERS))}, or MODULE:OBJECT; got {text!r}. Pass one."
        )
    return text


def read_loss(text: str) -> str:
    """Parse the loss option. The names match --json; 'log' and 'error' are short forms."""
    if text not in LOSSES:
        raise TableError(f"--loss must be 'log_loss' or 'zero_one' (error rate); got {text!r}. Pass one of these.")
    return LOSSES[text]


# Options about the file, about its columns, and about one label column.
OF_FILE = ("delimiter", "encoding", "missing")
OF_COLUMNS = ("drop", "categories", "text", "strict")
OF_LABEL = ("classes", "prior", "radius", "classifier")
LABEL, CLASSIFIER = "label", "classifier"
KEPT = (*OF_FILE, LABEL, *OF_COLUMNS, *OF_LABEL)


@dataclass(frozen=True)
class KeptOptions:
    """The options of a command: given options first, then options kept from earlier commands.

    values : all options in KEPT that the command has; given : typed now; kept : from earlier commands.
    before : all options in the store.
    """

    path: Path
    values: dict[str, Any]
    given: dict[str, Any]
    kept: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)

    @property
    def note(self) -> str | None:
        """A note about the kept options, None if there are none."""
        return f"kept from {self.path.name}: {as_options(self.kept)} (--forget drops them)." if self.kept else None

    def keep(self) -> str | None:
        """Store the options for later commands. Return a note if that fails."""
        now = {**self.kept, **self.given}
        if now == self.before:
            return None
        try:
            with Store(self.path, {}) as store:
                store.keep_options(now)
        except FileError as error:
            return f"the options could not be kept for later commands: {error}"
        return None


def settle(table: Path, values: Mapping[str, Any], given: set[str], *, forget: bool = False) -> KeptOptions:
    """Fill in missing options from those kept for a table.

    With a different label column, only the options about the file format apply.
    """
    path = store_path(table)
    before = read_options(path)
    usable = {} if forget else dict(before)
    if LABEL in given and LABEL in usable and values[LABEL] != usable[LABEL]:
        usable = {name: value for name, value in usable.items() if name in OF_FILE}
    kept = {name: value for name, value in usable.items() if name in values and name not in given}
    typed = {name: values[name] for name in KEPT if name in given and not _imports(name, values[name])}
    others = {name: value for name, value in usable.items() if name not in values}
    return KeptOptions(path, {**values, **kept}, {**others, **typed}, kept, before)


def _imports(name: str, value: Any) -> bool:
    """Return True if an option names a module to import. The user must type it each time."""
    return name == CLASSIFIER and value not in CLASSIFIERS


def read_options(path: Path) -> dict[str, Any]:
    """Return the options in a store, empty if there is no store."""
    if not path.exists():
        return {}
    with Store(path) as store:
        found = store.options()
    for name, value in found.items():
        # a store may come from elsewhere, so it must not name a module to import
        if name not in KEPT or _imports(name, value) or not isinstance(value, bool if name == "strict" else str):
            raise FileError(
                f"{path} must hold options of surefoot; {name!r} is {value!r}. Restore it, or move it away."
            )
    return {name: found[name] for name in KEPT if name in found}


def as_options(values: Mapping[str, Any]) -> str:
    """Format options as on the command line."""
    return " ".join(
        f"--{name}" if value is True else f"--{name} {shlex.quote(str(value))}"
        for name, value in values.items()
        if value is not False
    )
