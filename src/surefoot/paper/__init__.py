"""The paper's own methods: Algorithms 1 and 2 as printed, and its figures and tables by `reproduce("figure5")`.

Reproduction needs pandas, matplotlib and rich: `pip install "surefoot[cli]"`. Results and how they compare with the
paper's are in docs/reproduction.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from surefoot._errors import ParameterError, import_extra
from surefoot._validation import check_positive_integer
from surefoot.backends.compute import Compute
from surefoot.datasets import resolve
from surefoot.paper.algorithms import StochasticModelChange, StochasticRobustLogisticRegression, algorithm2
from surefoot.paper.protocol import Experiment, Settings
from surefoot.paper.runner import Reproduction, run_experiment
from surefoot.paper.stochastic_gradient import StochasticGradient, UnboundedDualError

__all__ = [
    "StochasticGradient",
    "StochasticModelChange",
    "StochasticRobustLogisticRegression",
    "UnboundedDualError",
    "algorithm2",
    "reproduce",
]

# Experiments whose fits may run on a torch device.
_ON_DEVICE = ("figure5", "figure6")
EXPERIMENTS = {
    "figure1": "figures_1_to_3",
    "figure2": "figures_1_to_3",
    "figure3": "figures_1_to_3",
    "figure4": "figures_4_to_6",
    "figure5": "figures_4_to_6",
    "figure6": "figures_4_to_6",
    "table1": "tables",
    "table2": "tables",
}


def experiment(name: str) -> Experiment:
    """Return the experiment of this name: its tasks, and what is done with their results."""
    if name not in EXPERIMENTS:
        raise ParameterError("name", f"must be one of {', '.join(EXPERIMENTS)}", repr(name), "Pass one of these.")
    found: Experiment = getattr(import_module(f"surefoot.paper.{EXPERIMENTS[name]}"), name.upper())
    return found


def reproduce(
    name: str,
    *,
    datasets: Iterable[str] | None = None,
    trials: int | None = None,
    quick: bool = False,
    jobs: int | None = 1,
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: bool = True,
    force: bool = False,
) -> Reproduction:
    """Run an experiment of the paper, or go on with one that was stopped, and write its tables and figures.

    Each finished task is on the disk before the next is counted: a run that is killed goes on from there when it is
    started again with the same settings, and ends with the same tables.

    Parameters
    ----------
    name : str
        "figure1" to "figure6", "table1" or "table2".
    datasets : list of str or None
        Names of `surefoot.datasets`; None for the paper's.
    trials : int or None
        None for the number in the paper.
    quick : bool, default=False
        One small dataset that comes with scikit-learn, few trials, a coarse grid: seconds, to see that it works.
    jobs : int or None, default=1
        Processes, -1 for one per core, or None for what the active joblib backend has: within
        `joblib.parallel_config(backend="dask")` the tasks go to a Dask cluster. Results do not depend on it.
    out : path or None
        Folder for `config.json` (settings, versions, times), `records.jsonl` (a line per task, to be read also while
        the run goes on), tables (CSV) and figures (PNG and PDF); None for `reproduction/<study>` in the working
        directory. A folder that was begun with other settings is refused.
    seed : int, default=0
        Of everything random.
    device : str, default="cpu"
        Where the fits with unlabeled rows of figures 5 and 6 run: "cpu", or a torch device such as "cuda", which
        several processes may share.
    progress : bool, default=True
        Show progress and the time left, on the standard error; needs the package rich.
    force : bool, default=False
        Write also into a folder that holds other files and no run.

    Returns
    -------
    Reproduction
        The tables, and where everything is.
    """
    chosen = experiment(name)
    for package in ("pandas", "matplotlib"):
        import_extra(package, "cli", "surefoot.paper")
    if isinstance(datasets, str):
        raise ParameterError("datasets", "must be a list of names", f"the string {datasets!r}", f"Pass [{datasets!r}].")
    wanted = (chosen.quick_datasets if quick else chosen.datasets) if datasets is None else tuple(datasets)
    wanted = tuple(dict.fromkeys(resolve(dataset) for dataset in wanted))
    if not wanted:
        raise ParameterError("datasets", "must name at least one dataset", "none", "Pass None for the paper's.")
    if trials is None:
        trials = chosen.quick_trials if quick else chosen.trials
    if device != "cpu" and name not in _ON_DEVICE:
        raise ParameterError(
            "device", f'must be "cpu" for {name}', repr(device), f"Of {', '.join(_ON_DEVICE)} it is used."
        )
    Compute(device)  # refuses what is not the name of a device
    settings = Settings(wanted, check_positive_integer(trials, "trials"), bool(quick), _check_seed(seed), device)
    folder = Path("reproduction") / (f"{chosen.study}-quick" if quick else chosen.study) if out is None else Path(out)
    return run_experiment(chosen, settings, out=folder, jobs=jobs, progress=progress, force=force)


def _check_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or seed < 0:
        raise ParameterError("seed", "must be an integer >= 0", repr(seed), "Pass a whole number.")
    return int(seed)
