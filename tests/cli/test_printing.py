"""What files hold is printed, not obeyed; and each fault of a file has its own words."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import skops.io
from sklearn.linear_model import LogisticRegression

from generators import Result, make_pool
from surefoot._printing import cell_text, visible
from surefoot.backends.dask_rows import local_client
from surefoot.cli import app
from surefoot.paper import reproduce
from surefoot.pool.model_file import load_model
from surefoot.pool.store import store_path
from surefoot.pool.table import read_table

Run = Callable[..., Result]
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u061c\x7f"
SEEN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u061c\x7f"


def is_clean(text: str) -> bool:
    return not any(ord(c) < 32 and c != "\n" for c in text) and not set(text) & set("\x7f\x9b\u202e\u061c")


def test_visible_writes_control_characters_out() -> None:
    assert visible(EVIL) == SEEN
    assert visible("a\nb\r\tc") == r"a\nb\r\tc"
    assert visible("a\nb\r", lines=True) == "a\nb\\r"
    assert visible("größe 日本 \N{NO-BREAK SPACE}12\u202f345") == "größe 日本 \N{NO-BREAK SPACE}12\u202f345"
    assert visible("\udcff").encode() == b"\\udcff"
    assert cell_text("x" * 100, 60) == "x" * 59 + "…"
    assert [cell_text(value) for value in (None, np.nan, 1 / 3, 7, "a\n b")] == ["–", "–", "0.333333", "7", "a b"]


@pytest.fixture
def evil(pool: Path) -> Path:
    """A pool whose headers, cells, classes and label hold escape sequences."""
    frame = make_pool()
    frame["plan"] = frame["plan"].replace("max", f"max{EVIL}")
    frame["churn"] = frame["churn"].replace("yes", f"yes{EVIL}")
    frame = frame.rename(columns={"age": f"age{EVIL}", "churn": f"churn{EVIL}"})
    frame.to_csv(pool, index=False)
    return pool


@pytest.mark.parametrize("as_json", [False, True])
def test_no_command_hands_them_on(run_cli: Run, evil: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    option = ("--json",) if as_json else ()
    label = ("--label", f"churn{EVIL}", "--radius", 5)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"1\nno{EVIL}\nq\n"))
    results = [
        run_cli("fit", evil, *label, "--drop", f"age{EVIL}", *option),
        run_cli("certify", "pool.skops", evil, "--radius", 5, *option),
        run_cli("query", evil, *label, *option),
        run_cli("label", evil, *label, *option),
        run_cli("predict", "pool.skops", evil, "--out", "p.csv", *option),
        run_cli("radius", evil, *label[:2], *option),
        run_cli("fit", evil, "--label", EVIL, *option),
    ]
    assert [result.code for result in results] == [0, 0, 0, 0, 0, 0, 2]
    for result in results:
        assert is_clean(result.out)
        assert is_clean(result.err)
    if as_json:
        assert f"age{EVIL}" in results[0].data["columns"]["left_out"]
    else:
        assert f"yes{SEEN}" in results[0].out.replace("\n", "").replace(" ", "")


def test_predictions_are_exact_for_programs_and_harmless_on_terminals(
    run_cli: Run, evil: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_cli("fit", evil, "--label", f"churn{EVIL}", "--radius", 5, "--no-report")
    piped = run_cli("predict", "pool.skops", evil).out
    assert f"p(yes{EVIL})" in pd.read_csv(io.StringIO(piped)).columns
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    shown = run_cli("predict", "pool.skops", evil).out
    assert is_clean(shown)
    assert f"p(yes{SEEN})" in shown


class TestSentences:
    """Each fault of a file has its own words, and is no fault of surefoot."""

    def test_nested_parquet(self, run_cli: Run, pool: Path) -> None:
        frame = pa.Table.from_pandas(make_pool())
        for values in ([{"a": 1}] * 120, [[1, 2]] * 120):
            pq.write_table(frame.append_column("deep", pa.array(values)), "deep.parquet")
            result = run_cli("fit", "deep.parquet", "--label", "churn", "--radius", 5, "--no-report", "--forget")
            assert result.code == 2
            assert "column 'deep' holds" in result.message
            assert "--drop 'deep'" in result.message
            done = run_cli("fit", "deep.parquet", "--label", "churn", "--radius", 5, "--no-report", "--drop", "deep")
            assert done.code == 0, done.message
            assert "holds" in run_cli("fit", "deep.parquet", "--label", "deep").message

    def test_nested_columns_can_be_labeled_beside(
        self, run_cli: Run, pool: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pq.write_table(
            pa.Table.from_pandas(make_pool()).append_column("deep", pa.array([[1, 2]] * 120)), "deep.parquet"
        )
        monkeypatch.setattr("sys.stdin", io.StringIO("1\n"))
        result = run_cli("label", "deep.parquet", "--label", "churn", "--radius", 5, "--drop", "deep", "--json")
        assert result.data["answered"] == 1, result.message
        again = run_cli("fit", "deep.parquet", "--label", "churn", "--radius", 5, "--drop", "deep", "--no-report")
        assert again.code == 0, again.message

    @pytest.mark.slow
    def test_long_cells(self, run_cli: Run, pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        frame = make_pool()
        frame["plan"] = np.where(frame["plan"] == "max", "x" * 1_500_000, frame["plan"])
        frame.rename(columns={"age": "a" * 200_000}).iloc[[*range(20), *frame["churn"].dropna().index]].to_csv(
            pool, index=False
        )
        label = (pool, "--label", "churn", "--radius", 5, "--json")
        result = run_cli("fit", *label, "--no-report")
        assert result.code == 0, result.message
        monkeypatch.setattr("sys.stdin", io.StringIO("1\n"))
        assert run_cli("label", *label).data["answered"] == 1
        assert run_cli("fit", *label, "--no-report").code == 0

    def test_what_a_model_cannot_answer(self, run_cli: Run, pool: Path) -> None:
        """Numbers so large that a model of scikit-learn gives NaN; and its own words, in one sentence."""
        frame = make_pool()[["age", "churn"]]
        clf = LogisticRegression().fit(frame[["age"]], np.arange(120) % 3)
        clf.coef_ *= 1e9
        skops.io.dump(clf, "steep.skops")
        frame.assign(age=[1.0] * 119 + [1e308]).to_csv(pool, index=False)
        result = run_cli("predict", "steep.skops", pool)
        assert (result.code, "no probabilities for row 120" in result.message) == (2, True)
        frame.assign(age=np.nan).to_csv(pool, index=False)
        refused = run_cli("predict", "steep.skops", pool).message
        assert "cannot read this table: Input X contains NaN. Pass" in refused

    def test_examples_of_cells_do_not_fill_the_screen(self, run_cli: Run, pool: Path) -> None:
        frame = make_pool()
        frame.assign(note="w" * 100_000, **{"n" * 100_000: 1.0}).to_csv(pool, index=False)
        result = run_cli("radius", pool, "--label", "churn", "--drop", "n" * 100_000)
        assert (result.code, "(constant, 'www" in result.message) == (0, True)
        assert "w" * 70 not in result.message.replace("\n", "")
        refused = run_cli("radius", pool, "--label", "churned", "--forget")
        assert "n" * 70 not in refused.message.replace("\n", "")

    def test_what_is_no_plain_file(self, run_cli: Run, tmp_path: Path) -> None:
        """It may never end: neither a pipe is waited for nor a device read until the memory is full."""
        os.mkfifo(tmp_path / "pipe.csv")
        (tmp_path / "zero.csv").symlink_to("/dev/zero")
        for name in ("pipe.csv", "zero.csv"):
            result = run_cli("fit", tmp_path / name, "--label", "churn")
            assert (result.code, "must be a plain file" in result.message) == (2, True)

    @pytest.mark.parametrize("text", ["5\n", '["x"]\n', "x" * 10_000])
    def test_odd_stores(self, run_cli: Run, pool: Path, text: str) -> None:
        store_path(pool).write_text(text)
        result = run_cli("fit", pool, "--label", "churn", "--no-report")
        assert result.code == 2
        assert "pool.csv.surefoot.db" in result.message.replace(" ", "")
        assert store_path(pool).read_text() == text

    def test_a_report_on_a_full_disk(self, run_cli: Run, pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        replace = Path.replace

        def full(path: Path, target: Path) -> Path:
            if target.suffix == ".html":
                raise OSError(28, "No space left on device")
            return replace(path, target)

        monkeypatch.setattr(Path, "replace", full)
        result = run_cli("fit", pool, "--label", "churn", "--radius", 5)
        assert result.code == 2
        assert "pool.html could not be written: No space left on device" in result.message
        assert sorted(path.name for path in Path().iterdir()) == ["pool.csv", "pool.csv.surefoot.db", "pool.skops"]

    def test_other_errors_of_the_system(self, run_cli: Run, pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise PermissionError(13, "Permission denied", "somewhere")

        monkeypatch.setattr("surefoot.pool.model.train", fail)
        result = run_cli("fit", pool, "--label", "churn")
        assert result.code == 2
        assert "somewhere: Permission denied" in result.message


@pytest.mark.parametrize(
    ("package", "extra", "call"),
    [
        ("skops", "cli", lambda: load_model("m.skops")),
        ("pyarrow", "cli", lambda: read_table("pool.csv")),
        ("pandas", "cli", lambda: read_table("pool.csv")),
        ("dask", "dask", local_client),
        ("distributed", "dask", local_client),
        ("matplotlib", "cli", lambda: reproduce("table2")),
    ],
)
def test_a_missing_extra_is_named(
    package: str, extra: str, call: Callable[[], Any], pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf'needs the package {package}: pip install "surefoot\[{extra}\]"'):
        call()


def test_json_reads_back_what_was_written_out(run_cli: Run, evil: Path) -> None:
    result = run_cli("fit", evil, "--label", f"churn{EVIL}", "--radius", 5, "--no-report", "--json")
    assert json.loads(result.out)["label"] == f"churn{EVIL}"


def test_many_columns_are_announced_before_they_are_read(
    run_cli: Run, pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six rows of 100,000 columns were read for minutes without a word."""
    how = ["fit", pool, "--label", "churn", "--no-report", "--force"]
    assert "columns: this takes" not in run_cli(*how).err
    monkeypatch.setattr(app, "_MANY_COLUMNS", 3)
    monkeypatch.setattr(app, "_SECONDS_PER_COLUMN", 60.0)
    found = run_cli(*how)
    assert found.code == 0
    assert f"pool.csv has {len(make_pool().columns)} columns: this takes about" in " ".join(found.err.split())
    assert "columns: this takes" not in str(json.loads(run_cli(*how, "--json").out)["notes"])
