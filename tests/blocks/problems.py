"""A pool whose unlabeled rows can be handed over in many forms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import surefoot as sf

SMALL_BLOCKS = sf.Compute(block_rows=256)


@dataclass(frozen=True)
class Pool:
    X: NDArray[np.float64]
    y: NDArray[np.intp]
    U: NDArray[np.float64]

    @classmethod
    def draw(cls, K: int = 2, n: int = 20, M: int = 900, d: int = 3, seed: int = 0) -> Pool:
        rng = np.random.default_rng(seed)
        y = np.concatenate([np.arange(K), rng.integers(0, K, n + M - K)])
        X = rng.normal(size=(n + M, d))
        X[:, 0] += 1.5 * y
        X /= np.abs(X).max()
        return cls(X[:n], y[:n], X[n:])

    def memmap(self, folder: Path) -> np.memmap[Any, Any]:
        np.save(folder / "rows.npy", self.U)
        return np.load(folder / "rows.npy", mmap_mode="r")  # type: ignore[no-any-return]

    def parquet(self, folder: Path, files: int = 2, group: int = 170) -> sf.ParquetRows:
        import pyarrow as pa
        import pyarrow.parquet as pq

        (folder / "parts").mkdir()
        for at, part in enumerate(np.array_split(self.U, files)):
            table = pa.table({f"x{t}": part[:, t] for t in range(part.shape[1])})
            pq.write_table(table, folder / "parts" / f"{at}.parquet", row_group_size=group)
        return sf.ParquetRows(folder / "parts")

    def fit(self, U: Any, compute: Any = SMALL_BLOCKS, **settings: Any) -> sf.RobustLogisticRegression:
        radius = settings.pop("radius") if "radius" in settings else self.radius
        clf = sf.RobustLogisticRegression(radius, compute=compute, **settings)
        return clf.fit(self.X, self.y, X_unlabeled=U)

    @property
    def radius(self) -> float:
        return sf.minimal_radius(self.X, self.y, X_unlabeled=self.U) + 0.02
