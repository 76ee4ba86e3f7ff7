"""Words and JSON of the command line: messages that name its options, and what is printed of a model."""

from __future__ import annotations

import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from surefoot._errors import CodedWarning, InfeasibleRadiusError, ParameterError
from surefoot._printing import count, rounded_down, rounded_up, share_at_least, share_at_most, visible
from surefoot.pool.notes import one_per_kind
from surefoot.pool.options import AUTO, CALIBRATED

if TYPE_CHECKING:
    from surefoot.pool.appraisal import Appraisal
    from surefoot.pool.notes import ClassResult
    from surefoot.pool.table import Pool
    from surefoot.pool.worst import PoolWorstCase

# Errors and warnings of the library as sentences of the command line, which name its options.

# Parameters of the library, and what the user of a command knows them as.
OPTIONS = {
    "X_unlabeled": "the rows without a label",
    "classes": "--classes",
    "datasets": "--datasets",
    "device": "--device",
    "invite": "--invite",
    "label_prior": "--prior",
    "level": "--level",
    "loss": "--loss",
    "journal": "name as --audit",
    "max_error": "--max-error",
    "n_jobs": "--jobs",
    "n_labels": "--labels",
    "name": "the study",
    "out": "--out",
    "positive": "--positive",
    "predictions": "the predictions",
    "sampling": "--sampling",
    "scores": "--score",
    "radius": "--radius",
    "random_state": "--seed",
    "seed": "--seed",
    "target_error": "--target-error",
    "trials": "--trials",
}
# What to do where the library's advice is about parameters that no option sets, by the code of a warning.
_FIXES = {
    "gap": "Raise --radius.",
    "low_confidence": "Label more rows.",
    "repeated_rows": "",
    "separable": "Raise --radius for a finite optimum.",
}


def sentence(problem: BaseException | str) -> str:
    """Say what an error or a warning says, with options in place of parameters."""
    if isinstance(problem, InfeasibleRadiusError):
        least = rounded_up(problem.minimal_radius, 4)  # what is named can be passed
        return (
            f"--radius must be at least the minimal radius {least}, or no distribution has the label probabilities of "
            f"--prior; got {problem.radius:g}. Pass --radius {least} or more."
        )
    if isinstance(problem, ParameterError):
        return problem.message(OPTIONS)
    if isinstance(problem, CodedWarning):
        return problem.message(OPTIONS, _FIXES.get(problem.code))
    return str(problem)


# What a command says: words for a person, or one JSON object for a program; progress and notes on standard error.

_UNSEEN_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
OK, FAILED, MISTAKE, NOT_REACHED, INTERRUPTED = 0, 1, 2, 3, 130


@dataclass
class Output:
    """Where a command's words go. With `json` nothing but one object reaches standard output."""

    command: str
    json: bool
    notes: list[str] = field(default_factory=list)
    out: Console = field(default_factory=lambda: Console(highlight=False, emoji=False, markup=False))
    err: Console = field(default_factory=lambda: Console(stderr=True, highlight=False, emoji=False, markup=False))

    def say(self, text: str = "", style: str | None = None) -> None:
        """A paragraph for a person."""
        if not self.json:
            self.out.print(Text(visible(text, lines=True), style=style or ""))

    def rows(self, pairs: list[tuple[str, str]]) -> None:
        """Aligned names and texts."""
        if not self.json:
            grid = RichTable.grid(padding=(0, 2))
            grid.add_column(style="bold", no_wrap=True)
            grid.add_column(overflow="fold")
            for name, text in pairs:
                grid.add_row(Text(visible(name)), Text(visible(text)))
            self.out.print(Padding(grid, (0, 0, 0, 2), expand=False))

    def table(self, heads: list[str], rows: list[list[str]], right: tuple[int, ...] = ()) -> None:
        """A table with a head."""
        if not self.json:
            grid = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
            for at, head in enumerate(heads):
                grid.add_column(Text(visible(head)), justify="right" if at in right else "left", overflow="fold")
            for row in rows:
                grid.add_row(*[Text(visible(cell)) for cell in row])
            self.out.print(Padding(grid, (0, 0, 0, 2), expand=False))

    def note(self, *texts: str) -> None:
        """Things to know, each once: on standard error, and in the object under "notes"."""
        for text in texts:
            if text not in self.notes:
                self.notes.append(text)
                if not self.json:
                    self.err.print(Text("note: ", style="yellow") + Text(visible(text, lines=True)))

    def announce(self, text: str) -> None:
        """Say on standard error, before long work begins, what concerns this run and not its result."""
        if not self.json:
            self.err.print(Text(visible(text, lines=True)))

    def finish(self, data: dict[str, Any], code: int = OK) -> int:
        """Print the object, if one was asked for, and give the exit code."""
        if self.json:
            whole = {"command": self.command, "exit_code": code, **data, "notes": self.notes}
            text = json.dumps(plain(whole), ensure_ascii=False, allow_nan=False)
            # what is left of control characters stands in texts, where JSON reads the same written out
            sys.stdout.write(_UNSEEN_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
        return code

    def fail(self, message: str, code: int) -> int:
        """Say what went wrong."""
        if self.json:
            return self.finish({"error": message}, code)
        self.err.print(Text("error: ", style="bold red") + Text(visible(message, lines=True)))
        return code

    @contextmanager
    def working(self, what: str) -> Iterator[Callable[[str], None]]:
        """A line on standard error while long work is done, where that is a terminal; takes what is done now."""
        with self.err.status(Text(what), spinner="line") as status, self.warnings():
            yield lambda text: status.update(Text(text))

    @contextmanager
    def warnings(self) -> Iterator[None]:
        """Turn warnings of the library into notes."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for warning in caught:
            if issubclass(warning.category, UserWarning):
                self.note(sentence(warning.message))


def plain(value: Any) -> Any:
    """Numbers, texts, lists and dictionaries: numpy's types and infinities do not fit into JSON."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def rounded_percent(share: float) -> str:
    """A share from 0 to 1, as a person writes it."""
    digits = 0 if share in (0.0, 1.0) else 1
    return f"{100 * share:.{digits}f}%"


def whole_percent(share: float | None) -> str:
    """A share without decimals; "none" where there is nothing to count."""
    return "none" if share is None else f"{100 * share:.0f}%"


_KINDS = {
    "theorem": "a theorem under its assumptions",
    "measured": "coverage was measured on datasets, not proved",
    "conditional": "holds where the radius does",
}
NO_GUARANTEE = "no guarantee: the true distribution may lie outside this set"


def say_pool(output: Output, pool: Pool) -> None:
    """What was read."""
    shown = ", ".join(f"{name}: {(pool.labels == name).sum()}" for name in pool.classes)
    labeled = int(pool.labeled.sum())
    output.say(f"{pool.table.path.name}: {count(len(pool.rows), 'row')}", "bold")
    pairs = [
        ("labeled", f"{labeled} ({shown})"),
        ("unlabeled", str(len(pool.rows) - labeled)),
        ("columns", f"{pool.columns.counts}; {count(pool.rows.shape[1], 'feature')} in all"),
    ]
    if pool.columns.asked_out:
        pairs.append(("left out", f"{', '.join(pool.columns.asked_out)}, as asked"))
    output.rows(pairs)
    output.note(*one_per_kind(pool.notes))


def pool_data(pool: Pool) -> dict[str, Any]:
    """The same for a program."""
    return {
        "rows": len(pool.rows),
        "labeled": int(pool.labeled.sum()),
        "label": pool.table.label,
        "classes": {name: int((pool.labels == name).sum()) for name in pool.classes},
        "columns": {**pool.columns.stored(), "left_out": pool.columns.left_out},
        "features": pool.rows.shape[1],
    }


def say_judged(output: Output, judged: Appraisal, classes: list[str]) -> None:
    """What can be said of a model, most useful first, each with its kind."""
    output.say("What you can say about this model", "bold")
    pairs = []
    bound = judged.crossfit
    if bound is not None and judged.accuracy is not None:
        in_groups = "" if bound.n_groups is None else f" in {bound.n_groups} groups"
        pairs.append(
            (
                "errors",
                f"at most {share_at_most(bound.value)}% on rows like the labeled ones, with {100 * bound.level:g}% "
                f"confidence (cross-fitted from {bound.n_labels} random labels{in_groups}, {bound.n_errors} wrong; "
                f"{_KINDS[bound.kind]})",
            )
        )
        pairs.append(("accuracy", f"about {100 * judged.accuracy:.0f}% expected, by cross-validation of the labels"))
    if judged.shares and judged.classes:
        pairs.append(("by class", by_class_words(judged.classes)))
    if judged.shares:
        answered = ", ".join(f"{name}: {100 * share:.1f}%" for name, share in judged.shares.items())
        pairs.append(("answers", f"{answered} of the unlabeled rows"))
    if judged.no_crossfit is not None:
        pairs.append(("errors", judged.no_crossfit))
    if judged.no_worst is not None:
        pairs.append(("worst case", judged.no_worst))
    if judged.shares:
        pairs.append(("verdict", judged.verdict))
    output.rows(pairs)
    output.note(*judged.notes)
    if judged.worst is not None:
        say_worst(output, judged.worst, classes)


# Classes whose recall and precision are printed: those with the lowest recall.
_MOST_CLASSES = 4


def by_class_words(results: Sequence[ClassResult]) -> str:
    """Recall and precision of each class, or of those with the lowest recall."""
    shown = [one for one in results if one.recall is not None]
    if len(shown) > _MOST_CLASSES:
        shown = sorted(shown, key=lambda one: one.recall or 0.0)[:_MOST_CLASSES]
    texts = [
        f"{one.name}: recall {whole_percent(one.recall)} of {one.n_labels}, precision {whole_percent(one.precision)}"
        for one in shown
    ]
    more = f"; {len(results) - len(shown)} more in the report" if len(shown) < len(results) else ""
    return "; ".join(texts) + more


def say_worst(output: Output, worst: PoolWorstCase, classes: list[str]) -> None:
    """The worst case over a set; under the name of a certificate only where the radius is calibrated or given."""
    from surefoot.problem.losses import LOG_LOSS, ZERO_ONE

    certificate = worst.first
    if worst.guaranteed:
        output.say("Certificate: the worst case over a set of possible truths", "bold")
    else:
        output.say(f"Worst case within radius {certificate.radius:.4f} ({NO_GUARANTEE})", "bold")
    pairs = []
    error, log_loss = worst.certificates.get(ZERO_ONE), worst.certificates.get(LOG_LOSS)
    if error is not None:
        pairs.append(
            (
                "errors",
                f"at most {share_at_most(error.risk)}% of the rows in this file"
                f"{_forced(worst, share_at_least(error.lower) + '%')}; always {worst.constant!r}: at most "
                f"{share_at_most(worst.constant_error)}% over the same set",
            )
        )
    if log_loss is not None:
        lower = _forced(worst, rounded_down(log_loss.lower, 4))
        pairs.append(("log loss", f"at most {rounded_up(log_loss.risk, 4)}{lower}"))
    output.rows([*pairs, ("radius", radius_words(worst))])
    output.say("It holds if" if worst.guaranteed else "It would hold if", "bold")
    output.rows(assumptions(worst, classes))
    if worst.guaranteed and error is not None and error.risk >= worst.constant_error:
        output.note(
            "the certificate says no more of this model than of a constant answer: with so few labels the set is wide. "
            "More labels, or known class probabilities (--prior), narrow it."
        )
    if any(one.status == "stopped" for one in worst.certificates.values()):
        output.note("the solver stopped before the gap was within the tolerance; both bounds hold all the same.")


def _forced(worst: PoolWorstCase, lower: str) -> str:
    return "" if worst.sample is not None else f" (some truth in the set forces {lower})"


def radius_words(worst: PoolWorstCase) -> str:
    """Where the radius comes from, and which set it makes."""
    certificate = worst.first
    estimate, least = certificate.estimate, certificate.minimal_radius
    if worst.kind == CALIBRATED and estimate is not None:
        how = (
            f"estimated from {estimate.n_labeled} random labels to cover the truth in {100 * estimate.level:g}% of "
            "samples (measured, not proved)"
        )
        if worst.tied:
            return (
                f"tied to the label shares: {estimate.excess:.4f} beyond what the features and each change of the "
                f"shares need ({least:.4f} at the least); {how}"
            )
        return f"{certificate.radius:.4f} (minimal {least:.4f}); {how}"
    if worst.kind == AUTO:
        return f"{certificate.radius:.4f} (minimal {least:.4f}), by the rule of thumb 'auto'"
    return f"{certificate.radius:.4f} (minimal {least:.4f}), as given"


def assumptions(worst: PoolWorstCase, classes: list[str]) -> list[tuple[str, str]]:
    """The assumptions behind a worst case, with their numbers."""
    shares = ", ".join(
        f"{name}: {100 * low:.1f}%" if low == high else f"{name}: {share_at_least(low)}% to {share_at_most(high)}%"
        for name, (low, high) in zip(classes, worst.first.label_intervals, strict=True)
    )
    return [
        ("1.", "the truth lies within the radius of the labeled rows,"),
        ("2.", f"the classes' shares of all rows are {shares},"),
        ("3.", "no other classes exist (--classes adds one that no label shows),"),
        ("4.", "and it is asked of the rows in this file, not of others yet to come."),
    ]
