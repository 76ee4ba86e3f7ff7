"""Classifiers frozen by hand: shares of the level, resuming, and a simulation of all bounds at all times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from generators import numbered, told
from refusals import refuses
from surefoot._errors import FileError, LockedError
from surefoot._validation import FloatArray
from surefoot.active import AuditPolicy, ProvenLabeling
from surefoot.bounds.engine import AuditEngine, LearningState, RowSampler, level_of

N = 200
TRUTH = (np.random.default_rng(0).random(N) < 0.4).astype(np.intp)


class Never(AuditPolicy):
    """Ends no audit."""

    def reason(self, audit: AuditEngine, state: LearningState) -> str | None:
        return None


def labeling(budget: int | None = 15, **keywords: Any) -> ProvenLabeling:
    options: dict[str, Any] = {"target_error": 0.02, "policy": Never(budget=budget)}
    return ProvenLabeling(None, numbered(N), **{"random_state": 0, **options, **keywords})


def truth(row: int) -> int:
    return int(TRUTH[row])


def test_the_shares_sum_to_the_level() -> None:
    spent = [1 - level_of(0.9, j) for j in range(1, 10_001)]
    assert spent[0] == pytest.approx(0.05)
    assert sum(spent) == pytest.approx(0.1, rel=1e-3)
    assert sum(spent) < 0.1


def test_labels_of_an_audit_go_to_learning() -> None:
    found = labeling(target_error=0.3)
    clf, _ = told(TRUTH, 0.3, np.random.default_rng(1))
    first = found.freeze(clf)
    found.run(truth)
    assert not found.is_auditing  # `freeze` has its turn
    assert 0 < first.n_labels <= 15
    assert found.labels == found.learned == first.labels
    other, _ = told(TRUTH, 0.05, np.random.default_rng(2))
    second = found.freeze(other)
    assert second.level == pytest.approx(1 - 0.1 / 6)
    found.run(truth, max_labels=first.n_labels + 5)
    assert not set(first.labels) & set(second.labels)
    assert second.known == first.labels


def test_an_audit_ends_with_its_budget() -> None:
    found = labeling(target_error=0.12, budget=15)
    clf, _ = told(TRUTH, 0.0, np.random.default_rng(1))
    audit = found.freeze(clf)
    assert found.budget == 15
    assert not audit.can_still_prove(15)  # so it is given up at once
    assert found.next() is None
    assert (found.n_audits, len(found.labels)) == (1, 0)


def test_the_planned_rule_proves_at_its_number_of_labels() -> None:
    clf, error = told(TRUTH, 0.01, np.random.default_rng(3))
    found = labeling(target_error=0.1, policy=AuditPolicy(budget=30, rule="planned"))
    audit = found.freeze(clf)
    found.run(truth)
    assert found.proved
    assert audit.n_labels <= 30
    assert found.proof is not None
    assert error <= found.proof.value == audit.planned_upper(30) <= 0.1
    with refuses("budget", "None"):
        AuditPolicy(rule="planned")


def test_learning_ends_an_audit() -> None:
    found = labeling(None)
    clf, _ = told(TRUTH, 0.1, np.random.default_rng(1))
    found.freeze(clf)
    found.run(truth, max_labels=4)
    row = next(r for r in range(N) if r not in found.labels)
    found.learn({row: truth(row)})
    assert found.next() is None
    assert len(found.labels) == 5
    with refuses("row"):
        found.learn({row: 0})
    with refuses("row", 200):
        found.learn({N: 0})


def test_a_proof_is_kept() -> None:
    found = labeling(120, target_error=0.1)
    clf, error = told(TRUTH, 0.01, np.random.default_rng(3))
    found.freeze(clf)
    found.run(truth)
    assert found.proved
    assert found.model is clf
    assert found.proof is not None
    assert error <= found.proof.value <= 0.1
    assert found.proof.level == 0.9  # which audit ends the series is not known beforehand
    assert "audit 1 of a series" in found.proof.assumptions[-1]
    assert "proved" in repr(found)


@pytest.mark.parametrize("picks", ["uniform", "weighted"])
def test_it_resumes_in_the_middle_of_an_audit(tmp_path: Path, picks: str) -> None:
    def work(found: ProvenLabeling, labels: int) -> ProvenLabeling:
        rng = np.random.default_rng(4)
        for rate in (0.1, 0.05):
            clf, _ = told(TRUTH, rate, rng)
            if found.n_audits and rate == 0.1:
                continue  # that audit is over
            found.freeze(clf)
            found.run(truth, max_labels=15 if rate == 0.1 else labels)
            if rate == 0.1:
                found.give_up()
        return found

    whole = work(labeling(None, sampling=picks), 30)
    path = tmp_path / "series.jsonl"
    first = work(labeling(None, sampling=picks, journal=path), 21)
    with pytest.raises(LockedError):
        labeling(None, sampling=picks, journal=path)
    first.close()
    resumed = labeling(None, sampling=picks, journal=path)
    assert len(resumed.labels) == 21
    assert resumed.next() is None  # the classifier is not in the journal
    work(resumed, 30)
    assert resumed.labels == whole.labels
    assert resumed.audit is not None
    assert whole.audit is not None
    assert resumed.audit.anytime_upper == whole.audit.anytime_upper
    resumed.close()
    with refuses("level", 0.8):
        labeling(None, sampling=picks, journal=path, level=0.8)


@pytest.mark.parametrize(
    "damaged",
    [
        "{}",
        '{"learn":[1]}',
        '{"learn":[1000,0]}',
        '{"learn":5}',
        '{"pass":"x"}',
        '{"freeze":7,"predictions":"aa"}',
        '{"freeze":2}',
        '{"audit":9,"label":[1,0],"p":0.1}',
        '{"audit":1,"label":[1]}',
    ],
)
def test_a_damaged_journal_is_named_with_its_line(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "series.jsonl"
    first = labeling(None, journal=path)
    first.learn({0: 0, 1: 1})
    first.freeze(told(TRUTH, 0.1, np.random.default_rng(1))[0])
    first.run(truth, max_labels=6)
    first.close()
    lines = path.read_text().splitlines()
    lines[5] = damaged
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(FileError, match=r"series\.jsonl .* line 6"):
        labeling(None, journal=path)


class Falsified(RowSampler):
    """Says that it draws uniformly, and draws rows that the model is sure of, where it seldom errs."""

    def draw(self, left: NDArray[np.intp], step: int) -> tuple[int, FloatArray]:
        sure = RowSampler(self.seed, None)
        assert self.belief is not None
        chances = (1 - self.belief[left]) ** 12
        point = np.random.default_rng([*self.seed, step]).random() * chances.sum()
        position = int(np.searchsorted(np.cumsum(chances), point, side="right"))
        return min(position, len(left) - 1), sure.probabilities(left)


def ever_below(seed: int, picks: str) -> bool:
    """Whether, in one run of learning and audits, any bound at any time is below the error of its classifier."""
    rng = np.random.default_rng(seed)
    hidden = (rng.random(N) < 0.4).astype(np.intp)
    policy = Never(budget=50)
    found = ProvenLabeling(None, numbered(N), target_error=0.02, policy=policy, sampling=picks, random_state=seed)
    for rate in (0.4, 0.2, 0.1):
        clf, error = told(hidden, rate, rng, list(found.labels))
        audit = found.freeze(clf)
        while audit.n_labels < 50 and not audit.proved:  # by hand: past the point where the loop gives up
            draw = audit.next_draw()
            assert draw is not None
            found._answer(draw.row, int(hidden[draw.row]))
            if audit.anytime_upper < error - 1e-12:
                return True
        for row in rng.permutation(N)[:8].tolist():
            if row not in found.labels:
                found.learn({row: int(hidden[row])})
    return False


@pytest.mark.parametrize("picks", ["uniform", "weighted"])
def test_no_more_runs_than_allowed_are_ever_below_the_truth(picks: str) -> None:
    assert sum(ever_below(seed, picks) for seed in range(20)) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("picks", ["uniform", "weighted"])
def test_of_1000_runs_at_most_100_are_ever_below_the_truth(picks: str) -> None:
    assert sum(ever_below(seed, picks) for seed in range(1000)) <= 100


def test_falsified_probabilities_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same simulation, with draws that are not as logged: far more than 10 % are below the truth."""
    monkeypatch.setattr("surefoot.bounds.engine.RowSampler", Falsified)
    assert sum(ever_below(seed, "weighted") for seed in range(15)) > 5
