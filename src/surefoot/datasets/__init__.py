"""The datasets of the paper's experiments, ready to use: `load("abalone")`.

The raw files of the UCI archive are looked for in a folder of your own or in the user's cache, and downloaded into the
cache otherwise. See docs/datasets.md.
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
        Whether to list only the paper's.

    Returns
    -------
    list of str
        Names that `load` takes.

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

    Raw files are looked for in `data_home`, in the folder that the environment variable SUREFOOT_DATA names, and in
    the user's cache, in this order. Missing files are downloaded from the UCI archive. Contents are checked against a
    sha256.

    Parameters
    ----------
    name : str
        One of `names()`; the paper's and UCI's names, such as "Cover (2/3)" or "HTRU2", are understood too.
    random_state : int, RandomState instance or None, default=0
        Seed of the rows drawn: 10,000 of Bank and Cover, and as many of the larger class as of the smaller one of
        Magic and Pulsar. The other datasets keep all rows and do not depend on the seed. With the fixed default, a name
        always means the same rows.
    return_X_y : bool, default=False
        Return `(data, target)` only.
    as_frame : bool, default=False
        Return pandas objects.
    data_home : str or path-like, default=None
        A folder with raw files, searched first; downloads are then written there and not into the user's cache.
    download_if_missing : bool, default=True
        Whether to download files that are found nowhere. Otherwise they are an error.
    scaled : bool, default=True
        Apply the paper's preprocessing to the rows drawn, see `standardize`; otherwise return the encoded values.

    Returns
    -------
    Bunch
        `data` (N, d), float64; `target` (N,), 1 for the positive class and 0 for the other; `feature_names`;
        `target_names`, the negative class first; `n_positive`; `name`; `title`, the paper's name; `source`, the page
        of the UCI archive; `DESCR`; `frame`, data and target together where `as_frame` is set. Or the pair `(data,
        target)`, with `return_X_y`.

    Raises
    ------
    FileNotFoundError
        A file was found nowhere, and was not or could not be downloaded. The message says what to do.
    OSError
        A file was found, but it is not the one expected.

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
    """The name under which the catalogue has a dataset; unknown names are an error with the nearest one."""
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


@lru_cache(maxsize=4)  # the largest tables take about 35 MB; Cover and Isolet take a second to read
def _encoded(name: str, paths: tuple[Path, ...], stamps: tuple[tuple[int, int], ...]) -> EncodedTable:
    """All rows of a dataset. The stamps (size and time of the files) make a changed file be read again."""
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
