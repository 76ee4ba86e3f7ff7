"""Run an experiment: tasks over processes, one record each, resumed where a run stopped, then tables and figures."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from surefoot._errors import FileError, LockedError, ParameterError
from surefoot._files import LineLog, hold_file, whole_file, write_bytes
from surefoot._machine import one_blas_thread
from surefoot._validation import check_n_jobs
from surefoot._version import __version__
from surefoot.paper.protocol import Experiment, Row, Settings, Tables, Task

# Records of finished tasks: an append-only file of JSON lines, each on the disk before the next task is counted.


@dataclass(frozen=True)
class Record:
    """One finished task: its rows, its wall time and its processor time in seconds."""

    task: Task
    seconds: float
    cpu_seconds: float
    rows: list[Row]


class Records:
    """The file `records.jsonl` of an output folder.

    A process that is killed while it writes leaves at most one torn line, at the end: its task counts as not done, and
    the next record takes its place. Reading never changes the file, so that it can be read while a run goes on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log = LineLog(path)

    def read(self) -> dict[Task, Record]:
        """All whole lines by their task, the last one where a task was done twice."""
        found = {}
        for number, line in enumerate(self._log.lines(), start=1):
            try:
                entry = json.loads(line)
                task = Task(**entry["task"])
                found[task] = Record(task, float(entry["seconds"]), float(entry["cpu_seconds"]), entry["rows"])
            except (ValueError, KeyError, TypeError) as error:
                raise FileError(
                    f"each line of the records must be a finished task; got {line[:60]!r} in line {number} of "
                    f"{self.path}. Remove the line, and its task runs again."
                ) from error
        return found

    @contextmanager
    def writer(self) -> Iterator[_Writer]:
        """Append to the file, which no other process may do at the same time."""
        try:
            file = hold_file(self.path)
        except LockedError as error:
            raise ParameterError(
                "out",
                "must be a folder that no other run writes to",
                str(self.path.parent),
                "Wait for that run, or pass another $out.",
            ) from error
        try:
            yield _Writer(self._log)
        finally:
            os.close(file)


@dataclass(frozen=True)
class _Writer:
    log: LineLog

    def append(self, record: Record) -> None:
        """Write a record and wait until the disk has it."""
        entry: dict[str, Any] = {
            "task": record.task.as_dict(),
            "seconds": round(record.seconds, 3),
            "cpu_seconds": round(record.cpu_seconds, 3),
            "rows": record.rows,
        }
        line = json.dumps(entry, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        self.log.append(line.encode())


# Progress of a run: a bar with the time left, or now and then a line where there is no terminal.

_SECONDS_BETWEEN_LINES = 30.0


def shown(
    records: Iterable[Record], title: str, tasks: Collection[Task], done: Collection[Task], *, show: bool
) -> Iterator[Record]:
    """The same records, shown as they come, on the standard error."""
    if not show:
        yield from records
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError as error:
        raise ImportError('progress=True needs the package rich: pip install "surefoot[cli]"') from error
    console = Console(stderr=True)
    before = sum(task in done for task in tasks)
    estimate = TimeLeft(len(tasks) - before)
    if not console.is_terminal:
        yield from _lines(records, console, title, before, len(tasks), estimate)
        return
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, TextColumn("{task.fields[left]} left"), console=console) as bar:
        shown_task = bar.add_task(title, total=len(tasks), completed=before, left="?")
        for record in records:
            yield record
            estimate.step()
            bar.update(shown_task, advance=1, left=str(estimate))


class TimeLeft:
    """Estimate of the remaining time, from the pace of this run."""

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.finished = 0
        self.start = time.monotonic()

    def step(self) -> None:
        self.finished += 1

    @property
    def seconds(self) -> float:
        """Infinite before the first task is done."""
        if not self.finished:
            return float("inf")
        return (time.monotonic() - self.start) / self.finished * (self.missing - self.finished)

    def __str__(self) -> str:
        if not self.finished:
            return "?"
        minutes, seconds = divmod(round(self.seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{seconds:02d}"


def _lines(
    records: Iterable[Record], console: object, title: str, before: int, total: int, estimate: TimeLeft
) -> Iterator[Record]:
    last = time.monotonic()
    for record in records:
        yield record
        estimate.step()
        finished = before + estimate.finished
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES or finished == total:
            last = time.monotonic()
            console.print(f"{title}: {finished} of {total} tasks, {estimate} left", highlight=False, soft_wrap=True)  # type: ignore[attr-defined]


_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "POT", "joblib", "pandas", "matplotlib")


@dataclass(frozen=True)
class Reproduction:
    """A finished experiment.

    Attributes
    ----------
    name : str
        Name of the experiment.
    out : Path
        The folder with `config.json`, `records.jsonl`, the tables and the figures.
    settings : Settings
        The settings of the run.
    tables : dict of str to pandas.DataFrame
        Tables by name; each is also a CSV file of that name in `out`.
    figures : list of Path
        Files of the figures.
    """

    name: str
    out: Path
    settings: Settings
    tables: Tables
    figures: list[Path]

    def __repr__(self) -> str:
        s = self.settings
        return f"Reproduction({self.name!r}, {len(s.datasets)} datasets, {s.trials} trials, in {str(self.out)!r})"


def run_experiment(
    experiment: Experiment,
    settings: Settings,
    *,
    out: Path,
    jobs: int | None = 1,
    progress: bool = True,
    force: bool = False,
) -> Reproduction:
    """Do the tasks that have no record yet, then write tables and figures; see `surefoot.paper.reproduce`."""
    jobs = check_n_jobs(jobs)
    if not force:
        _check_folder(out)
    out.mkdir(parents=True, exist_ok=True)
    records = Records(out / "records.jsonl")
    tasks = experiment.tasks(settings)
    done = records.read()  # before anything is written: another file of that name is refused
    with records.writer() as writer, _noted(out / "config.json", experiment, settings, jobs) as note:
        done |= records.read()
        missing = [task for task in tasks if task not in done]
        note["tasks_before"] = len(tasks) - len(missing)
        for record in shown(_work(experiment, missing, settings, jobs), experiment.title, tasks, done, show=progress):
            writer.append(record)
            note["tasks_done"] += 1
            note["cpu_seconds_in_tasks"] += record.cpu_seconds
            done[record.task] = record
        note["cpu_seconds_per_trial"] = _cost_per_trial([done[task] for task in tasks], settings)
    return summarize_folder(experiment, settings, out)


def summarize_folder(experiment: Experiment, settings: Settings, out: Path) -> Reproduction:
    """Tables and figures of a folder whose tasks are all done."""
    done = Records(out / "records.jsonl").read()
    tables = experiment.summarize(rows_of(done, experiment.tasks(settings)), settings)
    for name, table in tables.items():
        with whole_file(out / f"{name}.csv") as path:
            table.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")
    figures = []
    for name, figure in experiment.draw(tables, settings).items():
        for ending in ("png", "pdf"):
            figures.append(out / f"{name}.{ending}")
            with whole_file(figures[-1]) as path:
                figure.savefig(path, format=ending, dpi=150, metadata={} if ending == "png" else {"CreationDate": None})
        _close(figure)
    return Reproduction(experiment.name, out, settings, tables, figures)


def rows_of(done: dict[Task, Record], tasks: Iterable[Task]) -> Any:
    """A data frame of the rows of all tasks, in their order, with the columns dataset, trial and variant in front."""
    import pandas as pd

    return pd.DataFrame([task.as_dict() | row for task in tasks for row in done[task].rows])


def _work(experiment: Experiment, tasks: list[Task], settings: Settings, jobs: int | None) -> Iterator[Record]:
    """Yield records as they finish. The active joblib backend does the work on `jobs` workers."""
    parallel = Parallel(n_jobs=jobs, return_as="generator_unordered")
    return parallel(delayed(_timed)(experiment, task, settings) for task in tasks)


def _timed(experiment: Experiment, task: Task, settings: Settings) -> Record:
    start, cpu = time.perf_counter(), time.process_time()
    with one_blas_thread():
        rows = experiment.run(task, settings)
    return Record(task, time.perf_counter() - start, time.process_time() - cpu, rows)


@contextmanager
def _noted(path: Path, experiment: Experiment, settings: Settings, jobs: int | None) -> Iterator[dict[str, Any]]:
    """Keep the configuration, and a note of each run into the folder; refuse other settings than it was begun with."""
    asked = {"study": experiment.study, "settings": settings.as_dict()}
    config: dict[str, Any] = _read_config(path) if path.exists() else asked | {"runs": []}
    _check_same(config, asked, path.parent)
    start, clock = datetime.now(UTC), time.perf_counter()
    note: dict[str, Any] = {
        "experiment": experiment.name,
        "surefoot": __version__,
        "python": platform.python_version(),
        "platform": platform.system(),
        "packages": _versions(),
        "jobs": jobs,
        "started": start.isoformat(timespec="seconds"),
        "finished": None,
        "tasks_before": 0,
        "tasks_done": 0,
        "seconds": None,
        "cpu_seconds_in_tasks": 0.0,
    }
    config["runs"].append(note)
    _write_json(path, config)
    try:
        yield note
        note["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
    finally:  # also where the run was interrupted or failed; a killed one leaves the note as it was at the start
        note["seconds"] = round(time.perf_counter() - clock, 2)
        note["cpu_seconds_in_tasks"] = round(note["cpu_seconds_in_tasks"], 2)
        _write_json(path, config)


def _cost_per_trial(records: list[Record], settings: Settings) -> dict[str, float]:
    """Mean processor time of a trial, all variants together, by dataset."""
    total = dict.fromkeys(settings.datasets, 0.0)
    for record in records:
        total[record.task.dataset] += record.cpu_seconds
    return {dataset: round(seconds / settings.trials, 3) for dataset, seconds in total.items()}


def _check_folder(out: Path) -> None:
    """Refuse a folder that is not empty and in which no run was begun: its tables and figures may be another's."""
    if out.exists() and not out.is_dir():
        raise FileError(f"out must be a folder; {out} is a file. Pass another name.")
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")} if out.exists() else set()
    if names and not names & {"config.json", "records.jsonl"}:
        raise FileError(
            f"out must be an empty folder, or one of an earlier run; {out} holds {min(names)}, which might be "
            "overwritten. Pass another folder; or force=True (on the command line --force)."
        )


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except ValueError:
        config = None
    if not isinstance(config, dict) or not isinstance(config.get("runs"), list):
        raise FileError(f"{path} must be the configuration of a run; it is not. Pass another folder as out.")
    return config


def _check_same(config: dict[str, Any], asked: dict[str, Any], out: Path) -> None:
    for part, mine in asked.items():
        found = config.get(part)
        if found != mine:
            raise ParameterError(
                part,
                f"must be as it was when {out} was begun, {json.dumps(found)}, for a folder holds one run",
                json.dumps(mine),
                "Pass the same settings to go on with it, or another $out.",
            )


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue  # an optional package that is not there was not used either
    return found


def _write_json(path: Path, value: Any) -> None:
    write_bytes(path, json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n")


def _close(figure: Any) -> None:
    import matplotlib.pyplot as plt

    plt.close(figure)
