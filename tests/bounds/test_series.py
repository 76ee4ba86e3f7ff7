"""Learn, freeze, prove: shares of the level, resuming, and a simulation of all bounds at all times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import surefoot as sf
from bounds.pools import numbered, told
from surefoot._types import FloatArray
from surefoot.bounds.picks import Picks
from surefoot.bounds.series import level_of

N = 200
TRUTH = (np.random.default_rng(0).random(N) < 0.4).astype(np.intp)


def series(**keywords: object) -> sf.AuditSeries:
    options: dict[str, object] = {"target_error": 0.02, "budget": 15, "random_state": 0}
    return sf.AuditSeries(numbered(N), **{**options, **keywords})  # type: ignore[arg-type]


def test_the_shares_sum_to_the_level() -> None:
    spent = [1 - level_of(0.9, j) for j in range(1, 10_001)]
    assert spent[0] == pytest.approx(0.05)
    assert sum(spent) == pytest.approx(0.1, rel=1e-3)
    assert sum(spent) < 0.1


def test_labels_of_an_audit_go_to_learning() -> None:
    found = series()
    clf, _ = told(TRUTH, 0.1, np.random.default_rng(1))
    first = found.freeze(clf).run(lambda row: int(TRUTH[row]))
    assert first.n_labels == 15
    assert first.done
    assert found.labels == first.labels
    other, _ = told(TRUTH, 0.05, np.random.default_rng(2))
    second = found.freeze(other)
    assert second.level == pytest.approx(1 - 0.1 / 6)
    second.run(lambda row: int(TRUTH[row]))
    assert not set(first.labels) & set(second.labels)
    assert len(found.labels) == 30
    with pytest.raises(ValueError, match="this audit is closed"):
        first.record(0, 0)


def test_learning_ends_an_audit() -> None:
    found = series()
    clf, _ = told(TRUTH, 0.1, np.random.default_rng(1))
    audit = found.freeze(clf).run(lambda row: int(TRUTH[row]), max_labels=4)
    row = next(r for r in range(N) if r not in found.labels)
    found.learn(row, int(TRUTH[row]))
    assert audit.next() is None
    assert len(found.labels) == 5
    with pytest.raises(ValueError, match="a row is labeled once"):
        found.learn(row, 0)
    with pytest.raises(ValueError, match="row must be a row of the pool"):
        found.learn(N, 0)


def test_a_proof_is_kept() -> None:
    found = series(budget=120, target_error=0.1)
    clf, error = told(TRUTH, 0.01, np.random.default_rng(3))
    found.freeze(clf).run(lambda row: int(TRUTH[row]))
    assert found.proved
    assert found.proof is not None
    assert error <= found.proof.value <= 0.1
    assert found.proof.level == 0.9  # which audit ends the series is not known beforehand
    assert "audit 1 of a series" in found.proof.assumptions[-1]
    assert "proved" in repr(found)


@pytest.mark.parametrize("picks", ["uniform", "weighted"])
def test_it_resumes_in_the_middle_of_an_audit(tmp_path: Path, picks: str) -> None:
    def work(found: sf.AuditSeries, labels: int) -> sf.AuditSeries:
        rng = np.random.default_rng(4)
        for rate in (0.1, 0.05):
            clf, _ = told(TRUTH, rate, rng)
            if found.audit is None and len(found.labels) > 15 and rate == 0.1:
                continue  # that audit is over
            found.freeze(clf).run(lambda row: int(TRUTH[row]), max_labels=labels if rate == 0.05 else None)
        return found

    whole = work(series(picks=picks), 15)
    path = tmp_path / "series.jsonl"
    work(series(picks=picks, journal=path), 6)
    resumed = series(picks=picks, journal=path)
    assert len(resumed.labels) == 21
    work(resumed, 15)
    assert resumed.labels == whole.labels
    assert resumed.audit is not None
    assert whole.audit is not None
    assert resumed.audit.anytime_bound().value == whole.audit.anytime_bound().value
    with pytest.raises(ValueError, match="level must be as it was"):
        series(picks=picks, journal=path, level=0.8)


class Falsified(Picks):
    """Says that it draws uniformly, and draws rows that the model is sure of, where it seldom errs."""

    def draw(self, left: NDArray[np.intp], step: int) -> tuple[int, FloatArray]:
        sure = Picks(self.seed, None)
        assert self.belief is not None
        chances = (1 - self.belief[left]) ** 12
        point = np.random.default_rng([*self.seed, step]).random() * chances.sum()
        position = int(np.searchsorted(np.cumsum(chances), point, side="right"))
        return min(position, len(left) - 1), sure.probabilities(left)


def ever_below(seed: int, picks: str) -> bool:
    """Whether, in one run of learning and audits, any bound at any time is below the error of its classifier."""
    rng = np.random.default_rng(seed)
    truth = (rng.random(N) < 0.4).astype(np.intp)
    found = sf.AuditSeries(numbered(N), target_error=0.02, budget=50, picks=picks, random_state=seed, level=0.9)
    for rate in (0.4, 0.2, 0.1):
        clf, error = told(truth, rate, rng, list(found.labels))
        audit = found.freeze(clf)
        while (row := audit.next()) is not None:
            audit.record(row, int(truth[row]))
            if audit.anytime_bound().value < error - 1e-12:
                return True
        for row in rng.permutation(N)[:8].tolist():
            if row not in found.labels:
                found.learn(row, int(truth[row]))
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
    monkeypatch.setattr("surefoot.bounds.draws.Picks", Falsified)
    assert sum(ever_below(seed, "weighted") for seed in range(15)) > 5
