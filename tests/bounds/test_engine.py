"""The audit engine: labels in any order against the order of the draws, what can still be proved, and policies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import betaincinv

from refusals import refuses
from surefoot.bounds.betting import PoolErrors
from surefoot.bounds.engine import (
    NO_ROW_LEFT,
    OUT_OF_REACH,
    TOO_LONG,
    AuditEngine,
    AuditPolicy,
    LearningState,
    level_of,
)

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
    assert least == PoolErrors(500, 0.95).labels_needed(26, 0, 0, 0.0) == found.labels_needed()
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

    def state(self, **changes: Any) -> LearningState:
        """A loop with 50 labels; two of 50 are wrong in cross-validation."""
        return replace(LearningState(400, 50, 0, 50, 50, 2, 0, 1, 0.05, 0.9), **changes)

    def test_a_few_labels_decide_nothing(self) -> None:
        untested = self.state(n_tested=0, n_errors=0)
        policy = AuditPolicy()
        assert policy.reason(self.audit(10, 19), untested) is None
        assert policy.reason(self.audit(10, 20), untested) == TOO_LONG

    def test_an_audit_that_is_nearly_done_goes_on(self) -> None:
        assert AuditPolicy().reason(self.audit(0, 30), self.state()) is None
        assert AuditPolicy().reason(self.audit(9, 30), self.state()) == TOO_LONG

    def test_patience_is_the_ratio_at_which_an_audit_ends(self) -> None:
        found, state = self.audit(2, 30), self.state()
        more = AuditPolicy().labels_left(state, found)
        after = replace(state, n_labels=80, n_tested=80, n_errors=4, audit=2)
        again = min(
            (plan for n in range(80, 400) if (plan := AuditPolicy()._plan(after, n)) is not None),
            key=lambda plan: plan.labels,
        ).labels
        assert more is not None
        ratio = more / again
        assert AuditPolicy(patience=max(1.1 * ratio, 1.0)).reason(found, state) is None
        if ratio > 1.1:
            assert AuditPolicy(patience=0.9 * ratio).reason(found, state) == TOO_LONG

    def test_a_proved_one_and_one_without_a_target_go_on(self) -> None:
        assert AuditPolicy().reason(self.audit(0, 200), self.state()) is None
        assert AuditPolicy().reason(self.audit(30, 30, target=None), self.state()) is None

    def test_out_of_reach_and_no_row_left(self) -> None:
        known = dict.fromkeys(range(30), "yes")
        found = AuditEngine(["no"] * 400, known, level=0.95, seed=1, target=0.05)
        assert AuditPolicy().reason(found, self.state()) == OUT_OF_REACH
        assert AuditPolicy(first=1000).reason(self.audit(40, 400), self.state()) == NO_ROW_LEFT

    def test_an_audit_begins_at_its_share_of_the_labels_of_the_last(self) -> None:
        policy = AuditPolicy(20, 1.2)
        assert [policy.n_first(self.state(n_frozen=n)) for n in (0, 20, 21, 100)] == [20, 24, 26, 120]
        assert not policy.begins(self.state(n_labels=19, n_tested=0, n_errors=0))
        assert policy.begins(self.state(n_labels=20, n_tested=0, n_errors=0))  # nothing is known: an audit will tell

    def test_no_audit_begins_that_cross_validation_knows_to_fail(self) -> None:
        hopeless = self.state(n_errors=25)
        assert not AuditPolicy(patience=1e9).begins(hopeless)
        assert (AuditPolicy().labels_left(hopeless) or 350) > 300  # nearly every row
        assert AuditPolicy().begins(self.state(n_errors=0))

    def test_the_plan_has_the_fewest_labels(self) -> None:
        """Against all numbers of labels to learn from, one by one, with the audit of the engine itself."""
        state = LearningState(3000, 60, 0, 60, 60, 3, 0, 2, 0.05, 0.9)
        plan = AuditPolicy().plan(state)
        assert plan is not None
        rate = betaincinv(3.5, 57.5, 0.25)
        totals = []
        for n in range(60, 600, 4):
            audit = PoolErrors(3000 - n, level_of(0.9, 2)).labels_needed(151, 0, 0, rate * (60 / n) ** 0.5)
            totals += [] if audit is None else [n - 60 + audit]
        assert plan.labels == pytest.approx(min(totals), rel=0.1)

    def test_labels_left_follow_the_errors(self) -> None:
        policy, state = AuditPolicy(), self.state()
        few, more = policy.labels_left(state, self.audit(0, 40)), policy.labels_left(state, self.audit(1, 40))
        assert few is not None
        assert more is not None
        assert 0 < few < more
        assert policy.labels_left(replace(state, target=0.9), self.audit(0, 40)) == 0  # that is proved already


def test_a_new_target_changes_no_bound() -> None:
    """An audit that aims at one target after another has the bound of an audit that never had one, at each label."""
    plain, aiming = (AuditEngine(["no"] * 400, {}, level=0.95, seed=1, target=target) for target in (None, 0.3))
    for k, draw in enumerate(plain.draw(300)):
        label = "yes" if k % 40 == 39 else "no"
        plain.settle(draw.row, label)
        aiming.settle(draw.row, label)
        if aiming.proved:
            assert aiming.anytime_upper <= (aiming.target or 0)
            aiming.aim(0.5 * aiming.anytime_upper)  # looking at the bound before
        assert aiming.anytime_upper == plain.anytime_upper
