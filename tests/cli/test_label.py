"""`surefoot label`: in a terminal, killed in the middle, resumed; and its certificate."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pexpect
import pytest

from generators import Result, make_pool
from surefoot.cli.label import answer_keys
from surefoot.pool.store import Store, store_path
from surefoot.pool.store_labels import picked_rows
from surefoot.pool.table.pool import read_labeled_table

ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")
Run = Callable[..., Result]
PROMPT = r"churn\?  \[1\] no  \[2\] yes  \|  \[s\] skip  \[u\] undo  \[q\] quit > "
ARGUMENTS = ("label", "pool.csv", "--label", "churn", "--radius", "1", "--prior", "0.6,0.4")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """What the user types, a line each."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def labels() -> pd.Series:
    return pd.read_csv("pool.csv")["churn"]


def truth() -> list[str]:
    return make_pool(120, 120)["churn"].tolist()


def asked_rows(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"^Row (\d+)$", ANSI.sub("", text), re.MULTILINE)]


class TestTerminal:
    """The real thing: a pseudo-terminal, keys, kill -9."""

    def start(self, *more: str) -> pexpect.spawn:
        program = ["-m", "surefoot.cli", *ARGUMENTS, "--random-first", "4", *more]
        child = pexpect.spawn(sys.executable, program, timeout=60, dimensions=(40, 100), encoding="utf-8")
        child.expect(PROMPT)
        return child

    def test_killed_and_resumed(self, run_cli: Run, pool: Path) -> None:
        make_pool(n_labels=0).assign(churn=None).to_csv(pool, index=False)
        before = pool.read_bytes()
        child = self.start("--classes", "yes,no", "--target-risk", "0.01")
        first = asked_rows(child.before)[-1]
        child.sendline("2")
        child.expect(PROMPT)
        second = asked_rows(child.before)[-1]
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert pool.read_bytes() == before  # the answer is in the store
        told = run_cli("radius", pool, "--classes", "yes,no")
        assert "all 120 are empty" in told.message  # of the table itself
        told = run_cli("export", pool, "--out", "copy.csv")
        assert told.code == 0
        assert pd.read_csv("copy.csv")["churn"].dropna().to_dict() == {first - 1: "yes"}

        child = self.start("--classes", "yes,no", "--target-risk", "0.01")
        assert "1 label is stored but not in pool.csv yet" in " ".join(child.before.split())
        assert asked_rows(child.before)[-1] == second  # the open question is put again
        child.sendline("u")
        child.expect(f"Row {first} is open again")
        child.expect(PROMPT)
        child.sendline("maybe")
        child.expect("'maybe' is not a class")
        child.sendline("NO")
        child.expect("1 label")
        child.expect(PROMPT)
        child.sendline("s")
        child.expect("is skipped")
        child.expect(PROMPT)
        child.sendline("q")
        child.expect("Done: quit")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 3
        assert labels()[first - 1] == "no"
        assert labels().notna().sum() == 1

    @pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
    def test_an_interrupt_writes_all_answers_into_the_table(self, pool: Path, by: signal.Signals) -> None:
        child = self.start()
        child.sendline("1")
        child.expect(PROMPT)
        os.kill(child.pid, by)
        child.expect("interrupted")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 130
        assert labels().notna().sum() == 31


def test_the_certified_risk_follows_each_answer(run_cli: Run, pool: Path, answers: Callable[[str], None]) -> None:
    answers("1\n2\n1\nq\n")
    result = run_cli(*ARGUMENTS, "--json")
    assert result.code == 0
    assert result.data["answered"] == 3
    assert len(result.data["risks"]) == 4
    assert result.data["labeled"] == 33 == labels().notna().sum()
    again = run_cli("fit", *ARGUMENTS[1:], "--no-report", "--json").data
    assert again["certificate"]["risk"] == pytest.approx(result.data["risk"], abs=2e-3)


@pytest.mark.parametrize(("radius", "word"), [("calibrated", "certified"), ("auto", "worst-case")])
def test_only_a_radius_that_covers_certifies(
    run_cli: Run, pool: Path, answers: Callable[[str], None], radius: str, word: str
) -> None:
    answers("q\n")
    result = run_cli(*ARGUMENTS, "--random-first", 4, "--radius", radius)
    said = ANSI.sub("", result.out + result.err)
    shown = re.search(rf"{word} log loss (\d\.\d+)", said)
    assert shown, said
    assert ("certified" in said) == (radius == "calibrated")
    assert ("no guarantee" in said) == (radius == "auto")
    answers("q\n")
    risk = run_cli(*ARGUMENTS, "--random-first", 4, "--radius", radius, "--json").data["risk"]
    assert 0 <= float(shown[1]) - risk < 1e-4  # rounded up


def test_it_stops_at_the_target(run_cli: Run, pool: Path, answers: Callable[[str], None]) -> None:
    answers("")
    result = run_cli(*ARGUMENTS, "--target-risk", 5, "--json")
    assert result.code == 0
    assert result.data["ended"] == "target reached"
    result = run_cli(*ARGUMENTS, "--target-risk", 0.9, "--loss", "error", "--json")
    assert result.data["reached"]


def test_the_end_of_the_input_is_a_quit(run_cli: Run, pool: Path, answers: Callable[[str], None]) -> None:
    answers("1\n")
    result = run_cli(*ARGUMENTS, "--target-risk", 1e-9)
    assert result.code == 3
    assert "Done: quit. 31 labels" in result.out


def test_all_rows_can_be_labeled(run_cli: Run, pool: Path, answers: Callable[[str], None]) -> None:
    make_pool(24, 21).to_csv(pool, index=False)
    answers("no\nskip\nno\n")
    result = run_cli("label", pool, "--label", "churn", "--radius", 5, "--json")
    assert result.data["ended"] == "no row left"
    assert labels().notna().sum() == 23
    assert result.data["skipped"] == 1


def test_nothing_is_advised_that_would_be_refused(run_cli: Run, pool: Path, answers: Callable[[str], None]) -> None:
    for left, advised in ((2, True), (1, False)):
        make_pool(24, 24 - left).to_csv(pool, index=False)
        store_path(pool).unlink(missing_ok=True)
        answers("no\nq\n")
        result = run_cli("label", pool, "--label", "churn", "--radius", 5)
        assert ("Next: surefoot fit" in result.out) == advised


def test_picked_labels_are_no_random_sample(run_cli: Run, pool: Path, answers: Callable[[str], None]) -> None:
    answers("1\n1\n1\nq\n")
    run_cli("label", pool, "--label", "churn", "--prior", "0.6,0.4")
    result = run_cli("fit", pool, "--label", "churn", "--prior", "0.6,0.4", "--no-report", "--json").data
    assert any("chose 3 of 33 labels" in note for note in result["notes"])
    assert result["certificate"].get("calibration", {"labels": 30})["labels"] == 30
    frame = pd.read_csv(pool)
    more = pd.concat([make_pool(5, 0, seed=9), frame.sample(frac=1, random_state=0)])
    more.to_csv(pool, index=False)  # other rows may come, and all may move
    again = run_cli("fit", pool, "--label", "churn", "--prior", "0.6,0.4", "--no-report", "--json").data
    assert any("chose 3 of 33 labels" in note for note in again["notes"])
    frame["age"] += 1
    frame.to_csv(pool, index=False)
    changed = run_cli("fit", pool, "--label", "churn", "--no-report")
    assert changed.code == 2
    assert "cannot be found" in changed.message


def test_random_rows_come_first(run_cli: Run, pool: Path, answers: Callable[[str], None]) -> None:
    make_pool(n_labels=0).assign(churn=None).to_csv(pool, index=False)
    answers("".join(f"{'yes' if i % 2 else 'no'}\n" for i in range(6)))
    run_cli(*ARGUMENTS, "--random-first", 4, "--classes", "yes,no")
    with Store(store_path(pool)) as store:
        assert sum(event.kind == "pick" and event.purpose == "random" for event in store.events()) == 4
    table = read_labeled_table(pool, "churn")
    assert picked_rows(table)[table.labeled].sum() == 2


@pytest.mark.parametrize("suffix", [".tsv", ".parquet"])
def test_other_formats(run_cli: Run, pool: Path, suffix: str, answers: Callable[[str], None]) -> None:
    frame, path = make_pool(), Path(f"pool{suffix}")
    frame["churn"] = frame["churn"].map({"no": 0, "yes": 1}).astype("Int64")
    if suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False, sep="\t")
    answers("1\nq\n")
    result = run_cli("label", path, "--label", "churn", "--radius", "1", "--json")
    assert result.data["answered"] == 1, result.message
    after = pd.read_parquet(path) if suffix == ".parquet" else pd.read_csv(path, sep="\t", dtype={"churn": "Int64"})
    assert after["churn"].notna().sum() == 31
    assert after["churn"].sum() == frame["churn"].sum() + 1
    pd.testing.assert_frame_equal(after.drop(columns="churn"), frame.drop(columns="churn"), check_dtype=False)


def test_another_programs_changes_are_not_overwritten(
    run_cli: Run, pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program adds a row at the top and takes one out while rows are labeled."""
    rows = []

    class Typing(io.StringIO):
        def readline(self, *_: object) -> str:
            if rows:
                return ""
            with Store(store_path(pool)) as store:
                rows.append(store.events()[-1].row)
            lines = pool.read_text().splitlines(keepends=True)
            gone = next(row for row in range(120) if row != rows[0])
            kept = [line for row, line in enumerate(lines[1:]) if row != gone]
            pool.write_text("".join([lines[0], "1,2,max,\n", "1,2,min,\n", *kept]))
            return "1\n"

    monkeypatch.setattr("sys.stdin", Typing())
    frame = make_pool()
    result = run_cli(*ARGUMENTS)
    assert result.code == 0, result.message
    after = pd.read_csv(pool)
    expected = frame.assign(churn=frame["churn"].where(np.arange(120) != rows[0], "no"))
    gone = next(row for row in range(120) if row != rows[0])
    assert after["age"].iloc[2:].tolist() == expected["age"].drop(gone).tolist()
    assert after["churn"].iloc[2:].fillna("").tolist() == expected["churn"].drop(gone).fillna("").tolist()
    assert after["churn"].iloc[:2].isna().all()


def test_a_table_saved_while_it_is_read_is_read_again(
    run_cli: Run, pool: Path, answers: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program takes a row out after the table was read: nothing is asked for by numbers that are no more."""
    from surefoot.pool import table

    def clean(*arguments: object, **options: object) -> object:
        lines = pool.read_text().splitlines(keepends=True)
        pool.write_text("".join([lines[0], *lines[2:]]))
        return cleaned(*arguments, **options)

    cleaned = table.clean
    answers("1\n")
    with monkeypatch.context() as patch:
        patch.setattr(table, "clean", clean)
        refused = run_cli(*ARGUMENTS, "--json")
    assert (refused.code, asked_rows(refused.err)) == (2, [])
    assert "changed by another program while the table was read. Run the command again" in refused.message
    result = run_cli(*ARGUMENTS, "--json")
    assert result.code == 0
    expected = make_pool()["churn"].iloc[1:].reset_index(drop=True)
    expected[asked_rows(result.err)[0] - 1] = "no"
    assert labels().fillna("").tolist() == expected.fillna("").tolist()


def test_two_terminals_label_one_table(run_cli: Run, pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one, between a question and its answer in the first, is asked for another row; both are kept."""
    from surefoot.cli import run

    inner: list[int] = []

    class Typing(io.StringIO):
        def readline(self, *_: object) -> str:
            if not inner:
                inner.append(-1)
                inner.append(run(list(ARGUMENTS)))
                return "1\n"
            if inner == [-1]:
                inner.append(-2)
                return "2\n"
            return "q\n"

    monkeypatch.setattr("sys.stdin", Typing())
    result = run_cli(*ARGUMENTS)
    assert result.code == 0
    assert inner[-1] == 0
    first, second, third, *_ = asked_rows(result.out)
    assert first != second
    assert len({first, second, third}) == 3
    assert (labels()[first - 1], labels()[second - 1]) == ("no", "yes")
    assert labels().notna().sum() == 32
    assert sorted(path.name for path in Path().iterdir()) == ["pool.csv", "pool.csv.surefoot.db"]


@pytest.mark.parametrize("name", ["NA", "nan", "null"])
def test_a_class_that_reads_as_empty_is_refused(run_cli: Run, pool: Path, name: str) -> None:
    result = run_cli(*ARGUMENTS, "--classes", f"yes,no,{name}")
    assert result.code == 2
    assert f"no class may be called '{name}'" in result.message


def test_a_full_disk_keeps_the_table(
    run_cli: Run, pool: Path, answers: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pool.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    answers("1\n")
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", full)
        result = run_cli(*ARGUMENTS)
    assert result.code == 2
    assert "All answers are in pool.csv.surefoot.db" in result.message
    assert "No space left on device" in result.message
    assert pool.read_bytes() == before
    assert sorted(path.name for path in Path().iterdir()) == ["pool.csv", "pool.csv.surefoot.db"]
    assert run_cli("export", pool, "--in-place").code == 0  # once there is room
    assert labels().notna().sum() == 31


def test_a_radius_below_the_minimal_one_only_costs_the_certificate(
    run_cli: Run, pool: Path, answers: Callable[[str], None]
) -> None:
    answers("1\nq\n")
    result = run_cli("label", pool, "--label", "churn", "--radius", "1e-6")
    assert result.code == 0
    assert "No certificate: --radius 1e-06 is below the minimal" in result.out
    assert labels().notna().sum() == 31


def test_one_class_needs_the_others_named(run_cli: Run, pool: Path) -> None:
    make_pool(n_labels=0).assign(churn=None).to_csv(pool, index=False)
    result = run_cli("label", pool, "--label", "churn")
    assert result.code == 2
    assert "for example --classes yes,no" in result.message


@pytest.mark.parametrize(
    ("classes", "typed", "meaning"),
    [
        (["no", "yes"], "1", "=no"),
        (["no", "yes"], "s", "skip"),
        (["U", "V"], "u", "=U"),
        (["U", "V"], "undo", "undo"),
        (["0", "1"], "1", "=1"),
        (["1", "2"], "2", "=2"),
        (["A", "a"], "a", "=a"),
        (["skip", "take"], "skip", "=skip"),
    ],
)
def test_what_may_be_typed(classes: list[str], typed: str, meaning: str) -> None:
    assert answer_keys(classes)[typed] == meaning
