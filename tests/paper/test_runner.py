"""The runner: records survive a kill, results depend neither on interruptions nor on the number of processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import joblib
import numpy as np
import pandas as pd
import pytest

from refusals import Refused, refuses
from surefoot.paper import EXPERIMENTS, experiment, reproduce
from surefoot.paper.protocol import Settings, Task, grid_of_tasks
from surefoot.paper.runner import Record, Records, TimeLeft, run_experiment

SRC = Path(__file__).resolve().parents[2] / "src"


class Example:
    """Random numbers, and a figure of none."""

    name, title, study = "example", "Random numbers", "example"
    datasets: tuple[str, ...] = ("abalone", "wine")
    trials = 4
    quick_datasets: tuple[str, ...] = ("wine",)
    quick_trials = 2

    def tasks(self, settings: Settings) -> list[Task]:
        return grid_of_tasks(settings, ("a", "b"))

    def run(self, task: Task, settings: Settings) -> list[dict[str, Any]]:
        return [{"step": step, "value": float(x)} for step, x in enumerate(task.rng(settings.seed).random(3))]

    def summarize(self, rows: Any, settings: Settings) -> dict[str, Any]:
        return {"example": rows.groupby(["dataset", "variant", "step"], sort=False)["value"].median().reset_index()}

    def draw(self, summary: Any, settings: Settings) -> dict[str, Any]:
        return {}


class Failing(Example):
    """Fails at one of its tasks."""

    def run(self, task: Task, settings: Settings) -> list[dict[str, Any]]:
        if task == Task("wine", 1, "a"):
            raise RuntimeError("the third trial fails")
        return super().run(task, settings)


SETTINGS = Settings(("abalone", "wine"), 4)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.csv")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never interrupted."""
    out: Path = tmp_path_factory.mktemp("whole")
    run_experiment(Example(), SETTINGS, out=out, progress=False)
    return out


class TestRecords:
    def test_every_task_has_one_line_and_they_are_read_back(self, whole: Path) -> None:
        found = Records(whole / "records.jsonl").read()
        assert list(found) == Example().tasks(SETTINGS)
        task = Task("wine", 3, "b")
        assert found[task].rows == Example().run(task, SETTINGS)

    def test_a_torn_line_is_done_again(self, whole: Path, tmp_path: Path) -> None:
        content = (whole / "records.jsonl").read_bytes()
        for cut in (1, 30, len(content.splitlines()[-1])):
            (tmp_path / "records.jsonl").write_bytes(content[:-cut])
            read = Records(tmp_path / "records.jsonl").read()
            assert len(read) == 15
            assert (tmp_path / "records.jsonl").read_bytes() == content[:-cut], "reading must not change the file"
        run_experiment(Example(), SETTINGS, out=tmp_path, progress=False)
        assert len((tmp_path / "records.jsonl").read_bytes().splitlines()) == 16
        assert files_of(tmp_path) == files_of(whole)

    def test_a_line_that_is_no_record_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "records.jsonl").write_text('{"task": 1}\n')
        with pytest.raises(ValueError, match=r"got b'\{\"task\": 1\}' in line 1 of .*Remove the line"):
            Records(tmp_path / "records.jsonl").read()

    def test_a_value_that_is_not_a_number_is_refused(self, tmp_path: Path) -> None:
        with Records(tmp_path / "r").writer() as writer, pytest.raises(ValueError, match="not JSON compliant"):
            writer.append(Record(Task("wine", 0), 1.0, 1.0, [{"value": float("nan")}]))
        assert Records(tmp_path / "r").read() == {}

    @pytest.mark.skipif(os.name != "posix", reason="locks are not taken elsewhere")
    def test_a_second_writer_is_refused(self, tmp_path: Path) -> None:
        with (
            Records(tmp_path / "r").writer(),
            refuses("out"),
            Records(tmp_path / "r").writer(),
        ):
            pass


class TestResuming:
    def test_a_failed_run_goes_on_where_it_stopped(self, whole: Path, tmp_path: Path) -> None:
        with pytest.raises(RuntimeError, match="the third trial fails"):
            run_experiment(Failing(), SETTINGS, out=tmp_path, progress=False)
        before = (tmp_path / "records.jsonl").read_bytes()
        assert 0 < len(before.splitlines()) < 16
        run_experiment(Example(), SETTINGS, out=tmp_path, progress=False)
        assert (tmp_path / "records.jsonl").read_bytes().startswith(before)
        assert files_of(tmp_path) == files_of(whole)
        runs = json.loads((tmp_path / "config.json").read_text())["runs"]
        assert [run["tasks_before"] for run in runs] == [0, len(before.splitlines())]
        assert sum(run["tasks_done"] for run in runs) == 16
        assert [run["finished"] is None for run in runs] == [True, False]

    def test_other_settings_are_refused(self, whole: Path) -> None:
        for other in (
            Settings(("abalone", "wine"), 5),
            Settings(("wine",), 4),
            Settings(("abalone", "wine"), 4, seed=1),
        ):
            with refuses("settings"):
                run_experiment(Example(), other, out=whole, progress=False)
        with refuses("study", '"example"', '"figure1"'):
            reproduce("figure1", datasets=["breast-cancer"], trials=1, out=whole, progress=False)

    def test_the_configuration_is_kept(self, whole: Path) -> None:
        config = json.loads((whole / "config.json").read_text())
        assert config["study"] == "example"
        assert config["settings"] == {"datasets": ["abalone", "wine"], "trials": 4, "quick": False, "seed": 0}
        run = config["runs"][0]
        assert run["tasks_done"] == 16
        assert run["seconds"] > 0
        assert {"numpy", "scikit-learn", "joblib"} <= set(run["packages"])
        assert run["started"] <= run["finished"]

    @pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
    def test_killed_in_the_middle_the_final_table_is_that_of_a_whole_run(self, tmp_path: Path) -> None:
        """kill -9 a quick run of figure 1 after two of its tasks; the run that follows must not do these again."""
        killed, whole = tmp_path / "killed", tmp_path / "whole"
        program = f"from surefoot.paper import reproduce; reproduce('figure1', quick=True, out={str(killed)!r})"
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(SRC), "OPENBLAS_NUM_THREADS": "1"},
            stderr=subprocess.DEVNULL,
        )
        records = Records(killed / "records.jsonl")
        deadline = time.monotonic() + 120
        while len(records.read()) < 2 and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "the run ended before it could be killed"
        with (killed / "records.jsonl").open("ab") as file:
            file.write(b'{"task":{"dataset":"breast-can')  # and a line that the kill tore
        done = records.read()
        assert 2 <= len(done) < 7
        reproduce("figure1", quick=True, out=killed, progress=False)
        reproduce("figure1", quick=True, out=whole, progress=False)
        assert files_of(killed) == files_of(whole) != {}
        assert [record.seconds for record in records.read().values()][: len(done)] == [r.seconds for r in done.values()]


class TestProcesses:
    def test_results_do_not_depend_on_jobs(self, whole: Path, tmp_path: Path) -> None:
        # other processes need not be able to import this file
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        run_experiment(Example(), SETTINGS, out=tmp_path, jobs=2, progress=False)
        assert files_of(tmp_path) == files_of(whole)

    def test_none_means_what_the_active_backend_has(self, whole: Path, tmp_path: Path) -> None:
        with joblib.parallel_config(backend="threading", n_jobs=2):
            run_experiment(Example(), SETTINGS, out=tmp_path, jobs=None, progress=False)
        assert files_of(tmp_path) == files_of(whole)

    @pytest.mark.slow
    def test_a_dask_cluster_takes_over(self, whole: Path, tmp_path: Path) -> None:
        distributed = pytest.importorskip("distributed")
        with (
            distributed.Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None),
            joblib.parallel_config(backend="dask"),
        ):
            run_experiment(Example(), SETTINGS, out=tmp_path, jobs=None, progress=False)
        assert files_of(tmp_path) == files_of(whole)


class TestProgress:
    def test_lines_where_there_is_no_terminal(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        run_experiment(Example(), SETTINGS, out=tmp_path, progress=True)
        assert "Random numbers: 16 of 16 tasks, 0:00:00 left" in capfd.readouterr().err

    def test_a_bar_on_a_terminal(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        run_experiment(Example(), SETTINGS, out=tmp_path, progress=True)
        assert "16/16" in capfd.readouterr().err

    def test_the_estimate_is_the_pace_so_far(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock: Iterator[float] = iter([100.0, 160.0, 7400.0])
        monkeypatch.setattr(time, "monotonic", lambda: next(clock))
        left = TimeLeft(4)
        assert str(left) == "?"
        left.step()
        assert left.seconds == pytest.approx(180.0)
        left.step()
        assert str(left) == "2:01:40"


class TestReproduce:
    def test_every_name_has_its_experiment(self) -> None:
        for name in EXPERIMENTS:
            found = experiment(name)
            assert found.name == name
            assert found.datasets
            assert found.trials >= 1

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"name": "figure9"}, ("name", "'figure9'")),
            ({"datasets": "wine"}, ("datasets", "'wine'", "['wine']")),
            ({"datasets": ["vine"]}, ("name", "'wine'")),
            ({"datasets": []}, "datasets"),
            ({"trials": 0}, ("trials", 1)),
            ({"seed": -1}, ("seed", 0, -1)),
            ({"seed": 0.5}, ("seed", 0, 0.5)),
            ({"jobs": 0}, ("n_jobs", 0)),
        ],
    )
    def test_bad_arguments_are_refused(self, arguments: dict[str, Any], message: Refused, tmp_path: Path) -> None:
        with refuses(message):
            reproduce(**({"name": "table2", "quick": True, "out": tmp_path, "progress": False} | arguments))
        assert not (tmp_path / "records.jsonl").exists()

    def test_the_folder_is_named_after_the_study(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        found = reproduce("table2", quick=True, progress=False)
        assert found.out == Path("reproduction/table2-quick")
        assert repr(found).startswith("Reproduction('table2', 1 datasets, 1 trials")
        written = pd.read_csv(found.out / "table2.csv")
        assert written.loc[0, "features"] == 30


class TestTasks:
    def test_random_numbers_belong_to_the_trial_not_to_the_variant(self) -> None:
        first = Task("wine", 1, "a").rng(0).random(4)
        np.testing.assert_array_equal(first, Task("wine", 1, "b").rng(0).random(4))
        for other in (Task("wine", 2), Task("yeast", 1)):
            assert not np.array_equal(first, other.rng(0).random(4))
        assert not np.array_equal(first, Task("wine", 1).rng(1).random(4))
