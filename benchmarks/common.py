"""Common parts of the benchmarks: results, tables and CSV files with the configuration, timing, memory, data."""

from __future__ import annotations

import csv
import ctypes
import functools
import gc
import gzip
import multiprocessing
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from surefoot._version import __version__

T = TypeVar("T")
Array = NDArray[np.float64]
Row = dict[str, Any]

ROOT = Path(__file__).resolve().parents[1]
_TABLE = re.compile(r"(?P<begin><!-- table: (?P<name>[\w-]+) -->\n).*?(?P<end><!-- end of table -->)", re.DOTALL)
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "POT", "cvxpy", "clarabel", "highspy")
THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def configuration() -> dict[str, str]:
    """Versions, processor, cores, BLAS, thread settings, commit and date of a run."""
    config = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "commit": _commit()}
    config |= {"surefoot": __version__, "python": platform.python_version()}
    config["system"] = f"{platform.system()} {platform.machine()}"
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            config[package] = version(package)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    config |= {"cpu": _cpu_model(), "cores": str(usable)}
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    names = {f"{pool['internal_api']} {pool['version']} ({pool['num_threads']} threads)" for pool in pools}
    config["blas"] = ", ".join(sorted(names)) or "unknown"
    return config | {name: os.environ.get(name, "not set") for name in THREAD_SETTINGS}


def write_csv(path: Path, rows: Sequence[Row], config: Mapping[str, str] | None = None) -> None:
    """Write rows below their configuration, a `# key: value` line each; `pandas.read_csv(path, comment="#")` reads it.

    The run's own `configuration()` is written unless another is given.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        file.writelines(f"# {key}: {value}\n" for key, value in (configuration() if config is None else config).items())
        writer = csv.DictWriter(file, fieldnames=_columns(rows), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def markdown_table(rows: Sequence[Row], columns: Sequence[str] | None = None) -> str:
    """Rows as a Markdown table, padded so that it also reads as plain text."""
    names = _columns(rows) if columns is None else list(columns)
    cells = [names, *([_cell(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(3, *(len(line[k]) for line in cells)) for k in range(len(names))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def with_tables(text: str, make: Callable[[str], str | None]) -> str:
    """The page with new contents between each `<!-- table: NAME -->` and `<!-- end of table -->`; None keeps them."""

    def written(found: re.Match[str]) -> str:
        made = make(found["name"])
        return found[0] if made is None else f"{found['begin']}\n{made}\n\n{found['end']}"

    return _TABLE.sub(written, text)


class Timing(NamedTuple):
    """Wall-clock seconds over repeats, and the last result."""

    best: float
    median: float
    result: Any


def timed(fn: Callable[[], T], repeat: int = 3) -> Timing:
    """Call fn `repeat` times. To exclude compilation and warm-up, run fn once before."""
    seconds, result = [], None
    for _ in range(repeat):
        start = time.perf_counter()
        result = fn()
        seconds.append(time.perf_counter() - start)
    return Timing(min(seconds), statistics.median(seconds), result)


def peak_memory(fn: Callable[..., object], prepare: Callable[[], object] | None = None) -> int:
    """Bytes by which the resident memory of a fresh process grows, at its peak, while it calls fn.

    The work of `prepare` (imports, compilation, data) is not counted, and its result is passed to fn. Both run in a
    spawned process, so they must be functions of a module or partials of such functions.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak_growth, (fn, prepare))


def covertype_like(N: int, d: int = 54, seed: int = 0) -> tuple[Array, NDArray[np.intp], str]:
    """N rows (N, d), codes (N,) of two classes, and a note on their source.

    Cover Type, class 5 (code 0) against 6 (code 1), with rows sampled uniformly without replacement, from the folder
    SUREFOOT_DATA or from `../shared/datasets` next to the checkout. If there are no such rows, a synthetic replacement.
    """
    rng = np.random.default_rng(seed)
    folder = Path(os.environ.get("SUREFOOT_DATA") or ROOT.parent / "shared" / "datasets")
    path = folder / "covtype" / "covtype.data.gz"
    if d == 54 and path.exists():
        table = _read_covertype(path)
        if len(table) >= N:
            table = table[rng.choice(len(table), size=N, replace=False)]
            note = f"Cover Type, 5 vs 6, {N} rows"
            return preprocess(table[:, :-1]), (table[:, -1] == 6).astype(np.intp), note
    X, codes = _synthetic_covertype(N, d, rng)
    return preprocess(X), codes, f"synthetic replacement for Cover Type, {N} rows, {d} features"


class LearningProblem(NamedTuple):
    """n labeled rows of a known dataset, the rest unlabeled, in the paper's setting: strong prior, true radius."""

    X: Array  # (n, d) labeled rows
    codes: NDArray[np.intp]  # (n,) their classes, 0 or 1
    X_unlabeled: Array  # (N − n, d)
    label_probabilities: Array  # (2,) of all N rows
    radius: float  # W_c between the labeled sample and all N rows with their labels, κ = 1
    note: str


def learning_problem(N: int, n: int, d: int = 54, seed: int = 0) -> LearningProblem:
    """Cover Type (or its replacement) with n uniformly sampled labels, at the smallest radius that covers the truth."""
    import ot
    from scipy.spatial.distance import cdist

    X, codes, note = covertype_like(N, d, seed)
    order = np.random.default_rng([seed, n]).permutation(N)
    X, codes = X[order], codes[order]
    costs = cdist(X, X[:n]) + (codes[:, None] != codes[:n])
    radius = float(ot.emd2(np.full(N, 1 / N), np.full(n, 1 / n), costs, numItermax=10_000_000))
    probabilities = np.bincount(codes, minlength=2) / N
    return LearningProblem(X[:n], codes[:n], X[n:], probabilities, radius, note)


def preprocess(X: Array) -> Array:
    """Centre features, divide by their standard deviations (constant ones stay 0), then all by the largest entry."""
    centred = X - X.mean(axis=0)
    constant = np.ptp(X, axis=0) == 0
    centred[:, constant] = 0.0
    centred /= np.where(constant, 1.0, centred.std(axis=0))
    return centred / max(np.abs(centred).max(), np.finfo(np.float64).tiny)


@functools.cache
def _read_covertype(path: Path) -> Array:
    with gzip.open(path, "rt", encoding="ascii") as file:
        lines = [line for line in file if line.rstrip().endswith((",5", ",6"))]
    return np.loadtxt(lines, delimiter=",")


def _synthetic_covertype(N: int, d: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.intp]]:
    """Ten correlated numeric columns and indicator columns of a few common and many rare values, 65 % of class 1."""
    codes = (rng.random(N) < 0.65).astype(np.intp)
    numeric = min(10, d)
    mix = rng.normal(size=(numeric, numeric)) / np.sqrt(numeric)
    X = np.zeros((N, d))
    X[:, :numeric] = rng.normal(size=(N, numeric)) @ mix + 0.6 * rng.normal(size=(2, numeric))[codes]
    if d > numeric:
        shares = rng.dirichlet(np.full(d - numeric, 0.2), size=2)
        for c in (0, 1):
            rows = np.flatnonzero(codes == c)
            X[rows, numeric + rng.choice(d - numeric, size=len(rows), p=shares[c])] = 1.0
    return X, codes


def _columns(rows: Sequence[Row]) -> list[str]:
    """Every key of the rows, in order of first appearance."""
    return list(dict.fromkeys(key for row in rows for key in row))


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value).replace("|", "\\|")


def _peak_growth(fn: Callable[..., object], prepare: Callable[[], object] | None) -> int:
    arguments = () if prepare is None else (prepare(),)
    gc.collect()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)  # memory that prepare freed would serve fn without being counted
    before = _reset_peak()
    fn(*arguments)
    return max(_peak() - before, 0)


def _reset_peak() -> int:
    """Resident bytes now, from which the peak is counted. Outside Linux, the peak up to now."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return _peak()
    return _status("VmRSS")


def _peak() -> int:
    """Peak resident bytes. On Linux from the process's own status: getrusage inherits the peak of the parent there."""
    if Path("/proc/self/status").exists():
        return _status("VmHWM")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _commit() -> str:
    """Commit of the checkout, followed by + if it has changes."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
