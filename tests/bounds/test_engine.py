"""The audit engine: labels in any order against the order of the draws, what can still be proved, and policies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from refusals import refuses
from surefoot.bounds.engine import NO_ROW_LEFT, OUT_OF_REACH, TOO_LONG, AuditEngine, FreezeSchedule, GiveUp
from surefoot.bounds.size import least_labels

N = 80
RNG = np.random.default_rng(0)
TRUTH = RNG.integers(0, 2, N).tolist()
PREDICTIONS = [1 - label if RNG.random() < 0.1 else label for label in TRUTH]
BELIEF = RNG.beta(0.5, 3, N)
KNOWN = {row: TRUTH[row] for row in range(15)}


def engine(**options: Any) -> AuditEngine:
    values: dict[str, Any] = {"level": 0.9, "seed": 3, **options}
    return AuditEngine(PREDICTIONS, KNOWN, **values)


@pytest.mark.parametrize("belief", [None, BELIEF], ids=["uniform", "weighted"])
@pytest.mark.parametrize("target", [None, 0.25])
def test_the_state_depends_on_the_labels_and_not_on_their_history(belief: Any, target: float | None) -> None:
    """After any sequence of labels, changes and retractions, it is that of an engine told the labels in their order."""
    rng = np.random.default_rng(5)
    found = engine(belief=belief, uniform_fraction=0.5, target=target)
    now: dict[int, Any] = dict(KNOWN)
    rows = [draw.row for draw in found.draw(40)]
    for _ in range(250):
        row = int(rng.choice(rows[:30] if rng.random() < 0.9 else list(KNOWN)))
        label = [TRUTH[row], TRUTH[row], TRUTH[row], 1 - TRUTH[row], None][rng.integers(5)]
        if rng.random() < 0.1:
            found.unsettle(row)
            now[row] = None
            if row not in KNOWN:
                del now[row]
        else:
            found.settle(row, label)
            now[row] = label
        fresh = AuditEngine(
            PREDICTIONS,
            {row: now[row] for row in KNOWN},
            level=0.9,
            seed=3,
            belief=belief,
            uniform_fraction=0.5,
            target=target,
        )
        while (draw := fresh.next_draw()) is not None and draw.row in now:
            fresh.settle(draw.row, now[draw.row])
        assert found.labels == fresh.labels
        assert found.known == fresh.known
        assert (found.n_errors, found.known_errors) == (fresh.n_errors, fresh.known_errors)
        assert found.anytime_upper == fresh.anytime_upper
        assert found.next_draw() == fresh.next_draw()


@pytest.mark.parametrize("belief", [None, BELIEF], ids=["uniform", "weighted"])
def test_looking_ahead_changes_nothing(belief: Any) -> None:
    ahead, step = engine(belief=belief, uniform_fraction=0.5), engine(belief=belief, uniform_fraction=0.5)
    draws = ahead.draw(1000)
    assert len(draws) == len({draw.row for draw in draws}) == N - len(KNOWN)
    assert ahead.n_labels == 0
    for draw in draws:
        assert step.next_draw() == draw
        step.settle(draw.row, TRUTH[draw.row])
    assert step.next_draw() is None
    assert ahead.is_uniform is step.is_uniform is (belief is None)


def test_a_gap_holds_the_count_back() -> None:
    found = engine()
    first, second, third = (draw.row for draw in found.draw(3))
    found.settle(second, TRUTH[second])
    found.settle(third, None)
    assert found.n_labels == 0
    found.settle(first, TRUTH[first])
    assert found.labels == {first: TRUTH[first], second: TRUTH[second], third: None}
    assert found.n_errors >= 1
    found.unsettle(second)
    assert list(found.labels) == [first]


@pytest.mark.parametrize("plan", [None, 20])
def test_what_can_still_be_proved(plan: int | None) -> None:
    """Against an engine that is told right labels from there on."""
    reached = set()
    for errors in range(6):
        for n in (12, 20, 35):
            found = engine(target=0.3, plan=plan)
            rows = [draw.row for draw in found.draw(60)]
            for row in rows[:8]:
                found.settle(row, PREDICTIONS[row] if rows.index(row) >= errors else None)
            said = found.can_still_prove(n)
            for row in rows[8 : n if plan is None else plan]:
                found.settle(row, PREDICTIONS[row])
            assert said is found.proved
            reached.add(said)
    assert reached == {True, False}


@pytest.mark.parametrize(("wrong", "target"), [(0.02, 0.04), (0.05, 0.1)])
def test_the_labels_needed_are_those_that_it_takes(wrong: float, target: float) -> None:
    """With errors spread evenly at the rate so far, the projection names the label at which the target is proved."""
    found = AuditEngine(["no"] * 3000, {}, level=0.95, seed=1, target=target)
    every, said = round(1 / wrong), None
    for place, draw in enumerate(found.draw(3000), start=1):
        found.settle(draw.row, "yes" if place % every == 0 else "no")
        if place == 2 * every:
            said = place + (found.labels_needed() or 0)
        if found.proved:
            break
    assert said is not None
    assert abs(place - said) <= 0.2 * place, (place, said)


def test_the_least_labels_are_those_without_an_error() -> None:
    found = AuditEngine(["no"] * 500, {}, level=0.95, seed=1, target=0.05)
    least = found.least_labels()
    assert least == least_labels(0.05, 500, 0.95) == found.labels_needed()
    for draw in found.draw(500):
        if found.proved:
            break
        found.settle(draw.row, "no")
    assert found.n_labels == least
    with refuses("sampling"):
        engine(belief=BELIEF, target=0.1).labels_needed()


class TestPolicy:
    def audit(self, wrong: int, n: int, **options: Any) -> AuditEngine:
        found = AuditEngine(["no"] * 400, {}, **{"level": 0.95, "seed": 1, "target": 0.05, **options})
        for k, draw in enumerate(found.draw(n)):
            found.settle(draw.row, "yes" if k < wrong else "no")
        return found

    def test_it_looks_at_the_rate_from_the_thirtieth_label_on(self) -> None:
        assert GiveUp().reason(self.audit(10, 29)) is None
        assert GiveUp().reason(self.audit(10, 30)) == TOO_LONG

    def test_patience(self) -> None:
        found = self.audit(1, 30)
        least, more = found.least_labels(), found.labels_needed()
        assert least is not None
        assert more is not None
        assert GiveUp(patience=1.01 * more / least).reason(found) is None
        assert GiveUp(patience=0.99 * more / least).reason(found) == TOO_LONG

    def test_a_proved_one_and_one_without_a_target_go_on(self) -> None:
        assert GiveUp().reason(self.audit(0, 200)) is None
        assert GiveUp().reason(self.audit(30, 30, target=None)) is None

    def test_out_of_reach_and_no_row_left(self) -> None:
        known = dict.fromkeys(range(30), "yes")
        found = AuditEngine(["no"] * 400, known, level=0.95, seed=1, target=0.05)
        assert GiveUp().reason(found) == OUT_OF_REACH
        assert GiveUp(after=1000).reason(self.audit(40, 400)) == NO_ROW_LEFT

    def test_an_audit_begins_at_its_share_of_the_labels_of_the_last(self) -> None:
        schedule = FreezeSchedule(20, 1.2)
        assert [schedule.n_labels(before) for before in (0, 20, 21, 100)] == [20, 24, 26, 120]
