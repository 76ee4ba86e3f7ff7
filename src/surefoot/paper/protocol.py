"""The protocol of an experiment: a list of small tasks, a function that runs a task, and two that show the results.

A module of an experiment (`figure1.py`, …, `table1.py`) ends with `EXPERIMENT = …`, an object of the protocol
`Experiment`. `surefoot.paper.runner` does the rest: processes, records, progress, files. An experiment itself
neither reads nor writes a file, and knows nothing of processes.

    class Example:
        name, title, study = "example", "Random numbers", "example"
        datasets, trials = ("abalone", "wine"), 50
        quick_datasets, quick_trials = ("breast-cancer",), 3

        def tasks(self, settings):
            return grid_of_tasks(settings, variants=("random", "DR"))

        def run(self, task, settings):
            X, y = load_rows(task.dataset, settings.seed)      # surefoot.paper.samples, kept by the process
            rng = task.rng(settings.seed)                      # the same in all variants of a trial
            return [{"step": 1, "likelihood": 0.6}, {"step": 2, "likelihood": 0.7}]

        def summarize(self, rows, settings):
            # rows: columns dataset, trial, variant, then the columns of run, in the order of tasks()
            return {"example": rows.groupby(["dataset", "variant"], sort=False)["likelihood"].median().reset_index()}

        def draw(self, summary, settings):
            return {}                                          # or {"example": a matplotlib Figure}
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

Row = dict[str, Any]
Tables = dict[str, Any]  # pandas DataFrames by the name of their file, without its ending
Figures = dict[str, Any]  # matplotlib Figures by the name of their file, without its ending


@dataclass(frozen=True)
class Settings:
    """The settings of a run. Results depend on nothing else.

    Parameters
    ----------
    datasets : tuple of str
        Names of `surefoot.datasets`, in the order of tables and panels.
    trials : int
        Trials per dataset.
    quick : bool, default=False
        A coarse grid and few steps: to see that everything works, not to learn anything.
    seed : int, default=0
        Seed of everything random.
    device : str, default="cpu"
        Where the fits run: the `device` of `surefoot.Compute`. Another one agrees within the certified gap.

    Examples
    --------
    >>> from surefoot.paper.protocol import Settings
    >>> Settings(("breast-cancer",), 3).as_dict()
    {'datasets': ['breast-cancer'], 'trials': 3, 'quick': False, 'seed': 0}
    """

    datasets: tuple[str, ...]
    trials: int
    quick: bool = False
    seed: int = 0
    device: str = "cpu"

    def as_dict(self) -> dict[str, Any]:
        """The settings as JSON can hold them.

        Returns
        -------
        dict
            One entry per setting; `device` only where it is not the CPU.
        """
        found = {**asdict(self), "datasets": list(self.datasets)}
        if self.device == "cpu":
            del found["device"]
        return found


@dataclass(frozen=True, order=True)
class Task:
    """The unit of work and of record: one trial on one dataset, for one variant if there are several.

    Parameters
    ----------
    dataset : str
        Name of the dataset.
    trial : int
        Number of the trial, from 0.
    variant : str, default=""
        Name of the variant.

    Examples
    --------
    >>> from surefoot.paper.protocol import Task
    >>> a, b = Task("wine", 0, "random"), Task("wine", 0, "DR")
    >>> a.rng(0).random() == b.rng(0).random()
    True
    """

    dataset: str
    trial: int
    variant: str = ""

    def rng(self, seed: int) -> np.random.Generator:
        """Random numbers of the trial: the same in all its variants, which so see the same labeled rows.

        Parameters
        ----------
        seed : int
            Seed of the run.

        Returns
        -------
        numpy.random.Generator
            A generator at its start.
        """
        return np.random.default_rng([seed, zlib.crc32(self.dataset.encode()), self.trial])

    def as_dict(self) -> dict[str, Any]:
        """The task as JSON can hold it.

        Returns
        -------
        dict
            One entry per field.
        """
        return asdict(self)


class Experiment(Protocol):
    """One figure or table of the paper.

    Attributes
    ----------
    name : str
        What `surefoot reproduce` calls it.
    title : str
        One line for people.
    study : str
        The calculation behind it. Experiments of one study have equal tasks and rows, and may share an output folder:
        the second experiment finds its work done. Most have a study of their own with the same name.
    datasets : tuple of str
        The paper's datasets, used where the user does not say otherwise.
    trials : int
        The paper's number of trials.
    quick_datasets : tuple of str
        Datasets of quick runs.
    quick_trials : int
        Trials of quick runs.
    """

    name: str
    title: str
    study: str
    datasets: tuple[str, ...]
    trials: int
    quick_datasets: tuple[str, ...]
    quick_trials: int

    def tasks(self, settings: Settings) -> list[Task]:
        """Return all tasks once, in the order of execution.

        Parameters
        ----------
        settings : Settings
            The settings of the run.

        Returns
        -------
        list of Task
            The tasks.
        """
        ...

    def run(self, task: Task, settings: Settings) -> list[Row]:
        """Do one task.

        A pure function of its arguments: random numbers come from `task.rng(settings.seed)`. It may run in any process.

        Parameters
        ----------
        task : Task
            The task.
        settings : Settings
            The settings of the run.

        Returns
        -------
        list of dict
            Flat rows that JSON can hold (a cell may be a list of numbers).
        """
        ...

    def summarize(self, rows: Any, settings: Settings) -> Tables:
        """Tables of the results.

        Parameters
        ----------
        rows : pandas.DataFrame
            All rows, with the columns dataset, trial and variant added.
        settings : Settings
            The settings of the run.

        Returns
        -------
        dict of str to pandas.DataFrame
            Tables by the name of their file, without its ending.
        """
        ...

    def draw(self, summary: Tables, settings: Settings) -> Figures:
        """Figures of a summary.

        Parameters
        ----------
        summary : dict of str to pandas.DataFrame
            What `summarize` returned.
        settings : Settings
            The settings of the run.

        Returns
        -------
        dict of str to matplotlib Figure
            Figures by file name without extension, empty if there are none.
        """
        ...


def grid_of_tasks(settings: Settings, variants: Sequence[str] = ("",)) -> list[Task]:
    """Every trial of every dataset and variant; all datasets of the first trial come first."""
    return [
        Task(dataset, trial, variant)
        for trial in range(settings.trials)
        for dataset in settings.datasets
        for variant in variants
    ]
