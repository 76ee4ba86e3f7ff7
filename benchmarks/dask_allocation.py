"""Compare one fit on two Dask workers with Dask's own settings and with `surefoot.backends.dask_rows.local_client`.

    OPENBLAS_NUM_THREADS=1 python benchmarks/dask_allocation.py [--rows 1000000] [--anchors 100]

Dask sets MALLOC_TRIM_THRESHOLD_ for its workers, so that they return memory early. The C library then returns every
array beyond 128 kB at once, and requests it again as fresh pages.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed
from distributed import Client
from scaling import make_rows

import surefoot as sf
from surefoot.backends.dask_rows import DaskRows, local_client


def rows_of(path: Path, client: Any, block: int = 1 << 16) -> DaskRows:
    """Rows of a .npy file, read by the workers."""
    read = delayed(lambda start, stop: np.load(path, mmap_mode="r")[start:stop])
    N, d = np.load(path, mmap_mode="r").shape
    edges = [*range(0, N, block), N]
    parts = [da.from_delayed(read(a, b), (b - a, d), float) for a, b in pairwise(edges)]
    return DaskRows(da.concatenate(parts), client)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--anchors", type=int, default=100)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        make_rows(path, asked.rows)
        X = np.array(np.load(path, mmap_mode="r")[: asked.anchors])
        y = (X[:, 0] > 0).astype(int)
        radius = sf.minimal_radius(X, y, X_unlabeled=np.load(path, mmap_mode="r"), n_jobs=2) + 0.01
        clf = sf.RobustLogisticRegression(radius=radius, label_prior=None, compute=sf.Compute())
        for name, start in (
            ("Dask's own", lambda: Client(n_workers=2, threads_per_worker=1, dashboard_address=":0")),
            ("local_client", lambda: local_client(2)),
        ):
            with start() as client:
                clf.fit(X, y, X_unlabeled=DaskRows(da.from_array(X), client))  # compiles
                rows = rows_of(path, client)
                begin = time.perf_counter()
                gap = clf.fit(X, y, X_unlabeled=rows).certificate_.gap
                print(f"{name}: {time.perf_counter() - begin:.1f} s, gap {gap:.1e}; {rows.traffic}", flush=True)


if __name__ == "__main__":
    main()
