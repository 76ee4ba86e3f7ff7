"""Notes about a table and a model. Each has a code with parameters for programs, and one sentence for users."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Any

from numpy.typing import NDArray

from surefoot._printing import share_at_least, share_at_most

# A model is nearly constant if it predicts one class for at least this share of the rows.
_NEARLY_ALL = 0.99
# Report a class with at least this number of labels if cross-validation finds less than this share of them.
_FEW_FOUND, _FEWEST_TO_FIND = 0.5, 3
# Smaller shares would be printed as 0.0 %.
_WORTH_SAYING = 0.001


class Code(StrEnum):
    """Kind of a note. Programs must use the code and the parameters, not the sentence."""

    # about the table
    LEFT_OUT = auto()
    MANY_CATEGORIES = auto()
    FREE_TEXT = auto()
    UNREAD_CELLS = auto()
    DATES = auto()
    NUMBER_STYLE = auto()
    TEXTS_AND_NUMBERS = auto()
    DELIMITER = auto()
    ENCODING = auto()
    TITLE = auto()
    SHEET = auto()
    SIMILAR_CLASSES = auto()
    # why a column is ignored
    ASKED = auto()
    EMPTY = auto()
    CONSTANT = auto()
    NUMBERS_ROWS = auto()
    NAMES_ROWS = auto()
    # about the cross-fitted bound
    CROSSFIT_GROUPS = auto()
    # why a model has no cross-fitted bound
    CROSSFIT_PICKED = auto()
    CROSSFIT_FEW = auto()
    CROSSFIT_RANDOM = auto()
    CROSSFIT_RADIUS = auto()
    CROSSFIT_TIME = auto()
    CROSSFIT_REFIT = auto()
    # why a model has no worst case
    WORST_TIME = auto()
    WORST_FEW = auto()
    WORST_CLASSES = auto()
    # why a model has no coefficients and no training radius
    NOT_LINEAR = auto()
    # how a model was trained
    PICKED_LABELS = auto()
    UNLIKE_SAMPLE = auto()
    AUTO_FEW = auto()
    AUTO_CLASSES = auto()
    AUTO_SAMPLED = auto()
    SAMPLED = auto()
    # about the predictions of a model
    CONSTANT_MODEL = auto()
    NEARLY_CONSTANT_MODEL = auto()
    UNLIKELY_SHARES = auto()
    NEVER_ANSWERED = auto()
    LOW_RECALL = auto()
    LEAK = auto()
    # the verdict: constant; unknown; not shown to beat a constant; better than a constant; --max-error met or not
    VERDICT_CONSTANT = auto()
    VERDICT_UNKNOWN = auto()
    VERDICT_CARE = auto()
    VERDICT_BETTER = auto()
    VERDICT_MET = auto()
    VERDICT_NOT_MET = auto()


# Notes about single columns. A table may have many of them.
_OF_COLUMNS = (Code.DATES, Code.NUMBER_STYLE, Code.UNREAD_CELLS, Code.TEXTS_AND_NUMBERS)
_MOST_NAMED = 8


class Note(str):
    """A sentence with its code and parameters."""

    code: Code
    parameters: dict[str, Any]

    def __new__(cls, code: Code, **parameters: Any) -> Note:
        words = _WORDS[code]
        note = super().__new__(cls, words.format(**parameters) if isinstance(words, str) else words(**parameters))
        note.code, note.parameters = code, parameters
        return note

    def __getnewargs_ex__(self) -> tuple[tuple[Code], dict[str, Any]]:
        return (self.code,), self.parameters


def _left_out(reasons: dict[str, Note]) -> str:
    return f"ignoring {'; '.join(f'{name!r} ({why})' for name, why in reasons.items())}."


def _many_categories(counts: dict[str, int], most: int) -> str:
    named = ", ".join(f"{name!r} ({n})" for name, n in counts.items())
    return f"encoding columns of more than {most} categories by the letters of the names: {named}."


def _unread(name: str, kind: str, row: int, cell: str, n_cells: int) -> str:
    cells = "this cell as" if n_cells == 1 else f"{n_cells} such cells as"
    return f"{name!r} contains {kind}, but row {row} contains {cell}. Treating {cells} missing."


def _dates(name: str, read_as: str, other: str | None) -> str:
    doubt = f"; {other} is also possible" if other else ""
    return f"treating {name!r} as dates or times (format {read_as}{doubt})."


def _sheet(file: str, sheet: str, others: list[str]) -> str:
    names = ", ".join(repr(name) for name in others)
    return f"reading the sheet {sheet!r} of {file}, not {names}. Move the sheet to read to the front."


def _sampled(n_sampled: int, n_rows: int, seconds: float | None) -> str:
    why = "for speed (--learn-rows 0 uses all)" if seconds is None else f"to finish within --time {seconds:g}"
    return f"the model was trained on a random sample of {n_sampled} of the {n_rows} unlabeled rows {why}."


_WORDS: dict[Code, Any] = {
    Code.LEFT_OUT: _left_out,
    Code.MANY_CATEGORIES: _many_categories,
    Code.FREE_TEXT: "treating {names} as free text (override with --categories or --drop).",
    Code.UNREAD_CELLS: _unread,
    Code.DATES: _dates,
    Code.NUMBER_STYLE: "reading numbers of {name!r} such as {example!r} as {read}.",
    Code.TEXTS_AND_NUMBERS: "{name!r} contains texts and numbers ({share:.0%}). Treating all as texts.",
    Code.DELIMITER: "reading {file} with the delimiter {delimiter} (override with --delimiter).",
    Code.ENCODING: "reading {file} as {encoding} (override with --encoding).",
    Code.TITLE: "skipping {n_lines} line{s} above the header of {file}.",
    Code.SHEET: _sheet,
    Code.SIMILAR_CLASSES: "the labels {names} differ only in capitals or spaces. Correct them if they are one class.",
    Code.ASKED: "by --drop",
    Code.EMPTY: "empty",
    Code.CONSTANT: "constant, {value}",
    Code.NUMBERS_ROWS: "a row index",
    Code.NAMES_ROWS: "an identifier with {n_texts} different values in {n_rows} rows",
    Code.CROSSFIT_GROUPS: (
        "the {n_labels} random labels form {n_groups} groups of rows with equal features (or of --cv-groups). "
        "The cross-fitted bound keeps each group in one fold and counts it once. To count each row, pass a column of "
        "row numbers as --cv-groups. This is valid if equal rows are independent."
    ),
    Code.CROSSFIT_PICKED: (
        "no cross-fitted bound, because active learning chose some labels and they are not a random sample."
    ),
    Code.CROSSFIT_FEW: "no cross-fitted bound, which requires at least {needed} random labels (got {n_labels}).",
    Code.CROSSFIT_RANDOM: "no cross-fitted bound, which requires at least {needed} labels, all random.",
    Code.CROSSFIT_RADIUS: (
        "no cross-fitted bound, because the minimal radius without a tenth of the labels is {minimal_radius:.4f}, "
        "above --radius {radius:g}."
    ),
    Code.CROSSFIT_TIME: "no cross-fitted bound within the time limit (--time).",
    Code.CROSSFIT_REFIT: "no cross-fitted bound, because the classifier could not be fitted again ({reason}).",
    Code.WORST_TIME: "no worst case within the time limit (--time).",
    Code.WORST_FEW: (
        "no worst case: calibrating a radius requires at least {needed} random labels (got {n_random}). Pass a number "
        "as --radius, for example from surefoot radius --reference."
    ),
    Code.WORST_CLASSES: (
        "no worst case: calibrating a radius with label intervals is possible for at most {most} classes (got "
        "{n_classes}). Pass the class probabilities as --prior."
    ),
    Code.NOT_LINEAR: "no coefficients and no curves over the radius, which only --classifier robust has (got {name}).",
    Code.PICKED_LABELS: (
        "active learning chose {n_picked} of {n_labels} labels. The radius and the label intervals are estimated from "
        "the {n_random} random labels."
    ),
    Code.UNLIKE_SAMPLE: (
        "the {n_labels} labeled rows do not look like a random sample of all rows (p-value {p_value:.3g}). If they "
        "were picked, bounds on the error rate do not cover the other rows. Audit the predictions (surefoot audit)."
    ),
    Code.AUTO_FEW: (
        "using the rule of thumb 'auto' for the radius, which has no guarantee. Calibrating a radius requires at least "
        "{needed} random labels (got {n_random})."
    ),
    Code.AUTO_CLASSES: (
        "using the rule of thumb 'auto' for the radius, because {n_classes} classes are too many to calibrate it with "
        "label intervals. Pass the class probabilities as --prior."
    ),
    Code.AUTO_SAMPLED: "the 'auto' radius was searched on a random sample of {n_rows} unlabeled rows.",
    Code.SAMPLED: _sampled,
    Code.CONSTANT_MODEL: "the model predicts {name!r} for every row. Label more rows.",
    Code.NEARLY_CONSTANT_MODEL: "the model predicts {name!r} for {percent:.1f} % of the rows, nearly always.",
    Code.UNLIKELY_SHARES: "the predictions contradict the label shares: {outside}.",
    Code.NEVER_ANSWERED: "the model never predicts {names}.",
    Code.LOW_RECALL: (
        "cross-validation finds {n_found} of the {n_labels} labels {name!r}. The error rate hides this because the "
        "class is rare. Label more rows of this class."
    ),
    Code.LEAK: (
        "may reveal the label, because each alone separates a class almost perfectly: {names}. If {first!r} is not "
        "known when the model is used, pass --drop {first!r}."
    ),
    Code.VERDICT_CONSTANT: (
        "not useful yet. The model predicts {constant!r} for every row. Label more rows, above all of other classes."
    ),
    Code.VERDICT_UNKNOWN: "unknown. The error rate has no bound yet, so use the model only to choose rows to label.",
    Code.VERDICT_CARE: (
        "not shown to be better than always predicting {constant!r} ({constant_error} % errors). Label more rows."
    ),
    Code.VERDICT_BETTER: (
        "better than always predicting {constant!r} ({constant_error} % errors). Up to {most_wrong} of {n_rows} "
        "predictions may be wrong. Set a limit with --max-error."
    ),
    Code.VERDICT_MET: "meets --max-error {max_error:g}. At most {error} % of the predictions are wrong.",
    Code.VERDICT_NOT_MET: (
        "does not meet --max-error {max_error:g}. Up to {most_wrong} of {n_rows} predictions may be wrong. Label more "
        "rows."
    ),
}


def one_per_kind(notes: Sequence[Note]) -> list[str]:
    """Combine notes of one kind about several columns into one sentence."""
    found: list[str] = []
    for code in dict.fromkeys(note.code for note in notes):
        same = [note for note in notes if note.code is code]
        if code not in _OF_COLUMNS or len(same) == 1:
            found += same
            continue
        names = [f"{note.parameters['name']!r}{_detail(note)}" for note in same[:_MOST_NAMED]]
        more = f" and {len(same) - _MOST_NAMED} more" if len(same) > _MOST_NAMED else ""
        found.append(f"{_TOGETHER[code]}: {', '.join(names)}{more}.")
    return found


def _detail(note: Note) -> str:
    given = note.parameters
    if note.code is Code.DATES:
        return f" ({given['read_as']}{', or ' + given['other'] if given['other'] else ''})"
    if note.code is Code.NUMBER_STYLE:
        return f" ({given['example']} read as {given['read']})"
    if note.code is Code.UNREAD_CELLS:
        return f" ({given['n_cells']}, such as {given['cell']})"
    return f" ({given['share']:.0%})"


_TOGETHER = {
    Code.DATES: "treating as dates or times",
    Code.NUMBER_STYLE: "reading numbers in another style",
    Code.UNREAD_CELLS: "treating unreadable cells as missing",
    Code.TEXTS_AND_NUMBERS: "treating columns of texts and numbers as texts",
}


def verdict_on(
    crossfit: float | None,
    most_predicted: tuple[str, float],
    most_frequent: tuple[str, float],
    n_rows: int,
    max_error: float | None = None,
) -> Note:
    """Return a verdict: whether the bound on the error rate justifies using the model.

    crossfit : the bound, or None; most_predicted, most_frequent : the class predicted for most of the `n_rows` rows,
    and the most frequent class among the labels, each with its share. max_error : the largest acceptable error rate.
    """
    if most_predicted[1] == 1.0:
        return Note(Code.VERDICT_CONSTANT, constant=most_predicted[0])
    if crossfit is None:
        return Note(Code.VERDICT_UNKNOWN)
    rows = {"most_wrong": math.ceil(crossfit * n_rows - 1e-9), "n_rows": n_rows}
    if max_error is not None and crossfit > max_error:
        return Note(Code.VERDICT_NOT_MET, max_error=max_error, **rows)
    if max_error is not None:
        return Note(Code.VERDICT_MET, max_error=max_error, error=share_at_most(crossfit))
    constant = {"constant": most_frequent[0], "constant_error": f"{100 * (1 - most_frequent[1]):.3g}"}
    if crossfit >= 1 - most_frequent[1]:
        return Note(Code.VERDICT_CARE, **constant)
    return Note(Code.VERDICT_BETTER, **constant, **rows)


@dataclass(frozen=True)
class ClassResult:
    """Cross-validation results for one class: its labels, its correct predictions, and all its predictions."""

    name: str
    n_labels: int
    n_right: int
    n_predicted: int

    @property
    def recall(self) -> float | None:
        """Share of the class's labels that are predicted correctly; None without labels."""
        return self.n_right / self.n_labels if self.n_labels else None

    @property
    def precision(self) -> float | None:
        """Share of the class's predictions that are correct; None without predictions."""
        return self.n_right / self.n_predicted if self.n_predicted else None


def class_results(truth: NDArray[Any], predicted: NDArray[Any], values: Sequence[Any]) -> list[ClassResult]:
    """Compare labels (n,) with predictions (n,), class by class."""
    return [
        ClassResult(
            str(value),
            int((truth == value).sum()),
            int(((truth == value) & (predicted == value)).sum()),
            int((predicted == value).sum()),
        )
        for value in values
    ]


def about_classes(results: Sequence[ClassResult]) -> list[Note]:
    """Return a note for each rare class that cross-validation mostly misses."""
    most = max((one.n_labels for one in results), default=0)
    return [
        Note(Code.LOW_RECALL, name=one.name, n_found=one.n_right, n_labels=one.n_labels)
        for one in results
        if _FEWEST_TO_FIND <= one.n_labels < most and one.n_right < _FEW_FOUND * one.n_labels
    ]


def _between(low: float, high: float) -> str:
    return f"{100 * low:.3g}" if low == high else f"{share_at_least(low)} to {share_at_most(high)}"


def about_answers(shares: Mapping[str, float], intervals: Sequence[Sequence[float]]) -> list[Note]:
    """Return notes about the predictions: `shares` of the predicted classes, `intervals` (K, 2) of the true shares."""
    most = max(shares, key=lambda name: shares[name])
    if shares[most] == 1.0:
        return [Note(Code.CONSTANT_MODEL, name=most)]
    notes = []
    if shares[most] >= _NEARLY_ALL:
        notes.append(Note(Code.NEARLY_CONSTANT_MODEL, name=most, percent=100 * shares[most]))
    outside = [
        f"{name!r} for {100 * shares[name]:.1f} % (true share {_between(low, high)} %)"
        for (name, share), (low, high) in zip(shares.items(), intervals, strict=True)
        if share > 0 and not low - 1e-9 <= share <= high + 1e-9
    ]
    if outside:
        notes.append(Note(Code.UNLIKELY_SHARES, outside="; ".join(outside)))
    never = [
        f"{name!r} (at least {share_at_least(low)} % of the rows)" if low >= _WORTH_SAYING else repr(name)
        for (name, share), (low, _) in zip(shares.items(), intervals, strict=True)
        if share == 0
    ]
    if never:
        notes.append(Note(Code.NEVER_ANSWERED, names=", ".join(never)))
    return notes
