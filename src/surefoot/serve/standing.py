"""Where we stand, in numbers and in words: labels, the bound and its kind, what is still needed, and why."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

from surefoot.pool.labeling.desk import Desk
from surefoot.pool.labeling.proof import Goal, least_labels
from surefoot.pool.labeling.store import Person
from surefoot.pool.labeling.turns import AUDITING, LEARNING, PROVED
from surefoot.serve.html import percent
from surefoot.serve.worker import Fitter

THEOREM, MEASURED = "theorem", "measured"
# Points of the chart that can be told apart.
_POINTS = 120


def standing(desk: Desk, fitter: Fitter | None, people: list[Person]) -> dict[str, Any]:
    """All that the page shows of the present state, for its script."""
    with desk.lock:
        book, turns = desk.book, desk.turns
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
            "people": _people(desk, people),
            "fit": _fit(desk, fitter),
            "problem": desk.problem or (fitter.problem if fitter is not None else None),
            "report": "none" if fitter is None else fitter.report_state,
        }


def _bound(desk: Desk) -> dict[str, Any] | None:
    turns = desk.turns
    if turns.proof is not None:
        n, x = turns.proof.audit.n_labels, turns.proof.n_errors
        basis = f"{_count(x, 'error')} in {_count(n, 'audited row')}"
        return {
            "value": turns.proof.bound,
            "shown": percent(turns.proof.bound, up=True),
            "kind": THEOREM,
            "basis": basis,
        }
    if turns.measured is not None:
        value, n = turns.measured["value"], turns.measured["n_random"]
        basis = f"cross-fitted on {_count(n, 'random label')}"
        return _stated(value, MEASURED, basis)
    return None


def _stated(value: float, kind: str, basis: str) -> dict[str, Any]:
    return {"value": value, "shown": percent(value, up=True), "kind": kind, "basis": basis}


def _headline(desk: Desk) -> str:
    goal = desk.turns.goal
    at_most = f"at most {percent(goal.target)} wrong, {percent(goal.level)} sure"
    return {
        PROVED: f"Proved: {at_most}",
        AUDITING: f"Proving: {at_most}?",
        LEARNING: "Learning",
    }[desk.turns.phase]


def _sentence(desk: Desk, needed: int | None) -> str:
    turns, book = desk.turns, desk.book
    proof = turns.proof
    if proof is not None and proof.proved:
        return (
            f"The frozen model errs on at most {percent(proof.bound, up=True)} of the {book.n_rows} rows of this pool: "
            f"a theorem, if the labels are right. {_count(proof.audit.n_labels, 'audited row')}, "
            f"{_count(proof.n_errors, 'error')}. You can stop here."
        )
    if proof is not None:
        n = proof.audit.n_labels
        if n == 0:
            return "The model is frozen. Rows drawn at random judge it now."
        more = "At this rate the target is out of reach." if needed is None else f"About {needed} more will do."
        return f"{_count(proof.n_errors, 'error')} in {_count(n, 'audited row')} so far. {more}"
    left = max(turns.freeze_at - len(book.labels), 0)
    first = f"{_count(left, 'more label')} to learn from, then the model is frozen and judged."
    if left == 0:
        first = "The model is being refreshed; it is then frozen and judged."
    if turns.last is None:
        return first
    number, _, _, why = turns.last
    return f"Audit {number} did not prove it: {why}. Its labels teach the model now. {first}"


def _needed(desk: Desk) -> int | None:
    """Labels still needed, as estimated; while learning, at the least."""
    turns, n = desk.turns, len(desk.book.labels)
    if turns.proof is not None:
        return 0 if turns.proof.proved else turns.proof.labels_needed()
    audit = _least(turns.goal, turns.n_audits + 1, desk.book.n_rows)
    left = max(turns.freeze_at - n, 0)
    return None if audit is None else min(left + audit, desk.book.n_rows - n)


@lru_cache(maxsize=64)
def _least(goal: Goal, number: int, n_rows: int) -> int | None:
    return least_labels(goal, number, n_rows)


def _people(desk: Desk, people: list[Person]) -> list[dict[str, Any]]:
    return [{"name": one.name, "answers": len(desk.book.done.get(one.id, []))} for one in people]


def _fit(desk: Desk, fitter: Fitter | None) -> dict[str, Any]:
    ranking = desk.ranking
    since = None if fitter is None else fitter.since
    return {
        "labels": 0 if ranking is None else ranking.n_labels,
        "seconds": 0.0 if ranking is None else round(ranking.seconds, 1),
        "running": None if since is None else round(time.time() - since, 1),
        "notes": [] if ranking is None else list(ranking.notes),
    }


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
