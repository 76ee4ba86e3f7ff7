"""Table 1: the paper's own numbers give its counts; quick runs; the figure against a stored image; every reading runs.

To draw the stored image again after a deliberate change: SUREFOOT_NEW_BASELINE=1 pytest tests/paper; then look
at it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
import pytest
from matplotlib.testing.compare import compare_images

from surefoot.paper.protocol import Settings, Task
from surefoot.paper.runner import run_experiment
from surefoot.paper.table1_readings import (
    READINGS,
    SCALED_FIRST,
    SETTLED,
    STUDY,
    changed_methods,
    page_tables,
    rows_scaled_first,
)
from surefoot.paper.table1_trial import METHODS
from surefoot.paper.tables import PRINTED_AREAS as PRINTED
from surefoot.paper.tables import TABLE1, acceptance, areas_under, cells, contrasts, first_rows, observations

BASELINE = Path(__file__).parent / "baseline"
TOLERANCE = 6.0  # root-mean-square difference of pixels, of 255


def flat_rows(areas: dict[str, Any], trials: int = 3) -> pd.DataFrame:
    """Rows as of a run whose curves are constant: their areas are known."""
    return pd.DataFrame(
        [
            {
                "dataset": dataset,
                "trial": trial,
                "variant": "",
                "method": method,
                "likelihood": [area / 80.0] * 5,
                "queries_above_least": 0,
            }
            for dataset, values in areas.items()
            for trial in range(trials)
            for method, area in zip(METHODS, values, strict=True)
        ]
    )


def test_the_paper_s_numbers_give_the_counts_that_it_states() -> None:
    table = cells(flat_rows(PRINTED))
    assert table["difference"].abs().max() < 1e-9
    found = observations(table)
    assert found["paper"].tolist() == found["ours"].tolist() == [10, 5, 8, 14]
    assert found["of"].tolist() == [14] * 4
    assert not found["ours_only"].any()
    assert not found["paper_only"].any()
    assert acceptance(table)["count"].tolist() == [78, 13, 78, 0, 78, 78]


def test_differences_are_counted() -> None:
    areas = {name: list(values) for name, values in PRINTED.items()}
    areas["abalone"][0] += 2.6  # random, above DR now
    areas["yeast"][0] += 3.1
    areas["bank-leaky"][0] -= 30.0  # not counted
    areas["bank"] = [50.0, 49.0, 49.0, 49.0, 48.0, 48.9]
    rows = flat_rows(areas)
    table = cells(rows)
    assert acceptance(table)["count"].tolist() == [76, 12, 76, 0, 76, 76]
    found = observations(table).set_index("observation")
    assert found["ours_only"].tolist() == ["", "abalone", "", ""]
    assert found["also_on"].tolist() == ["bank", "bank", "", ""]
    by = contrasts(rows).set_index(["dataset", "contrast"])
    assert by.loc[("abalone", "better DR - random"), "ours"] == pytest.approx(69.8 - 71.3)
    assert by.loc[("abalone", "better DR - random"), "paper"] == pytest.approx(69.8 - 68.7)
    assert by.loc[("bank", "DR strong - DR weak"), "ours"] == pytest.approx(-0.9)


def test_areas_and_intervals() -> None:
    rng = np.random.default_rng(0)
    curves = np.sort(rng.random((7, 11)), axis=1)
    assert areas_under(curves) == pytest.approx(100 * np.trapezoid(np.median(curves, axis=0)) / 11)
    rows = flat_rows({"wine": PRINTED["wine"]}, trials=40)
    rows["likelihood"] = [list(0.5 + 0.1 * rng.normal() + np.zeros(3)) for _ in range(len(rows))]
    table = cells(rows)
    np.testing.assert_allclose(table["area_by_steps"], 1.5 * table["area"])
    # of constant curves the area is the median of the areas: the bootstrap's interval agrees with order statistics
    np.testing.assert_allclose(table["area"], table["median_of_areas"])
    np.testing.assert_allclose(table["area_low"], table["median_of_areas_low"], atol=2.5)
    assert ((table["area_low"] < table["area"]) & (table["area"] < table["area_high"])).all()


def test_a_start_shows_two_classes() -> None:
    y = (np.arange(300) < 6).astype(int)
    for seed in range(20):
        first = first_rows(y, np.random.default_rng(seed))
        assert len(set(first.tolist())) == 20
        assert set(y[first]) == {0, 1}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with mpl.rc_context():
        mpl.rcdefaults()
        out = tmp_path_factory.mktemp("table1")
        return run_experiment(TABLE1, Settings(("breast-cancer",), 3, quick=True), out=out, progress=False)


def test_a_quick_run_has_all_strategies(quick: Any) -> None:
    table = quick.tables["table1"]
    assert table["method"].tolist() == list(METHODS)
    assert (table["trials"] == 3).all()
    assert table["area_by_steps"].between(70, 97).all()
    curves = quick.tables["table1-curves"]
    assert len(curves) == 6 * 21
    first = curves[curves["labels"] == 20]
    assert first["likelihood"].nunique() == 1  # all strategies start from the same labels
    assert sorted(path.name for path in quick.out.iterdir()) == [
        "config.json",
        "records.jsonl",
        "table1-acceptance.csv",
        "table1-claims.csv",
        "table1-contrasts.csv",
        "table1-curves.csv",
        "table1.csv",
        "table1.pdf",
        "table1.png",
    ]


def test_the_figure(quick: Any, tmp_path: Path) -> None:
    with mpl.rc_context():
        mpl.rcdefaults()
        figure = TABLE1.draw(quick.tables, quick.settings)["table1"]
        expected, drawn = BASELINE / "table1.png", tmp_path / "table1.png"
        if os.environ.get("SUREFOOT_NEW_BASELINE"):
            expected.parent.mkdir(exist_ok=True)
            figure.savefig(expected, dpi=80)
            pytest.skip(f"{expected.name} was drawn anew: look at it")
        figure.savefig(drawn, dpi=80)
        difference = compare_images(str(expected), str(drawn), tol=TOLERANCE)
        assert difference is None, difference


def test_a_trial_is_a_function_of_its_task() -> None:
    settings = Settings(("breast-cancer",), 1, quick=True)
    a, b = (TABLE1.run(Task("breast-cancer", 4), settings) for _ in range(2))
    assert a == b
    assert a != TABLE1.run(Task("breast-cancer", 5), settings)


def test_readings(tmp_path: Path) -> None:
    settings = Settings(("breast-cancer",), 1, quick=True)
    found = run_experiment(STUDY, settings, out=tmp_path, progress=False).tables
    table = found["table1-readings-cells"]
    assert len(table) == len(READINGS) * 5
    areas = table.set_index(["reading", "method"])["area"]
    for variant in READINGS:
        for method in METHODS:
            if method == "dr_strong":
                continue
            if method not in changed_methods("breast-cancer", variant):
                assert areas[variant, method] == areas[SETTLED, method]
    assert changed_methods("breast-cancer", "DR: all candidates") == ("dr_weak",)
    assert areas["mean of losses, penalty 0.001 (printed)", "random"] != areas[SETTLED, "random"]


def test_a_method_that_a_reading_leaves_alone_keeps_its_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(("breast-cancer",), 1, quick=True)
    settled = {row["method"]: row for row in STUDY.run(Task("breast-cancer", 0, SETTLED), settings)}
    everything = tuple(settled)
    monkeypatch.setattr("surefoot.paper.table1_readings.changed_methods", lambda dataset, variant: everything)
    for row in STUDY.run(Task("breast-cancer", 0, "Min, Max: no norm (printed)"), settings):
        same = row["likelihood"] == settled[row["method"]]["likelihood"]
        assert same == (row["method"] not in ("min_mc", "max_mc"))


def test_rows_scaled_before_the_draw(dataset_path: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREFOOT_DATA", str(dataset_path("htru2").parent))
    X, y = rows_scaled_first("pulsar", 0)
    assert X.shape == (3278, 8)
    assert y.sum() == 1639
    assert np.abs(X).max() <= 1.0
    assert np.abs(X.mean(axis=0)).max() > 0.05  # of all rows the mean is 0, of the drawn ones it is not
    assert changed_methods("pulsar", SCALED_FIRST)
    assert not changed_methods("wine", SCALED_FIRST)


def test_the_page_shows_the_committed_tables() -> None:
    folder = Path(__file__).resolve().parents[2] / "docs" / "reproduction"
    page = (folder / "table1.md").read_text(encoding="utf-8")
    for name, table in page_tables(folder).items():
        assert table in page, f"table {name!r}: run python -m surefoot.paper.table1_readings docs/reproduction"
