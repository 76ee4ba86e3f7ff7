"""Which rows of a table taught a model: their labels say nothing of how it does on others."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.pool.model_file import ModelFile
from surefoot.pool.table import Pool

TAUGHT = "taught"


def taught_by(pool: Pool) -> list[str]:
    """Fingerprints of the labeled rows of a pool, to be stored with a model."""
    return _fingerprints(pool.values[pool.labeled])


def were_taught(stored: ModelFile | None, cells: Any) -> NDArray[np.bool_]:
    """(N,) which rows of a table a model was taught by; of rows that are alike, as many as taught it."""
    left = Counter([] if stored is None else stored.certificate.get(TAUGHT, []))
    found = np.zeros(len(cells), dtype=bool)
    if stored is None or not left:
        return found
    for row, mark in enumerate(_fingerprints(stored.columns.read(cells))):
        found[row] = left[mark] > 0
        left[mark] -= 1
    return found


def _fingerprints(values: Any) -> list[str]:
    """One for each row, of what its used columns hold, however the file writes it."""
    import pandas as pd

    return [f"{mark:016x}" for mark in pd.util.hash_pandas_object(values, index=False).tolist()]
