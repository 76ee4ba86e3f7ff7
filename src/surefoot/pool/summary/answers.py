"""Warnings about the answers of a model: one class for all rows, shares that the labels speak against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from surefoot._printing import share_at_least, share_at_most

# A model that gives one answer to this share of the rows or more has hardly found anything.
_NEARLY_ALL = 0.99
# May a model be used: it is a constant answer; nothing is known; it may be as bad as a constant; yes.
CONSTANT, UNKNOWN, CARE, USE = "constant", "unknown", "care", "use"
# A smaller share would be printed as 0.0 %.
_WORTH_SAYING = 0.001


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


def about_answers(shares: Mapping[str, float], intervals: Sequence[Sequence[float]]) -> list[str]:
    """Plain sentences for a person: `shares` of the rows that get each class, `intervals` (K, 2) of the true shares."""
    most = max(shares, key=lambda name: shares[name])
    if shares[most] == 1.0:
        return [f"the model answers {most!r} for every row: it is that constant answer. Label more rows."]
    notes = []
    if shares[most] >= _NEARLY_ALL:
        notes.append(
            f"the model answers {most!r} for {100 * shares[most]:.1f} % of the rows: it is nearly a constant answer."
        )
    outside = [
        f"{name!r} for {_percent(shares[name])} (of all rows it is {share_at_least(low)} to {share_at_most(high)} %)"
        for (name, share), (low, high) in zip(shares.items(), intervals, strict=True)
        if share > 0 and not low - 1e-9 <= share <= high + 1e-9
    ]
    if outside:
        notes.append(f"the model's answers do not match what is known of the classes: it answers {'; '.join(outside)}.")
    never = [
        f"{name!r} (at least {share_at_least(low)} % of the rows)" if low >= _WORTH_SAYING else repr(name)
        for (name, share), (low, _) in zip(shares.items(), intervals, strict=True)
        if share == 0
    ]
    if never:
        notes.append(f"the model never answers {', '.join(never)}.")
    return notes


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
