"""What is said of a table and of a model: codes with parameters that code reads, and one sentence each for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum, auto
from typing import Any

from surefoot._printing import share_at_least, share_at_most

# A model that gives one answer to this share of the rows or more has hardly found anything.
_NEARLY_ALL = 0.99
# May a model be used: it is a constant answer; nothing is known; it may be as bad as a constant; yes.
CONSTANT, UNKNOWN, CARE, USE = "constant", "unknown", "care", "use"
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
}


def how_to_use(crossfit: float | None, largest_answer: float, most_frequent: float) -> str:
    """Whether a model may be used.

    crossfit : bound on its share of errors, None where there is none; largest_answer : the largest share of rows that
    get one answer; most_frequent : the share of labels that the most frequent class has.
    """
    if largest_answer == 1.0:
        return CONSTANT
    if crossfit is None:
        return UNKNOWN
    return CARE if crossfit >= 1 - most_frequent else USE


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
