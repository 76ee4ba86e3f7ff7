"""Files that cannot be used: a clear message, exit code 2, no stack trace, nothing written."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from generators import Result, make_pool

Run = Callable[..., Result]


def write(frame: pd.DataFrame, path: str = "bad.csv", **options: Any) -> Path:
    frame.to_csv(path, index=False, **options)
    return Path(path)


def with_column(values: Any) -> Path:
    frame = make_pool()
    frame["extra"] = values if np.ndim(values) == 0 else list(values)[: len(frame)]
    return write(frame)


def with_labels(change: Callable[[Any], Any]) -> Path:
    frame = make_pool()
    frame["churn"] = change(frame["churn"].to_numpy(dtype=object))
    return write(frame)


def raw(content: bytes) -> Path:
    Path("bad.csv").write_bytes(content)
    return Path("bad.csv")


def diverse() -> Path:
    rows = np.arange(100_000)
    frame = pd.DataFrame({"x": rows % 7, "word": [f"w{row * 7919 % 100_003}" for row in rows]})
    frame["churn"] = np.where(rows < 10, "yes", np.where(rows < 20, "no", None))
    return write(frame)


def folder() -> Path:
    Path("folder.csv").mkdir()
    return Path("folder.csv")


CASES: dict[str, tuple[Callable[[], Path], str]] = {
    "missing": (lambda: Path("none.csv"), "none.csv could not be read: No such file"),
    "empty": (lambda: raw(b""), "bad.csv must hold a table; it is empty"),
    "blank": (lambda: raw(b"\n\n"), "must begin with a header"),
    "header only": (lambda: raw(b"a,churn\n"), "has a header and no rows"),
    "ragged": (lambda: raw(b"a,churn\n1,x\n2\n"), "every row must have as many cells as the header, 2"),
    "column": (lambda: write(make_pool().rename(columns={"churn": "left"})), "has no column 'churn' .*'age', 'income'"),
    "twice": (lambda: raw(b"a,a,churn\n1,2,x\n"), "column names must differ; got a"),
    "one class": (
        lambda: with_labels(lambda y: np.where(y == "yes", None, y)),
        "must show two classes or more; all .* 'no'",
    ),
    "no label": (lambda: with_labels(lambda y: np.full(len(y), None)), "all 120 are empty"),
    "no unlabeled": (lambda: with_labels(lambda y: ["yes", "no"] * 60), "all 120 are filled"),
    "quantity": (
        lambda: with_labels(lambda y: [*np.linspace(0, 1, 119), None]),
        "must contain classes, got 119 different numbers",
    ),
    "infinite": (lambda: with_column([*range(100), float("inf"), *range(40)]), "finite numbers; got inf in row 101"),
    "not UTF-8": (lambda: raw(b"a,churn\n\xc3\xa9,caf\xe9\n"), r"must be text in utf-8; byte 14 \(0xe9, line 2\)"),
    "folder": (folder, "folder.csv must be a file; it is a folder"),
    "kind": (lambda: Path("pool.xls"), "ends in one of .csv, .tsv, .parquet"),
    "not Parquet": (
        lambda: Path("bad.csv").rename("x.parquet") if raw(b"junk") else Path(),
        "could not be read as Parquet",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_fit_refuses(case: str, run_cli: Run, pool: Path) -> None:
    make, message = CASES[case]
    path = make()
    before = sorted(Path().iterdir())
    result = run_cli("fit", path, "--label", "churn")
    assert result.code == 2
    assert re.search(message, result.message), result.message
    assert "Traceback" not in result.err
    assert result.out == ""
    assert sorted(Path().iterdir()) == before


STRICT: dict[str, tuple[Callable[[], Path], str]] = {
    "only NaN": (lambda: with_column(np.nan), r"'extra' \(empty\).*--drop 'extra'"),
    "constant": (lambda: with_column(3), r"'extra' \(constant, .*--drop 'extra'.*--strict"),
    "categories": (diverse, r"'word' \(an identifier with 100000 different values"),
    "names": (lambda: with_column([f"name {i}" for i in range(120)]), r"'extra' \(an identifier"),
    "mixed": (lambda: with_column([*range(100), "none", *range(40)]), "mixes numbers and texts: row 101 holds 'none'"),
}


@pytest.mark.parametrize("case", STRICT)
def test_what_is_left_out_is_refused_when_asked(case: str, run_cli: Run, pool: Path) -> None:
    make, message = STRICT[case]
    path = make()
    result = run_cli("fit", path, "--label", "churn", "--strict")
    assert result.code == 2
    assert re.search(message, result.message), result.message


@pytest.mark.parametrize("case", ["missing", "ragged", "quantity"])
def test_errors_are_one_object_with_json(case: str, run_cli: Run, pool: Path) -> None:
    result = run_cli("fit", CASES[case][0](), "--label", "churn", "--json")
    assert result.code == 2 == result.data["exit_code"]
    assert re.search(CASES[case][1], result.data["error"])
    assert result.err == ""


def test_useless_columns_are_left_out_in_one_try(run_cli: Run, pool: Path) -> None:
    frame = make_pool()
    frame["constant"], frame["empty"], frame["note"] = 1, np.nan, [f"text {i}" for i in range(len(frame))]
    result = run_cli("fit", write(frame), "--label", "churn", "--no-report", "--json", "-r", 5)
    assert result.code == 0
    assert set(result.data["columns"]["left_out"]) == {"constant", "empty", "note"}


@pytest.mark.parametrize(("mark", "shown"), [(";", "';'"), ("\t", "tab"), ("|", "'|'")])
def test_delimiters_are_found_in_one_try(mark: str, shown: str, run_cli: Run, pool: Path) -> None:
    frame = make_pool()
    frame["plan"] = frame["plan"] + ", all of it"  # commas in cells
    path = write(frame, sep=mark)
    result = run_cli("fit", path, "--label", "churn", "--no-report", "--json", "-r", 5, "--out", "found.skops")
    assert result.code == 0
    assert f"reading {path.name} with the delimiter {shown} (override with --delimiter)." in result.data["notes"]
    assert run_cli("predict", "found.skops", path, "--json").code == 0
    assert run_cli("score", "found.skops", path, "--json").code == 0
    given = run_cli("fit", path, "--delimiter", ",")
    assert given.code == 2
    assert f"Pass --delimiter {shown}" in given.message
    assert shown not in str(run_cli("fit", path, "--delimiter", mark, "--no-report", "--json", "-r", 5).data["notes"])


def test_missing_marks_and_encodings_can_be_named(run_cli: Run, pool: Path) -> None:
    frame = make_pool()
    frame["plan"] = frame["plan"].replace("max", "größe")
    frame["age"] = frame["age"].astype(object).where(np.arange(len(frame)) != 3, "?")
    path = write(frame, sep=";", encoding="latin-1")
    arguments: tuple[Any, ...] = ("fit", path, "-l", "churn", "--no-report", "--json", "-r", 5, "--delimiter", ";")
    assert "must be text in utf-8" in run_cli(*arguments, "--encoding", "utf-8").data["error"]
    assert any("as cp1252 (override" in note for note in run_cli(*arguments, "--forget").data["notes"])
    arguments = (*arguments, "--encoding", "latin-1")
    assert "mixes numbers and texts" in run_cli(*arguments, "--strict").data["error"]
    assert any(
        "row 4 contains '?'. Treating this cell as missing" in note
        for note in run_cli(*arguments, "--forget").data["notes"]
    )
    assert run_cli(*arguments, "--missing", "?").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing option '--label'"),
        (("--label", "churn", "--radius", "-1"), "--radius must be 'calibrated', 'auto' or a number at least 0"),
        (("--label", "churn", "--radius", "small"), "got 'small'"),
        (("--label", "churn", "--radius", "0"), "radius must be at least the minimal radius"),
        (("--label", "churn", "--prior", "0.3,0.3,0.4"), "one probability per class, 2 of them"),
        (("--label", "churn", "--prior", "0.5,0.6"), "must lie in [0, 1] and sum to 1"),
        (("--label", "churn", "--prior", "half"), "--prior must be 'weak', 'none' or"),
        (("--label", "churn", "--classes", "yes"), "--classes must name every label"),
        (("--label", "churn", "--drop", "colour"), "no column 'colour'"),
        (("--label", "churn", "--delimiter", "ab"), "one ASCII character"),
        (("--label", "churn", "--encoding", "martian"), "--encoding must name a text encoding"),
        (("--label", "churn", "--out", "none/model.skops"), "does not exist. Create the folder"),
        (("--label", "churn", "--out", "."), "it is a folder"),
    ],
)
def test_fit_refuses_options(arguments: tuple[str, ...], message: str, run_cli: Run, pool: Path) -> None:
    result = run_cli("fit", pool, *arguments)
    assert result.code == 2
    assert message in result.message
    assert not Path("pool.skops").exists()


def test_a_fault_of_ours_is_no_mistake_of_the_user(run_cli: Run, pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from surefoot.cli.app import Call

    monkeypatch.setattr(Call, "read_pool", lambda *_, **__: np.zeros(2) + np.zeros(3))
    result = run_cli("fit", pool, "--label", "churn")
    assert result.code == 1
    assert "internal error: ValueError: operands could not be broadcast" in result.message


class TestFullDisk:
    """Nothing half-written is left, nothing is overwritten."""

    ARGUMENTS = ("fit", "pool.csv", "--label", "churn", "--no-report", "--radius", 5)

    def test_of_the_model(self, run_cli: Run, pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        Path("pool.skops").write_bytes(b"the model of last week")
        before = sorted(Path().iterdir())

        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        result = run_cli(*self.ARGUMENTS, "--force")
        assert result.code == 2
        assert "pool.skops could not be written: No space left on device" in result.message
        assert Path("pool.skops").read_bytes() == b"the model of last week"
        assert sorted(path for path in Path().iterdir() if path.suffix != ".db") == before

    def test_under_a_limit_of_the_system(self, run_cli: Run, pool: Path) -> None:
        """A process that may write 4 KiB to a file: the system itself refuses the rest."""
        assert run_cli(*self.ARGUMENTS).code == 0
        arguments, target = ["predict", "pool.skops", "pool.csv", "--out", "new.csv", "--force"], "new.csv"
        Path(target).write_bytes(b"old")
        before = sorted(Path().iterdir())
        program = (
            "import resource, signal, sys\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "from surefoot.cli import run\n"
            "import surefoot.pool.stored\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
            "sys.exit(run(sys.argv[1:]))\n"
        )
        done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr
        assert f"{target} could not be written: File too large" in " ".join(done.stderr.split())
        assert Path(target).read_bytes() == b"old"
        # SQLite cleans up what it keeps beside a database when it is opened next
        assert sorted(path for path in Path().iterdir() if not path.name.endswith(("-wal", "-shm"))) == before
