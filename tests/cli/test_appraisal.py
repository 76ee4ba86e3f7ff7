"""The worst case over some rows, proved over all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from generators import make_pool
from surefoot.bounds.result import MEASURED, ErrorBound
from surefoot.pool import appraisal, worst
from surefoot.pool.model import most_rows, train
from surefoot.pool.options import Clock, FitOptions
from surefoot.pool.table import clean, read_labeled_table
from surefoot.pool.training import LabeledTable
from surefoot.problem.rows import unwrap


@pytest.mark.parametrize("choices", [FitOptions(), FitOptions(radius=0.6), FitOptions(prior=(0.6, 0.4))])
def test_a_bound_from_some_rows_holds_over_all(
    choices: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pool(900, 40).to_csv(tmp_path / "t.csv", index=False)
    pool = clean(read_labeled_table(tmp_path / "t.csv", "churn"))
    start = LabeledTable.from_pool(pool, np.zeros(len(pool.rows), dtype=bool))
    losses = appraisal.losses_of(train(start, FitOptions(), Clock()).clf, start)
    exact = worst.worst_case(start, choices, losses)
    monkeypatch.setattr(worst, "_ENTRIES", 1)
    quick = worst.worst_case(start, choices, losses)
    assert isinstance(exact, worst.PoolWorstCase)
    assert isinstance(quick, worst.PoolWorstCase)
    assert exact.sample is None
    assert quick.sample is not None
    assert len(quick.sample) == 250
    for loss, certificate in exact.certificates.items():
        found = quick.certificates[loss]
        assert certificate.lower - 1e-9 <= found.risk <= certificate.risk + 0.05
        assert found.radius == pytest.approx(certificate.radius, abs=1e-9)
    assert quick.constant_error == pytest.approx(exact.constant_error, abs=1e-6)


def test_learning_is_bounded_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from surefoot.pool import model

    make_pool(300, 40).to_csv(tmp_path / "t.csv", index=False)
    pool = clean(read_labeled_table(tmp_path / "t.csv", "churn"))
    start = LabeledTable.from_pool(pool, np.zeros(len(pool.rows), dtype=bool))
    assert most_rows(start) > 50_000
    assert train(start, FitOptions(), Clock()).complete
    monkeypatch.setattr(model, "_WORK", 1)
    monkeypatch.setattr(model, "_FEWEST_ROWS", 60)
    some = train(start, FitOptions(), Clock())
    assert some.sample is not None
    assert len(some.sample) == 60
    assert "random sample of 60 of the 260 unlabeled rows" in some.notes[0]
    assert train(start, FitOptions(learn_rows=0), Clock()).complete


def test_rows_to_label_next_are_found_where_some_rows_were_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from surefoot.pool import model
    from surefoot.pool.next_rows import rank

    make_pool(300, 40).to_csv(tmp_path / "t.csv", index=False)
    pool = clean(read_labeled_table(tmp_path / "t.csv", "churn"))
    monkeypatch.setattr(model, "_WORK", 1)
    monkeypatch.setattr(model, "_FEWEST_ROWS", 60)
    ranked = rank(pool, FitOptions(), Clock(), n=5, most=0)
    rows = [row for row, _ in ranked.rows]
    assert len(set(rows)) == 5
    assert not pool.labeled[rows].any()
    trained = train(LabeledTable.from_pool(pool, np.zeros(300, dtype=bool)), FitOptions(), Clock())
    assert trained.sample is not None
    assert set(rows) <= set(np.flatnonzero(~pool.labeled)[trained.sample].tolist())
    for row, one in ranked.rows:
        assert one.proba == pytest.approx(trained.clf.predict_proba(pool.rows[[row]])[0], abs=1e-9)


@pytest.mark.parametrize(("budget", "expected"), [(None, 260), (1e6, 260), (1e-3, 100)])
def test_cross_validation_uses_the_rows_that_the_time_allows(
    budget: float | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pool(300, 40).to_csv(tmp_path / "t.csv", index=False)
    pool = clean(read_labeled_table(tmp_path / "t.csv", "churn"))
    start = LabeledTable.from_pool(pool, np.zeros(len(pool.rows), dtype=bool))
    trained = train(start, FitOptions(), Clock())
    seen = []

    def bound(_clf: object, _rows: object, y: np.ndarray, *, X_unlabeled: object, **_options: object) -> ErrorBound:
        seen.append(len(unwrap(X_unlabeled)[0]))
        return ErrorBound(0.5, MEASURED, "crossfit", "a test", 0.9, "zero_one", (), len(y), 1, 1 / len(y))

    monkeypatch.setattr(appraisal, "error_bound", bound)
    monkeypatch.setattr(Clock, "left", property(lambda self: float("inf") if self.budget is None else self.budget))
    found = appraisal.cross_fitted(trained, FitOptions(), Clock(budget))
    assert isinstance(found, ErrorBound)
    assert seen == [expected]
