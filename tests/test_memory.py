"""A problem that does not fit into memory is refused before it is allocated, with what to do."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from surefoot import _machine

GIB = 2**30


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_machine, "available_memory", lambda: GIB)


def zeros(*shape: int) -> np.ndarray:
    """Rows that take no memory."""
    return np.broadcast_to(0.0, shape)


@pytest.mark.usefixtures("little_memory")
class TestRefused:
    X, y = np.arange(10_000.0)[:, None], np.arange(10_000) % 2
    U = zeros(90_000, 1)
    match = r"distances of all rows to labeled rows must fit .* 100000 x 10000 .*7\.45 GiB, where 1 GiB .* sample"

    def test_a_tolerance_that_blocks_do_not_reach(self) -> None:
        with pytest.raises(MemoryError, match=self.match):
            sf.RobustLogisticRegression(radius=1.0, tol=1e-7).fit(self.X, self.y, X_unlabeled=self.U)

    def test_losses(self) -> None:
        losses = zeros(100_000, 2)
        with pytest.raises(MemoryError, match=self.match):
            sf.certify(None, self.X, self.y, X_unlabeled=self.U, losses=losses, radius=1.0, tol=1e-6)

    def test_distances_between_labeled_rows(self) -> None:
        X = np.arange(20_000.0)[:, None]
        data = sf.problem.rows.LabeledData.check(
            X, np.arange(20_000) % 2, sample_weight=None, classes=None, metric="euclidean"
        )
        with pytest.raises(MemoryError, match=r"20000 x 20000 of them, 2\.98 GiB, where 1 GiB .* number as radius"):
            data.distances_between_labeled()


def test_what_fits_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_machine, "available_memory", lambda: 2 * GIB)
    _machine.check_fits(2**14, 2**14, "a matrix", "")
    monkeypatch.setattr(_machine, "available_memory", lambda: None)
    _machine.check_fits(2**20, 2**20, "a matrix", "")


@pytest.mark.parametrize("parameters", [{}, {"metric": "learned"}, {"metric": sf.costs.LearnedMetric(unit=1.0)}])
def test_a_wide_table_takes_a_few_times_its_own_memory(parameters: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 4000))
    sf.RobustLogisticRegression(**parameters).fit(X[:20, :2], np.arange(20) % 2, X_unlabeled=X[20:, :2])  # imports
    tracemalloc.start()
    try:
        sf.RobustLogisticRegression(**parameters).fit(X[:20], np.arange(20) % 2, X_unlabeled=X[20:])
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 20 * X.nbytes  # a matrix of its features takes 67 times as much


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_what_is_there_is_read_from_the_system(tmp_path: Path) -> None:
    meminfo = write(tmp_path, meminfo="MemTotal:  999 kB\nMemAvailable:  512 kB\n") / "meminfo"
    assert _machine._of_machine(meminfo) == 512 * 1024
    stat = "anon 5\ninactive_file 30\n"
    new = write(tmp_path / "2", memory_dot_max="100\n", memory_dot_current="80\n", memory_dot_stat=stat)
    assert _machine._of_cgroup(new) == 50
    assert _machine._of_cgroup(write(tmp_path / "free", memory_dot_max="max\n", memory_dot_current="80\n")) is None
    old = write(tmp_path / "1", memory__memory_dot_limit_in_bytes="70", memory__memory_dot_usage_in_bytes="90")
    assert _machine._of_cgroup(old) == 0
    assert _machine._of_cgroup(tmp_path / "none") is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of the address space are those of Linux")
def test_the_limit_of_the_process_counts() -> None:
    script = (
        "import resource; from surefoot import _machine; "
        f"resource.setrlimit(resource.RLIMIT_AS, ({64 * GIB}, {64 * GIB})); "
        f"left = _machine._of_process(); assert 0 < left < {64 * GIB}, left; "
        "assert _machine.available_memory() <= left"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
