"""Where we stand, in numbers and in words: labels, the bound and its kind, what is still needed, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from surefoot._printing import count
from surefoot._printing import short_percent as percent
from surefoot._validation import FloatArray
from surefoot.bounds.engine import NO_ROW_LEFT, OUT_OF_REACH, TOO_LONG, level_of
from surefoot.bounds.size import least_labels
from surefoot.pool.database import LABEL
from surefoot.pool.labeling.label_log import LabelLog
from surefoot.pool.labeling.schedule import AUDITING, LEARNING, PROVED, Goal
from surefoot.pool.labeling.service import LabelingService

# How far people agree: percent, Cohen's κ of two, Fleiss' κ of more.


@dataclass(frozen=True)
class Agreement:
    """Agreement of people on rows that two or more of them labeled.

    n_rows : rows that were compared; share : of all pairs of answers, how many are alike.
    kappa : 1 for full agreement, 0 for that of chance; None where chance alone would agree always, or nothing was
        compared; name : "Cohen" for two people, "Fleiss" for more.
    """

    n_rows: int
    share: float | None
    kappa: float | None
    name: str


def agreement(answers: Sequence[Mapping[int, str]], classes: Sequence[str]) -> Agreement:
    """Agreement on rows, each a mapping from person to label."""
    shared = [row for row in answers if len(row) >= 2]
    people = sorted({person for row in shared for person in row})
    name = "Cohen" if len(people) <= 2 else "Fleiss"
    if not shared:
        return Agreement(0, None, None, name)
    pairs = [a == b for row in shared for a, b in combinations(row.values(), 2)]
    if len(people) == 2:
        first, second = ([row[person] for row in shared] for person in people)
        kappa = cohen_kappa(first, second, classes)
    else:
        counts = np.array([[list(row.values()).count(name) for name in classes] for row in shared], dtype=np.float64)
        kappa = fleiss_kappa(counts)
    return Agreement(len(shared), float(np.mean(pairs)), kappa, name)


def agreement_in(book: LabelLog) -> Agreement:
    """Agreement on the rows of a book."""
    answers = [
        {who: str(event.value) for who, event in state.answers.items() if event.kind == LABEL}
        for state in book.rows.values()
        if len(state.answers) > 1
    ]
    return agreement(answers, book.classes)


def cohen_kappa(first: Sequence[str], second: Sequence[str], classes: Sequence[str]) -> float | None:
    """Cohen's κ of two people who labeled the same rows."""
    from sklearn.metrics import cohen_kappa_score

    if len(set(first) | set(second)) == 1:
        return None  # 0 / 0: one class alone
    return float(cohen_kappa_score(first, second, labels=list(classes)))


def fleiss_kappa(counts: FloatArray) -> float | None:
    """Fleiss' κ of counts (rows, classes): how many people gave each row each label.

    Rows may have different numbers of answers, two or more: their agreement is averaged, and chance is that of all
    answers together.
    """
    answers = counts.sum(axis=1)
    alike = (counts * (counts - 1)).sum(axis=1) / (answers * (answers - 1))
    chance = float(((counts.sum(axis=0) / counts.sum()) ** 2).sum())
    return None if chance >= 1.0 else float((alike.mean() - chance) / (1.0 - chance))


THEOREM, MEASURED = "theorem", "measured"
# Why an audit was given up.
_WHY = {
    NO_ROW_LEFT: "and no row is left to draw",
    OUT_OF_REACH: "and the rows labeled before have more errors than the target allows",
    TOO_LONG: "so the proof would take too many labels",
}
# Points of the chart that can be told apart.
_POINTS = 120


def status(desk: LabelingService) -> dict[str, Any]:
    """All that the page shows of the present state, for its script."""
    with desk.lock:
        book, turns, ranking = desk.book, desk.turns, desk.ranking
        needed = _needed(desk)
        return {
            "phase": turns.phase,
            "rows": book.n_rows,
            "labels": len(book.labels),
            "skipped": len(book.skipped),
            "conflicts": len(book.conflicts),
            "flagged": len(book.flagged),
            "target": turns.goal.target,
            "level": turns.goal.level,
            "bound": _bound(desk),
            "needed": needed,
            "headline": _headline(desk),
            "sentence": _sentence(desk, needed),
            "counts": [[name, int(book.counts[name])] for name in book.classes],
            "curve": [[point.n_labels, point.value, point.audit] for point in turns.curve.thinned(_POINTS)],
            "people": [{"name": one.name, "answers": len(book.done.get(one.id, []))} for one in desk.store.people()],
            "fit": {
                "labels": 0 if ranking is None else ranking.n_labels,
                "seconds": 0.0 if ranking is None else round(ranking.seconds, 1),
                "notes": [] if ranking is None else list(ranking.notes),
            },
            "problem": desk.problem,
        }


def _bound(desk: LabelingService) -> dict[str, Any] | None:
    audit, measured = desk.turns.audit, desk.turns.measured
    if audit is not None:
        value, kind = audit.anytime_upper, THEOREM
        basis = f"{count(audit.n_errors, 'error')} in {count(audit.n_labels, 'audited row')}"
    elif measured is not None:
        value, kind = measured["value"], MEASURED
        basis = f"cross-fitted on {count(measured['n_random'], 'random label')}"
    else:
        return None
    return {"value": value, "shown": percent(value, up=True), "kind": kind, "basis": basis}


def _headline(desk: LabelingService) -> str:
    goal = desk.turns.goal
    at_most = f"at most {percent(goal.target)} wrong, {percent(goal.level)} sure"
    return {
        PROVED: f"Proved: {at_most}",
        AUDITING: f"Proving: {at_most}?",
        LEARNING: "Learning",
    }[desk.turns.phase]


def _sentence(desk: LabelingService, needed: int | None) -> str:
    turns, book = desk.turns, desk.book
    audit = turns.audit
    if audit is not None and audit.proved:
        return (
            f"The frozen model errs on at most {percent(audit.anytime_upper, up=True)} of the {book.n_rows} rows of "
            f"this pool: a theorem, if the labels are right. {count(audit.n_labels, 'audited row')}, "
            f"{count(audit.n_errors, 'error')}. You can stop here."
        )
    if audit is not None:
        n = audit.n_labels
        if n == 0:
            return "The model is frozen. Rows drawn at random judge it now."
        more = "At this rate the target is out of reach." if needed is None else f"About {needed} more will do."
        return f"{count(audit.n_errors, 'error')} in {count(n, 'audited row')} so far. {more}"
    left = max(turns.freeze_at - len(book.labels), 0)
    first = f"{count(left, 'more label')} to learn from, then the model is frozen and judged."
    if left == 0:
        first = "The model is being refreshed; it is then frozen and judged."
    if turns.last is None:
        return first
    number, errors, n, why = turns.last
    found = f"{errors} of {n} audited rows were wrong, {_WHY.get(why, why)}"
    return f"Audit {number} did not prove it: {found}. Its labels teach the model now. {first}"


def _needed(desk: LabelingService) -> int | None:
    """Labels still needed, as estimated; while learning, at the least."""
    turns, n = desk.turns, len(desk.book.labels)
    if turns.audit is not None:
        return 0 if turns.audit.proved else turns.audit.labels_needed()
    audit = _least(turns.goal, turns.n_audits + 1, desk.book.n_rows)
    left = max(turns.freeze_at - n, 0)
    return None if audit is None else min(left + audit, desk.book.n_rows - n)


@lru_cache(maxsize=64)
def _least(goal: Goal, number: int, n_rows: int) -> int | None:
    return least_labels(goal.target, n_rows, level_of(goal.level, number))
