"""What is said of a table and of a model: codes with parameters that code reads, and one sentence each for people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Any

from numpy.typing import NDArray

from surefoot._printing import share_at_least, share_at_most

# A model that gives one answer to this share of the rows or more has hardly found anything.
_NEARLY_ALL = 0.99
# A class that has so many labels, of which cross-validation finds less than this share, is worth a word.
_FEW_FOUND, _FEWEST_TO_FIND = 0.5, 3
# A smaller share would be printed as 0.0 %.
_WORTH_SAYING = 0.001


class Code(StrEnum):
    """What a note says. Code branches on this and on the parameters, never on the sentence."""

    # of the table
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
    SIMILAR_CLASSES = auto()
    # why a column is left out
    ASKED = auto()
    EMPTY = auto()
    CONSTANT = auto()
    NUMBERS_ROWS = auto()
    NAMES_ROWS = auto()
    # of the cross-fitted bound
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
    # how a model was learned
    PICKED_LABELS = auto()
    AUTO_FEW = auto()
    AUTO_CLASSES = auto()
    AUTO_SAMPLED = auto()
    SAMPLED = auto()
    # what a model answers
    CONSTANT_MODEL = auto()
    NEARLY_CONSTANT_MODEL = auto()
    UNLIKELY_SHARES = auto()
    NEVER_ANSWERED = auto()
    LOW_RECALL = auto()
    LEAK = auto()
    # the verdict on a model: it is a constant; nothing is known; perhaps no better than a constant; better; --max-error
    VERDICT_CONSTANT = auto()
    VERDICT_UNKNOWN = auto()
    VERDICT_CARE = auto()
    VERDICT_BETTER = auto()
    VERDICT_MET = auto()
    VERDICT_NOT_MET = auto()


# Notes on single columns, of which a table may have many.
_OF_COLUMNS = (Code.DATES, Code.NUMBER_STYLE, Code.UNREAD_CELLS, Code.TEXTS_AND_NUMBERS)
_MOST_NAMED = 8


class Note(str):
    """A note with its code and parameters; as a text, its sentence."""

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
    return f"left out: {'; '.join(f'{name!r} {why}' for name, why in reasons.items())}."


def _many_categories(counts: dict[str, int], shown: int) -> str:
    named = ", ".join(f"{name!r} ({n})" for name, n in counts.items())
    return f"all but the {shown} most frequent categories count as one in {named}."


def _unread(name: str, kind: str, row: int, cell: str, n_cells: int) -> str:
    more = f" and {n_cells - 1} more cells" if n_cells > 1 else ""
    return f"{name!r} holds {kind}, but row {row} holds {cell}: it{more} count{'s' * (n_cells == 1)} as missing."


def _dates(name: str, read_as: str, other: str | None) -> str:
    doubt = f", though {other} would fit as well" if other else ""
    return f"{name!r} holds dates or times (read as {read_as}{doubt})."


def _sampled(n_sampled: int, n_rows: int, seconds: float | None) -> str:
    why = "for speed (--learn-rows 0 takes all)" if seconds is None else f"in the {seconds:g} s given (--time)"
    return f"the model was learned from {n_sampled} of the {n_rows} unlabeled rows, drawn at random, {why}."


_WORDS: dict[Code, Any] = {
    Code.LEFT_OUT: _left_out,
    Code.MANY_CATEGORIES: _many_categories,
    Code.FREE_TEXT: "read by its words, as free text: {names} (--categories or --drop changes it).",
    Code.UNREAD_CELLS: _unread,
    Code.DATES: _dates,
    Code.NUMBER_STYLE: "{name!r} writes its numbers as {example!r}, read as {read}.",
    Code.TEXTS_AND_NUMBERS: "{name!r} holds texts and numbers ({share:.0%}); most are texts, so all count as texts.",
    Code.DELIMITER: "cells of {file} end at {delimiter} (--delimiter changes it).",
    Code.ENCODING: "{file} is read as {encoding} (--encoding changes it).",
    Code.TITLE: "{n_lines} line{s} above the header of {file} skipped.",
    Code.SIMILAR_CLASSES: "the labels {names} differ in capitals or spaces only: are they one class?",
    Code.ASKED: "as asked",
    Code.EMPTY: "is empty",
    Code.CONSTANT: "has one value only, {value}",
    Code.NUMBERS_ROWS: "numbers the rows",
    Code.NAMES_ROWS: "names the rows ({n_texts} different texts in {n_rows})",
    Code.CROSSFIT_GROUPS: (
        "the {n_labels} random labels form {n_groups} groups of rows with equal features (or of --cv-groups). "
        "The cross-fitted bound keeps each group in one fold and counts it once. If the features have few values and "
        "the rows are independent draws, --cv-groups with a column of row numbers counts each row."
    ),
    Code.CROSSFIT_PICKED: (
        "no cross-fitted bound: some labels were picked by surefoot label, and picked rows are no random sample."
    ),
    Code.CROSSFIT_FEW: "no cross-fitted bound: it needs {needed} random labels or more; there are {n_labels}.",
    Code.CROSSFIT_RANDOM: "no cross-fitted bound: it needs {needed} labels or more, all of them random.",
    Code.CROSSFIT_RADIUS: (
        "no cross-fitted bound: with a tenth of the labels left out the minimal radius is {minimal_radius:.4f}, above "
        "--radius {radius:g}."
    ),
    Code.CROSSFIT_TIME: "no cross-fitted bound: the time given (--time) was over.",
    Code.CROSSFIT_REFIT: "no cross-fitted bound: the classifier could not be fitted again ({reason}).",
    Code.WORST_TIME: "no worst case: the time given (--time) was over.",
    Code.WORST_FEW: (
        "no worst case: {n_random} random labels are too few to calibrate a radius (at least {needed}). --radius takes "
        "a number, for example from surefoot radius --reference."
    ),
    Code.WORST_CLASSES: (
        "no worst case: {n_classes} classes are too many to calibrate a radius with label intervals (at most {most}). "
        "--prior with the probabilities of the classes allows it."
    ),
    Code.PICKED_LABELS: (
        "{n_picked} of {n_labels} labels were picked by surefoot label: radius and label intervals are estimated from "
        "the {n_random} random ones."
    ),
    Code.AUTO_FEW: (
        "{n_random} random labels are too few to calibrate a radius (at least {needed}): the rule of thumb 'auto' is "
        "used, which guarantees no coverage."
    ),
    Code.AUTO_CLASSES: (
        "{n_classes} classes are too many to calibrate a radius with label intervals: the rule of thumb 'auto' is "
        "used. Pass --prior with the probabilities of the classes."
    ),
    Code.AUTO_SAMPLED: "the 'auto' radius was searched over {n_rows} unlabeled rows, drawn at random.",
    Code.SAMPLED: _sampled,
    Code.CONSTANT_MODEL: "the model answers {name!r} for every row: it is that constant answer. Label more rows.",
    Code.NEARLY_CONSTANT_MODEL: (
        "the model answers {name!r} for {percent:.1f} % of the rows: it is nearly a constant answer."
    ),
    Code.UNLIKELY_SHARES: "the model's answers do not match what is known of the classes: it answers {outside}.",
    Code.NEVER_ANSWERED: "the model never answers {names}.",
    Code.LOW_RECALL: (
        "cross-validation finds {n_found} of the {n_labels} labels {name!r}. The error rate hides this because the "
        "class is rare. Label more rows of it."
    ),
    Code.LEAK: (
        "may give the label away, since each alone separates a class almost perfectly: {names}. Pass --drop {first!r}, "
        "say, if it is not known when the model is used."
    ),
    Code.VERDICT_CONSTANT: (
        "not useful yet. The model predicts {constant!r} for every row. Label more rows, above all of other classes."
    ),
    Code.VERDICT_UNKNOWN: "unknown. The error rate has no bound yet, so use the model only to choose rows to label.",
    Code.VERDICT_CARE: (
        "not shown to be better than always predicting {constant!r}, which is wrong for {constant_error} % of the "
        "labels. Label more rows."
    ),
    Code.VERDICT_BETTER: (
        "better than always predicting {constant!r}, which is wrong for {constant_error} % of the labels. Up to "
        "{most_wrong} of {n_rows} predictions may be wrong. --max-error says whether that is few enough."
    ),
    Code.VERDICT_MET: "meets --max-error {max_error:g}. At most {error} % of the predictions are wrong.",
    Code.VERDICT_NOT_MET: (
        "does not meet --max-error {max_error:g}. Up to {most_wrong} of {n_rows} predictions may be wrong. Label more "
        "rows."
    ),
}


def one_per_kind(notes: Sequence[Note]) -> list[str]:
    """Notes for a person: those of one kind on several columns in one sentence."""
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
    Code.DATES: "columns of dates or times",
    Code.NUMBER_STYLE: "numbers written in another style",
    Code.UNREAD_CELLS: "cells that are no number or no date count as missing",
    Code.TEXTS_AND_NUMBERS: "columns of texts with some numbers, read as texts",
}


def verdict_on(
    crossfit: float | None,
    most_predicted: tuple[str, float],
    most_frequent: tuple[str, float],
    n_rows: int,
    max_error: float | None = None,
) -> Note:
    """What the bound on the error rate means for somebody who wants to use the model.

    crossfit : the bound, None where there is none; most_predicted, most_frequent : the class that most of the `n_rows`
    rows to predict get, and the most frequent one among the labels, each with its share. max_error : what is wanted.
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
    """How cross-validation does on one class: labels of it, how many of them are predicted, and predictions of it."""

    name: str
    n_labels: int
    n_right: int
    n_predicted: int

    @property
    def recall(self) -> float | None:
        """The share of its labels that are predicted; None without labels."""
        return self.n_right / self.n_labels if self.n_labels else None

    @property
    def precision(self) -> float | None:
        """The share of its predictions that are right; None without predictions."""
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
    """A note for each rare class that cross-validation mostly misses."""
    most = max((one.n_labels for one in results), default=0)
    return [
        Note(Code.LOW_RECALL, name=one.name, n_found=one.n_right, n_labels=one.n_labels)
        for one in results
        if _FEWEST_TO_FIND <= one.n_labels < most and one.n_right < _FEW_FOUND * one.n_labels
    ]


def about_answers(shares: Mapping[str, float], intervals: Sequence[Sequence[float]]) -> list[Note]:
    """Plain sentences for a person: `shares` of the rows that get each class, `intervals` (K, 2) of the true shares."""
    most = max(shares, key=lambda name: shares[name])
    if shares[most] == 1.0:
        return [Note(Code.CONSTANT_MODEL, name=most)]
    notes = []
    if shares[most] >= _NEARLY_ALL:
        notes.append(Note(Code.NEARLY_CONSTANT_MODEL, name=most, percent=100 * shares[most]))
    outside = [
        f"{name!r} for {100 * shares[name]:.1f} % (of all rows it is {share_at_least(low)} to {share_at_most(high)} %)"
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
