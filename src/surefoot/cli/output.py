"""Text and JSON of the command line: messages that name its options, and summaries of a table and a model."""

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
from surefoot._printing import at_least, at_most, count, percent, rounded_down, rounded_up, visible
from surefoot.pool.notes import one_per_kind
from surefoot.pool.options import AUTO, CALIBRATED

if TYPE_CHECKING:
    from surefoot.certificates.certificate import Certificate
    from surefoot.pool.appraisal import Appraisal
    from surefoot.pool.notes import ClassResult
    from surefoot.pool.table import Pool
    from surefoot.pool.worst import PoolWorstCase

# Errors and warnings of the library, rewritten to name the options of the command line.

# Parameters of the library, and their names on the command line.
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
# Advice that replaces the library's advice if that names parameters without an option, by the code of a warning.
_FIXES = {
    "gap": "Raise --radius.",
    "low_confidence": "Label more rows.",
    "repeated_rows": "",
    "separable": "Raise --radius for a finite optimum.",
}


def sentence(problem: BaseException | str) -> str:
    """Return the text of an error or a warning, with options in place of parameters."""
    if isinstance(problem, InfeasibleRadiusError):
        least = rounded_up(problem.minimal_radius, 4)  # a valid value for the option
        return (
            f"--radius must be at least the minimal radius {least}, got {problem.radius:g}. Increase --radius, or "
            "widen --prior."
        )
    if isinstance(problem, ParameterError):
        return problem.message(OPTIONS)
    if isinstance(problem, CodedWarning):
        return problem.message(OPTIONS, _FIXES.get(problem.code))
    return str(problem)


# Output of a command: text, or one JSON object with --json. Progress and notes go to standard error.

_UNSEEN_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
OK, FAILED, MISTAKE, NOT_REACHED, INTERRUPTED = 0, 1, 2, 3, 130


@dataclass
class Output:
    """Output of a command. With `json`, only one object goes to standard output.

    brief : collect notes without printing them, except those marked `always`.
    """

    command: str
    json: bool
    brief: bool = False
    notes: list[str] = field(default_factory=list)
    out: Console = field(default_factory=lambda: Console(highlight=False, emoji=False, markup=False))
    err: Console = field(default_factory=lambda: Console(stderr=True, highlight=False, emoji=False, markup=False))

    def say(self, text: str = "", style: str | None = None, *, wrap: bool = True) -> None:
        """Print a paragraph; without `wrap` its lines are left as they are."""
        if not self.json:
            self.out.print(Text(visible(text, lines=True), style=style or ""), soft_wrap=not wrap)

    def rows(self, pairs: list[tuple[str, str]], width: int = 0) -> None:
        """Print aligned names and texts; the names take at least `width` characters."""
        if not self.json:
            grid = RichTable.grid(padding=(0, 2))
            grid.add_column(style="bold", no_wrap=True, min_width=width)
            grid.add_column(overflow="fold")
            for name, text in pairs:
                grid.add_row(Text(visible(name)), Text(visible(text)))
            self.out.print(Padding(grid, (0, 0, 0, 2), expand=False))

    def table(self, heads: list[str], rows: list[list[str]], right: tuple[int, ...] = ()) -> None:
        """Print a table with column names."""
        if not self.json:
            grid = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
            for at, head in enumerate(heads):
                grid.add_column(Text(visible(head)), justify="right" if at in right else "left", overflow="fold")
            for row in rows:
                grid.add_row(*[Text(visible(cell)) for cell in row])
            self.out.print(Padding(grid, (0, 0, 0, 2), expand=False))

    def note(self, *texts: str, always: bool = False) -> None:
        """Print notes on standard error, each once, and list them under "notes" in JSON."""
        for text in texts:
            if text not in self.notes:
                self.notes.append(text)
                if not self.json and (always or not self.brief):
                    self.err.print(Text("note: ", style="yellow") + Text(visible(text, lines=True)))

    def announce(self, text: str) -> None:
        """Say on standard error, before long work begins, what concerns this run and not its result."""
        if not self.json:
            self.err.print(Text(visible(text, lines=True)))

    def finish(self, data: dict[str, Any], code: int = OK) -> int:
        """Print the object with --json, and return the exit code."""
        if self.json:
            whole = {"command": self.command, "exit_code": code, **data, "notes": self.notes}
            text = json.dumps(plain(whole), ensure_ascii=False, allow_nan=False)
            # the remaining control characters are inside strings, where JSON allows escapes
            sys.stdout.write(_UNSEEN_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
        return code

    def fail(self, message: str, code: int) -> int:
        """Print an error and return the exit code."""
        if self.json:
            return self.finish({"error": message}, code)
        self.err.print(Text("error: ", style="bold red") + Text(visible(message, lines=True)))
        return code

    @contextmanager
    def working(self, what: str) -> Iterator[Callable[[str], None]]:
        """Show a progress line on standard error if it is a terminal. Yields a function that changes the line."""
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
    """Convert to plain numbers, texts, lists and dictionaries, since JSON has no numpy types and no infinity."""
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
    """Format a share as a percentage with at most one decimal."""
    return percent(share, 0 if share in (0.0, 1.0) else 1)


def whole_percent(share: float | None) -> str:
    """Format a share without decimals; "none" for None."""
    return "none" if share is None else percent(share)


_KINDS = {
    "theorem": "a theorem under its assumptions",
    "measured": "this bound reached its confidence level on benchmark datasets, but is not proved",
    "conditional": "holds if the true distribution lies within the radius",
}
NO_GUARANTEE = "no guarantee: the true distribution may lie outside this set"
# In brief output: classes listed, lines for notes about columns, and width of the names.
_LISTED, _NOTE_LINES, _NAME_WIDTH = 5, 4, 11


def _class_list(texts: list[str], most: int) -> str:
    return ", ".join(texts if len(texts) <= most else [*texts[:most], f"and {len(texts) - most} more"])


def say_pool(output: Output, pool: Pool) -> None:
    """Describe the table that was read."""
    counts = [f"{name}: {(pool.labels == name).sum()}" for name in pool.classes]
    labeled = int(pool.labeled.sum())
    rows = f"{pool.table.path.name}: {count(len(pool.rows), 'row')}"
    if output.brief:
        output.say(f"{rows}, {labeled} labeled ({_class_list(counts, _LISTED)})", "bold")
        _note_briefly(output, one_per_kind(pool.notes))
        return
    shown = _class_list(counts, len(counts))
    output.say(rows, "bold")
    pairs = [
        ("labeled", f"{labeled} ({shown})"),
        ("unlabeled", str(len(pool.rows) - labeled)),
        ("columns", f"{pool.columns.counts}; {count(pool.rows.shape[1], 'feature')} in total"),
    ]
    if pool.columns.asked_out:
        pairs.append(("ignored", f"{', '.join(pool.columns.asked_out)} (by --drop)"))
    output.rows(pairs)
    output.note(*one_per_kind(pool.notes))


def _note_briefly(output: Output, notes: Sequence[str]) -> None:
    """Print the notes that fit into a few lines. The report has all notes."""
    lines = 0
    for text in notes:
        lines += math.ceil((len(text) + len("note: ")) / output.err.width)
        output.note(text, always=lines <= _NOTE_LINES)


def pool_data(pool: Pool) -> dict[str, Any]:
    """Return the description of the table for JSON."""
    return {
        "rows": len(pool.rows),
        "labeled": int(pool.labeled.sum()),
        "label": pool.table.label,
        "classes": {name: int((pool.labels == name).sum()) for name in pool.classes},
        "columns": {**pool.columns.stored(), "left_out": pool.columns.left_out},
        "features": pool.rows.shape[1],
    }


def say_judged(output: Output, judged: Appraisal, classes: list[str]) -> None:
    """Describe the quality of a model, with the kind of each guarantee."""
    if output.brief:
        output.note(*judged.notes)
        _say_briefly(output, judged)
        return
    output.say("Quality of this model", "bold")
    pairs = []
    bound = judged.crossfit
    if bound is not None and judged.accuracy is not None:
        in_groups = "" if bound.n_groups is None else f" in {bound.n_groups} groups"
        pairs.append(
            (
                "error rate",
                f"at most {at_most(bound.value)} on rows like the labeled ones, with {percent(bound.level)} confidence "
                f"(cross-fitted from {bound.n_labels} random labels{in_groups}, {count(bound.n_errors, 'error')}; "
                f"{_KINDS[bound.kind]})",
            )
        )
        pairs.append(("accuracy", f"about {percent(judged.accuracy)} (cross-validation)"))
    if judged.shares and judged.classes:
        pairs.append(("by class", by_class_words(judged.classes)))
    if judged.shares:
        pairs.append(("predictions", _predicted(judged, len(judged.shares))))
    if judged.no_crossfit is not None:
        pairs.append(("error rate", judged.no_crossfit))
    if judged.no_worst is not None:
        pairs.append(("worst case", judged.no_worst))
    if judged.shares:
        pairs.append(("verdict", judged.verdict))
    output.rows(pairs)
    output.note(*judged.notes)
    if judged.worst is not None:
        say_worst(output, judged.worst, classes)


# Number of classes whose recall and precision are printed, lowest recall first.
_MOST_CLASSES = 4


def by_class_words(results: Sequence[ClassResult]) -> str:
    """Return recall and precision of each class, or of the classes with the lowest recall."""
    shown = [one for one in results if one.recall is not None]
    if len(shown) > _MOST_CLASSES:
        shown = sorted(shown, key=lambda one: one.recall or 0.0)[:_MOST_CLASSES]
    texts = [
        f"{one.name}: recall {whole_percent(one.recall)} of {one.n_labels}, precision {whole_percent(one.precision)}"
        for one in shown
    ]
    more = f"; {len(results) - len(shown)} more in the report" if len(shown) < len(results) else ""
    return "; ".join(texts) + more


def _predicted(judged: Appraisal, most: int) -> str:
    shares = sorted(judged.shares.items(), key=lambda pair: -pair[1]) if most < len(judged.shares) else judged.shares
    texts = [f"{name}: {percent(share, 1)}" for name, share in dict(shares).items()]
    return f"{_class_list(texts, most)} of the unlabeled rows"


def _say_briefly(output: Output, judged: Appraisal) -> None:
    """Summarize a trained model: expected accuracy, bound on its error rate, predictions and worst case."""
    from surefoot.problem.losses import ZERO_ONE

    pairs = []
    bound, worst = judged.crossfit, judged.worst
    if bound is not None and judged.accuracy is not None:
        pairs = [
            ("accuracy", f"about {percent(judged.accuracy)} (cross-validation)"),
            (
                "error rate",
                f"at most {at_most(bound.value)}, with {percent(bound.level)} confidence "
                f"({count(bound.n_errors, 'error')} in {count(bound.n_labels, 'label')})",
            ),
        ]
    elif judged.no_crossfit is not None:
        pairs = [("error rate", judged.no_crossfit)]
    pairs.append(("predictions", _predicted(judged, _LISTED)))
    if judged.no_worst is not None:
        pairs.append(("worst case", judged.no_worst))
    elif worst is not None and (error := worst.certificates.get(ZERO_ONE)) is not None:
        pairs.append(("worst case", _worst_briefly(worst, error.risk)))
    output.rows([*pairs, ("verdict", judged.verdict)], _NAME_WIDTH)


def _worst_briefly(worst: PoolWorstCase, risk: float) -> str:
    if not worst.guaranteed:
        return f"{at_most(risk)} errors within radius {worst.first.radius:.4f} ({NO_GUARANTEE})"
    if risk < worst.constant_error:
        return f"at most {at_most(risk)} errors (conditional on the radius)"
    return (
        f"{at_most(risk)} errors. A constant prediction of {worst.constant!r} has {at_most(worst.constant_error)}, so "
        "this certificate is not informative"
    )


def say_files(output: Output, written: dict[str, str], following: str) -> None:
    """List the files written, and the next command."""
    if output.brief:
        output.rows([("files", ", ".join(written.values())), ("next", following)], _NAME_WIDTH)
        output.say("  Details and assumptions: surefoot fit --verbose", "dim")
    else:
        output.rows([*written.items(), ("next", following)])


def say_worst(output: Output, worst: PoolWorstCase, classes: list[str]) -> None:
    """Describe the worst case over a set. It is called a certificate if the radius is calibrated or given."""
    from surefoot.problem.losses import LOG_LOSS, ZERO_ONE

    certificate = worst.first
    if worst.guaranteed:
        output.say("Certificate: worst case over the decision set", "bold")
    else:
        output.say(f"Worst case within radius {certificate.radius:.4f} ({NO_GUARANTEE})", "bold")
    pairs = []
    error, log_loss = worst.certificates.get(ZERO_ONE), worst.certificates.get(LOG_LOSS)
    if error is not None:
        pairs.append(
            (
                "error rate",
                f"at most {at_most(error.risk)} of the rows in this file{_attained(worst, at_least(error.lower))}. "
                f"A constant prediction of {worst.constant!r} has at most {at_most(worst.constant_error)}.",
            )
        )
    if log_loss is not None:
        lower = _attained(worst, rounded_down(log_loss.lower, 4))
        pairs.append(("log loss", f"at most {rounded_up(log_loss.risk, 4)}{lower}"))
    if any(one.limit is not None for one in worst.certificates.values()):
        pairs.append(("any classifier", limit_words(error, log_loss)))
    output.rows([*pairs, ("radius", radius_words(worst))])
    output.say("Assumptions", "bold")
    output.rows(assumptions(worst, classes))
    if worst.guaranteed and error is not None and error.risk >= worst.constant_error:
        output.note(
            "this certificate is not informative: in the worst case, a constant prediction is at least as good. More "
            "labels, or known class probabilities (--prior), make it tighter."
        )
    if any(one.status == "stopped" for one in worst.certificates.values()):
        output.note("the solver stopped before it reached its tolerance. Both bounds remain valid.")


def limit_words(error: Certificate | None, log_loss: Certificate | None) -> str:
    """What no classifier can improve on over the same set."""
    found = []
    if error is not None and error.limit is not None:
        found.append(f"an error rate of {at_least(error.limit)}")
    if log_loss is not None and log_loss.limit is not None:
        found.append(f"a log loss of {rounded_down(log_loss.limit, 4)}")
    return f"none can be certified below {' or '.join(found)} with these labels"


def _attained(worst: PoolWorstCase, lower: str) -> str:
    return "" if worst.sample is not None else f" (a distribution in the set attains {lower})"


def radius_words(worst: PoolWorstCase) -> str:
    """State the radius and its source."""
    certificate = worst.first
    estimate, least = certificate.estimate, certificate.minimal_radius
    if worst.kind == CALIBRATED and estimate is not None:
        metric = ", in a metric learned from them," if estimate.learned_metric else ""
        how = (
            f"Estimated from {estimate.n_labeled} random labels{metric} to cover the true distribution in "
            f"{percent(estimate.level)} of samples (measured, not proved)."
        )
        if worst.tied:
            return (
                f"{estimate.excess:.4f} above the minimal radius, which depends on the label shares (at least "
                f"{least:.4f}). {how}"
            )
        return f"{certificate.radius:.4f} (minimal radius {least:.4f}). {how}"
    source = "from the rule of thumb 'auto'" if worst.kind == AUTO else "from --radius"
    return f"{certificate.radius:.4f} (minimal radius {least:.4f}), {source}"


def assumptions(worst: PoolWorstCase, classes: list[str]) -> list[tuple[str, str]]:
    """List the assumptions of a worst case, with their numbers."""
    shares = ", ".join(
        f"{name}: {percent(low, 1)}" if low == high else f"{name}: {at_least(low)} to {at_most(high)}"
        for name, (low, high) in zip(classes, worst.first.label_intervals, strict=True)
    )
    return [
        ("1.", "The true distribution lies within this radius of the labeled rows."),
        ("2.", f"The label shares of all rows are {shares}."),
        ("3.", "There are no other classes (--classes adds classes that have no label)."),
        ("4.", "The claim covers the rows in this file, not future rows."),
    ]
