"""Compare the exact solver on a GPU with the compiled loops on two CPU cores.

    python benchmarks/gpu.py [--rows 1000000] [--anchors 1000] [--features 54] [--fits-only]
        [--cpu-rows 100000] [--out FILE.csv]

Each line is one fit to a certified gap of 1e-4 at an excess radius of 0.01, for two Gaussian classes, Clopper–Pearson
intervals, κ = 1 and Euclidean distances. Times are wall clock, from arrays in memory to the certificate. On the GPU
they are those of a second fit, since the first one compiles kernels and takes the device's memory. A pass reads all N·n
distances once. Its fraction of the bandwidth limit is the time to read the same number of bytes, at the rate of a copy
on the device in the same run, divided by the time of the pass. The fused kernels are compared with the same passes by
torch operations, which are used if Triton is missing.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

import surefoot as sf
from surefoot.backends.blocks import BlockedProblem
from surefoot.backends.compute import Compute
from surefoot.backends.sources import ArrayRows
from surefoot.dual.block import DualProblem
from surefoot.dual.models import DualPoint
from surefoot.problem.rows import LabeledData


def problem(N: int, n: int, d: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, N)
    X = rng.normal(size=(N, d))
    X[:, :4] += 0.8 * (2 * y - 1)[:, None]
    X /= np.abs(X).max()
    return X[:n], y[:n], X[n:]


def radius_of(data: tuple[Any, Any, Any]) -> float:
    """The minimal radius plus 0.01."""
    X, y, U = data
    how = Compute("cuda", memory=64 << 30)
    found = sf.minimal_radius(
        X, y, X_unlabeled=U, label_prior="clopper-pearson", label_cost=1.0, metric="euclidean", compute=how
    )
    return found + 0.01


@contextmanager
def step_by_step() -> Iterator[None]:
    """Passes without the fused kernels."""
    from surefoot.kernels.torch_arrays import TorchArrays

    fused = TorchArrays.__dict__["fused"]
    TorchArrays.fused = staticmethod(lambda _distances: None)
    try:
        yield
    finally:
        TorchArrays.fused = fused


def fit(data: tuple[Any, Any, Any], compute: Compute, radius: float, n_jobs: int | None = None) -> tuple[float, Any]:
    X, y, U = data
    start = time.perf_counter()
    clf = sf.RobustLogisticRegression(
        radius, "clopper-pearson", 1.0, "euclidean", l2=0.0, compute=compute, n_jobs=n_jobs
    )
    clf.fit(X, y, X_unlabeled=U)
    return time.perf_counter() - start, clf.certificate_


def bandwidth(size: int) -> float:
    """Bytes per second that a copy on the device reads."""
    import torch

    a = torch.empty(size // 4, dtype=torch.float32, device="cuda")
    b = torch.empty_like(a)
    for _ in range(3):
        b.copy_(a)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(10):
        b.copy_(a)
    torch.cuda.synchronize()
    return 2 * 10 * a.nbytes / (time.perf_counter() - start)  # read and written


def pass_seconds(data: tuple[Any, Any, Any], precision: str, name: str, second_order: bool) -> float:
    """Seconds of one pass at a point of middling smoothing, the distances kept on the device."""
    import torch

    X, y, U = data
    labeled = LabeledData.check(X, y, sample_weight=None, classes=None, metric="euclidean")
    ds, how = labeled.decision_set("clopper-pearson", 1.0), Compute("cuda", precision, memory=128 << 30)
    game = BlockedProblem.from_labeled_set(labeled, ds, ArrayRows(U), how).linear(0.0, True)
    bare = DualProblem.from_decision_set(ds.with_radius(1.0), game.model)
    point = DualPoint(np.full(game.model.shape, 0.1), 5.0, np.zeros(2), np.zeros(len(ds.anchor_weights)))
    times = []
    for _ in range(6):
        torch.cuda.synchronize()
        start = time.perf_counter()
        if name == "row_sums":
            game.sweep.row_sums(bare, point, 1e-2, second_order=second_order, exact=False)
        else:
            game.sweep.upper_bound(bare, point)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def on_gpu(N: int, n: int, d: int, passes: bool, say: Any) -> None:
    """Fits and, on request, single passes on the device."""
    import torch

    data = problem(N, n, d)
    radius = radius_of(data)
    for precision, memory in itertools.product(("auto", "float64"), (64 << 30, 0)):
        first, _ = fit(data, Compute("cuda", precision, memory=memory), radius)  # compiles kernels and takes memory
        torch.cuda.reset_peak_memory_stats()
        seconds, found = fit(data, Compute("cuda", precision, memory=memory), radius)
        say(
            work=f"fit, N={N}, n={n}, d={d}, {precision}, distances {'kept' if memory else 'computed in each pass'}",
            device=torch.cuda.get_device_name(),
            seconds=round(seconds, 2),
            gap=f"{found.gap:.2e}",
            risk=f"{found.risk:.6f}",
            note=f"{first:.2f} s the first time, peak {torch.cuda.max_memory_allocated() / 1e9:.1f} GB on the device",
        )
    if not passes:
        return
    rate = bandwidth(1 << 32)
    kinds = [("row_sums", False), ("row_sums", True), ("dual_rows", False)]
    for (precision, size), how, (name, second) in itertools.product(
        (("float64", 8), ("float32", 4)), ("fused kernels", "torch step by step"), kinds
    ):
        with nullcontext() if how == "fused kernels" else step_by_step():
            seconds = pass_seconds(data, precision, name, second)
            limit = (8 if name == "dual_rows" else size) * N * n / rate
            say(
                work=f"one pass, {name}{' with Hessian' if second else ''}, {precision}, {how}",
                device=torch.cuda.get_device_name(),
                seconds=round(seconds, 4),
                note=f"{limit / seconds:.1%} of the bandwidth limit, {limit * 1e3:.2f} ms at {rate / 1e12:.2f} TB/s",
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--anchors", type=int, default=1000)
    parser.add_argument("--features", type=int, default=54)
    parser.add_argument("--cpu-rows", type=int, default=100_000, help="0: no fit on the CPU")
    parser.add_argument("--cpu-only", action="store_true", help="only the fit on two CPU cores")
    parser.add_argument("--fits-only", action="store_true", help="no single passes on the GPU")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    import torch

    N, n, d = asked.rows, asked.anchors, asked.features
    lines: list[dict[str, Any]] = []

    def say(**line: Any) -> None:
        lines.append(line)
        print(line, flush=True)
        if asked.out:
            with asked.out.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, ["work", "device", "seconds", "gap", "risk", "note"])
                writer.writeheader()
                writer.writerows(lines)

    if not asked.cpu_only:
        on_gpu(N, n, d, not asked.fits_only, say)
    if asked.cpu_rows:
        small = problem(asked.cpu_rows, n, d)
        near = radius_of(small)
        for device, jobs in (("cuda", None), ("cpu", 2))[int(asked.cpu_only) :]:
            seconds, found = fit(small, Compute(device, memory=4 << 30), near, jobs)
            say(
                work=f"fit, N={asked.cpu_rows}, n={n}, d={d}, float64",
                device=torch.cuda.get_device_name()
                if device == "cuda"
                else f"2 cores, {platform.processor() or 'CPU'}",
                seconds=round(seconds, 2),
                gap=f"{found.gap:.2e}",
                risk=f"{found.risk:.6f}",
            )


if __name__ == "__main__":
    main()
