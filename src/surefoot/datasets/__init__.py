"""The datasets of the paper's experiments, ready to use: `load("abalone")`.

The loader searches for raw files of the UCI archive in your own folder and in the user's cache. It downloads missing
files into the cache. See docs/datasets.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch, check_random_state

from surefoot._errors import ParameterError
from surefoot.datasets._catalogue import ALIASES, DATASETS, PAPER, Dataset, standardize
from surefoot.datasets._download import locate
from surefoot.datasets._encoding import EncodedTable

__all__ = ["load", "names", "standardize"]


def names(*, paper_only: bool = False) -> list[str]:
    """List the datasets: the paper's 14 in the order of its Table 2, then "bank-leaky" and "breast-cancer".

    Parameters
    ----------
    paper_only : bool, default=False
        Whether to list only the paper's datasets.

    Returns
    -------
    list of str
        Names that `load` accepts.

    Examples
    --------
    >>> from surefoot import datasets
    >>> datasets.names()[-2:]
    ['bank-leaky', 'breast-cancer']
    """
    return list(PAPER if paper_only else DATASETS)


def load(
    name: str,
    *,
    random_state: int | np.random.RandomState | None = 0,
    return_X_y: bool = False,
    as_frame: bool = False,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    scaled: bool = True,
) -> Any:
    """Load a dataset of the paper's experiments (its Table 2), with the paper's classes, rows, features and scale.

    The function searches for raw files in `data_home`, in the folder named by the environment variable SUREFOOT_DATA,
    and in the user's cache, in this order. It downloads missing files from the UCI archive, and checks all contents
    against a sha256.

    Parameters
    ----------
    name : str
        One of `names()`. The paper's and UCI's names, such as "Cover (2/3)" or "HTRU2", also work.
    random_state : int, RandomState instance or None, default=0
        Seed of the row sample. Bank and Cover are sampled to 10,000 rows. In Magic and Pulsar, the larger class is
        sampled to the size of the smaller class. All other datasets keep all rows and do not depend on the seed. With
        the fixed default, a name always means the same rows.
    return_X_y : bool, default=False
        Return `(data, target)` only.
    as_frame : bool, default=False
        Return pandas objects.
    data_home : str or path-like, default=None
        A folder with raw files, searched first. If given, downloads go there and not into the user's cache.
    download_if_missing : bool, default=True
        Whether to download missing files. If False, missing files raise an error.
    scaled : bool, default=True
        Whether to apply the paper's preprocessing to the sampled rows, see `standardize`. If False, return the encoded
        values.

    Returns
    -------
    Bunch
        `data` (N, d), float64; `target` (N,), 1 for the positive class and 0 for the negative class; `feature_names`;
        `target_names`, the negative class first; `n_positive`; `name`; `title`, the paper's name; `source`, the page
        of the UCI archive; `DESCR`; `frame`, data and target together if `as_frame` is set. With `return_X_y`, the pair
        `(data, target)` instead.

    Raises
    ------
    FileNotFoundError
        A file is missing and was not downloaded. The message names the fix.
    OSError
        A file was found, but its content is not the expected content.

    Examples
    --------
    >>> from surefoot import datasets
    >>> X, y = datasets.load("breast-cancer", return_X_y=True)
    >>> X.shape, int(y.sum()), float(abs(X).max())
    ((569, 30), 357, 1.0)
    """
    key = resolve(name)
    rng = check_random_state(random_state)
    dataset = DATASETS[key]
    paths = locate(dataset.archive, data_home, download_if_missing=download_if_missing)
    table = _encoded(key, paths, tuple((path.stat().st_size, path.stat().st_mtime_ns) for path in paths))
    rows = slice(None) if dataset.draw is None else dataset.draw.rows(table.target, rng)
    encoded = table.data[rows]
    data: Any = standardize(encoded) if scaled else encoded.astype(np.float64)
    target: Any = table.target[rows].copy()
    description = _describe(key, dataset, target, len(table.target), scaled=scaled)
    bunch = Bunch(
        frame=None,
        feature_names=list(table.names),
        target_names=np.array(dataset.classes),
        n_positive=int(target.sum()),
        name=key,
        title=dataset.title,
        source=dataset.archive.page,
        DESCR=description,
    )
    if as_frame:
        bunch.frame = _frame(data, target, table.names)
        data, target = bunch.frame[list(table.names)], bunch.frame["target"]
    if return_X_y:
        return data, target
    bunch.update(data=data, target=target)
    return bunch


def resolve(name: str) -> str:
    """Return the catalogue name of a dataset. The error for an unknown name suggests the nearest name."""
    rule = f"must be one of {', '.join(DATASETS)}"
    if not isinstance(name, str):
        raise ParameterError("name", rule, f"{name!r} ({type(name).__name__})", "Pass one of these strings.")
    key = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")  # "Cover (2/3)" is cover-2-3
    key = ALIASES.get(key, key)
    if key not in DATASETS:
        near = get_close_matches(key, [*DATASETS, *ALIASES], n=1, cutoff=0.4)
        fix = f"Did you mean {ALIASES.get(near[0], near[0])!r}?" if near else "Pass one of these."
        raise ParameterError("name", rule, repr(name), fix)
    return key


@lru_cache(maxsize=4)  # the largest tables need about 35 MB; reading Cover and Isolet takes a second
def _encoded(name: str, paths: tuple[Path, ...], stamps: tuple[tuple[int, int], ...]) -> EncodedTable:
    """Return all rows of a dataset. The stamps (size and time of the files) change if a file changes."""
    dataset = DATASETS[name]
    files = zip(dataset.archive.files, paths, strict=True)
    return dataset.encode(tuple(file.read(path) for file, path in files))


def _frame(data: NDArray[np.float64], target: NDArray[np.int64], feature_names: Sequence[str]) -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("as_frame=True needs pandas; install it, or pass as_frame=False.") from error
    return pd.DataFrame(data, columns=list(feature_names)).assign(target=target)


def _describe(name: str, dataset: Dataset, target: NDArray[np.int64], n_available: int, *, scaled: bool) -> str:
    negative, positive = dataset.classes
    n_rows, n_positive = len(target), int(target.sum())
    drawn = ""
    if dataset.draw is not None:
        shares = "half from each class" if dataset.draw.balanced else "each class with its share"
        drawn = f", drawn from {n_available} without replacement, {shares}"
    scale = (
        "Each feature has its mean subtracted and is divided by its standard deviation; then all are divided by the "
        "largest absolute entry."
        if scaled
        else "The values are as encoded, not scaled."
    )
    lines = [
        f"{dataset.title} ({name})",
        "",
        f"{n_rows} rows{drawn}.",
        f"Positive class (1): {positive}, {n_positive} rows or {n_positive / n_rows:.1%}.",
        f"Negative class (0): {negative}.",
        f"Features: {dataset.features}. {scale}",
        *([dataset.note] if dataset.note else []),
        f"Source: UCI Machine Learning Repository, {dataset.archive.page}",
    ]
    return "\n".join(lines)
