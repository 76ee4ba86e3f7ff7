"""Cost against the number of rows N and of anchors n: one fit of the exact solver in blocks, to a gap of 1e-4.

    python benchmarks/scaling.py --out benchmarks/results-scaling.csv --by "2 threads" [--rows 10000] [--anchors 20]
    python benchmarks/scaling.py --out benchmarks/results-scaling.csv --figure docs/images/scaling.png

Two Gaussian classes, 20 features, Clopper–Pearson intervals, an excess radius of 0.01. The rows are memory-mapped from
a .npy file (with "cuda" they are in memory and then on the GPU). Each fit runs in a new process. Memory is the peak
minus the state before the fit, without the pages of the file (RssAnon; with Dask the sum over workers; with a GPU the
memory allocated there). A fit computes its own minimal radius. `sf.minimal_radius` alone is also timed, unless a line
of the CSV contains this radius (up to 2^24 distances it is solved in memory). Lines that the CSV contains are not run
again.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FEATURES = 20
FIELDS = ["sweep", "by", "N", "n", "seconds", "peak_MB", "gap", "radius", "minimal_radius_seconds"]
FIELDS += ["passes", "tasks", "sent_MB", "received_MB"]  # over the rows, and over the network: of Dask
HOWS = ("1 thread", "2 threads", "2 Dask workers", "cuda")

FIT = """
import json, sys, threading, time
import numpy as np
import surefoot as sf


def held(process="self"):
    for line in open(f"/proc/{process}/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1e3


def main():
    path, n, by = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    U = np.load(path, mmap_mode="r")
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, U.shape[1]))
    X[:, :2] += 1.5 * (2 * y - 1)[:, None]
    X /= 6.5
    threads, compute, processes = (2 if by == "2 threads" else 1), sf.Compute(), ["self"]
    wrap = lambda rows: rows
    if by == "2 Dask workers":
        import os
        import dask.array as da
        from dask.delayed import delayed
        from surefoot.backends.dask_rows import DaskRows, local_client
        client = local_client(2)
        processes = [str(p) for p in client.run(os.getpid).values()]
        read = delayed(lambda start, stop: np.load(path, mmap_mode="r")[start:stop])  # by the workers

        def wrap(rows):
            edges = [*range(0, len(rows), 1 << 16), len(rows)]
            parts = [da.from_delayed(read(a, b), (b - a, rows.shape[1]), float) for a, b in zip(edges, edges[1:])]
            return DaskRows(da.concatenate(parts), client)
    if by == "cuda":
        compute, U = sf.Compute("cuda", memory=64 << 30), np.array(U)
    fit = lambda rows, radius, n=n: sf.RobustLogisticRegression(
        radius, "clopper-pearson", 1.0, "euclidean", l2=0.0, compute=compute, n_jobs=threads
    ).fit(X[:n], y[:n], X_unlabeled=rows)
    fit(wrap(U[:5000]), 5.0, n=20)  # compiles
    start, done, peak = time.perf_counter(), threading.Event(), [0.0]

    def watch():
        while not done.wait(0.05):
            peak[0] = max(peak[0], sum(held(p) for p in processes))

    radius = float(sys.argv[5])
    if by == "cuda":
        import torch
        sys.path.insert(0, sys.argv[4])
        from gpu import radius_of
    if radius == 0:
        radius = radius_of((X, y, U)) if by == "cuda" else (
            sf.minimal_radius(X, y, X_unlabeled=wrap(U), label_prior="clopper-pearson", label_cost=1.0,
                metric="euclidean", n_jobs=threads) + 0.01
        )
        alone = round(time.perf_counter() - start, 2)
    else:
        alone = None
    if by == "cuda":
        torch.cuda.reset_peak_memory_stats()
    before, middle = sum(held(p) for p in processes), time.perf_counter()
    thread = threading.Thread(target=watch)
    thread.start()
    rows = wrap(U)
    found = fit(rows, radius).certificate_
    seconds = time.perf_counter() - middle
    done.set()
    thread.join()
    most = torch.cuda.max_memory_allocated() / 1e6 if by == "cuda" else peak[0] - before
    line = {"seconds": round(seconds, 2), "peak_MB": round(most, 1), "gap": f"{found.gap:.2e}",
            "radius": radius, "minimal_radius_seconds": alone}
    if by == "2 Dask workers":
        moved = rows.traffic
        line |= {"passes": moved.passes, "tasks": moved.tasks, "sent_MB": round(moved.sent / 1e6, 1),
                 "received_MB": round(moved.received / 1e6, 1)}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
"""


def make_rows(path: Path, N: int) -> None:
    """Rows in a .npy file, written in parts."""
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(N, FEATURES))
    rng = np.random.default_rng(0)
    for start in range(0, N, 1 << 18):
        part = rows[start : start + (1 << 18)]
        y = rng.integers(0, 2, len(part))
        values = rng.normal(size=part.shape)
        values[:, :2] += 1.5 * (2 * y - 1)[:, None]
        part[:] = values / 6.5
    rows.flush()


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def exponent(lines: list[dict[str, str]], over: str, what: str) -> float:
    """Slope of log(what) against log(over), least squares."""
    x, y = (np.log([float(line[name]) for line in lines]) for name in (over, what))
    return float(np.polyfit(x, y, 1)[0])


def draw(lines: list[dict[str, str]], path: Path) -> None:
    """Plot seconds against N and n on log scales, with fitted exponents from N = 10⁵ and n = 100 on."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 4), layout="constrained")
    for axes, over, least in zip(figure.subplots(1, 2), ("N", "n"), (1e5, 100), strict=True):
        for by in HOWS:
            chosen = [line for line in lines if line["sweep"] == over and line["by"] == by]
            chosen.sort(key=lambda line: float(line[over]))
            if not chosen:
                continue
            large = [line for line in chosen if float(line[over]) >= least]
            slope = f": exponent {exponent(large, over, 'seconds'):.2f}" if len(large) > 1 else ""
            points = [[float(line[name]) for line in chosen] for name in (over, "seconds")]
            axes.loglog(*points, "o-", label=f"{by}{slope}")
        axes.set_xlabel({"N": "rows N, at n = 100 anchors", "n": "anchors n, at N = 10,000 rows"}[over])
        axes.set_ylabel("seconds for one fit")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)


def measure(path: Path, n: int, by: str, folder: Path, radius: str) -> Any:
    program = folder / "fit.py"  # a file: processes of Dask import their main module
    program.write_text(FIT, encoding="utf-8")
    command = [sys.executable, str(program), str(path), str(n), by, str(Path(__file__).resolve().parent), radius]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{path.name}, n={n}, {by}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--by", choices=HOWS)
    parser.add_argument("--rows", default="10000,100000,1000000,10000000")
    parser.add_argument("--anchors", default="20,100,500,1000,5000")
    parser.add_argument("--figure", type=Path)
    asked = parser.parse_args()
    if asked.by:
        work = [("N", int(N), 100) for N in asked.rows.split(",") if N]
        work += [("n", 10_000, int(n)) for n in asked.anchors.split(",") if n]
        known = {(line["sweep"], int(line["N"]), int(line["n"]), line["by"]) for line in read(asked.out)}
        with asked.out.open("a", encoding="utf-8", newline="") as file, tempfile.TemporaryDirectory() as folder:
            writer = csv.DictWriter(file, FIELDS)
            if not known:
                writer.writeheader()
            for sweep, N, n in work:
                if (sweep, N, n, asked.by) in known:
                    continue
                path = Path(folder) / f"{N}.npy"
                if not path.exists():
                    make_rows(path, N)
                known_radii = [one["radius"] for one in read(asked.out) if one["N"] == str(N) and one["n"] == str(n)]
                radius = max(known_radii, default="") or "0"
                found = measure(path, n, asked.by, Path(folder), radius)
                writer.writerow({"sweep": sweep, "by": asked.by, "N": N, "n": n} | found)
                file.flush()
                print(sweep, N, n, asked.by, found, flush=True)
    if asked.figure:
        draw(read(asked.out), asked.figure)


if __name__ == "__main__":
    main()
