"""`Compute`: where a solver runs, in which precision, with how much memory. Also losses stored on disk."""

from __future__ import annotations

import numbers
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, check_positive_integer
from surefoot.backends.block_rows import Anchors, BlockedRows, BlockStore, StoreMaker
from surefoot.backends.sources import RowSource, block_edges, rows_per_block

# Where the exact solver runs, in which precision, with how much memory.


@dataclass(frozen=True)
class Compute:
    """Where and how to compute, in blocks of rows: the parameter `compute` of estimators and functions.

    Without it, problems of up to 2^24 distances are solved in memory, and larger ones in blocks with these defaults.

    Parameters
    ----------
    device : str, default="cpu"
        "cpu" runs compiled loops, with one block per thread at a time. Any other name, such as "cuda" or "cuda:1", is a
        torch device, which must hold all rows. "torch" is torch on the CPU.
    precision : {"auto", "float64", "float32"}, default="auto"
        Precision of the early iterations on a torch device. "auto" is float32 on a GPU and float64 elsewhere. The last
        iterations and both bounds are always evaluated in float64.
    memory : int, default=1 GiB
        Bytes for distances that are kept between passes. Other distances are computed again in each pass. Half of the
        memory is for the samples on which the path begins. Lists of near anchors take up to an eighth of `memory` in
        addition. With Dask, `memory` is the number of bytes per worker, for rows and distances.
    block_rows : int or None, default=None
        Rows per block. None means 65536, or fewer if there would be fewer than 8 blocks. Sums are added in one fixed
        order, so results do not depend on the backend. This number changes results only by rounding errors.

    Examples
    --------
    >>> import surefoot as sf
    >>> clf = sf.RobustLogisticRegression(radius=0.5, label_prior=[0.5, 0.5], compute=sf.Compute(memory=1 << 20))
    >>> clf.fit([[0.0], [1.0]], [0, 1], X_unlabeled=[[0.1], [0.9], [1.1]]).certificate_.status
    'optimal'
    """

    device: str = "cpu"
    precision: str = "auto"
    memory: int = 1 << 30
    block_rows: int | None = None

    def __post_init__(self) -> None:
        if self.precision not in ("auto", "float64", "float32"):
            raise ParameterError(
                "precision", 'must be "auto", "float64" or "float32"', repr(self.precision), "Pass one of these."
            )
        if not isinstance(self.memory, numbers.Integral) or isinstance(self.memory, bool) or self.memory < 0:
            raise ParameterError(
                "memory", "must be a number of bytes >= 0", repr(self.memory), "Pass 1 << 30 for 1 GiB."
            )
        if not isinstance(self.device, str):
            raise ParameterError(
                "device", 'must be "cpu", "torch" or a torch device', repr(self.device), 'Pass "cuda".'
            )
        if self.block_rows is not None:
            check_positive_integer(self.block_rows, "block_rows")
        if self.precision == "float32" and self.device == "cpu":
            raise ParameterError(
                "precision",
                'must be "float64" without a torch device',
                '"float32" with device="cpu"',
                'Pass device="cuda" or "torch".',
            )

    def rows_at_a_time(self, source: RowSource) -> int:
        """Return the number of rows per block.

        Parameters
        ----------
        source : RowSource
            All rows.

        Returns
        -------
        int
            `block_rows`, or the default for this number of rows.
        """
        return self.block_rows or rows_per_block(source.n_rows)

    def sweep_maker(self, losses_at: Any, executor: Any) -> StoreMaker:
        """Return the function that builds sums over a source of rows.

        Parameters
        ----------
        losses_at : function(rows) -> array of shape (B, K), or None
            Losses at rows, if they are fixed.
        executor : Executor or None
            Threads over blocks.

        Returns
        -------
        SweepMaker
            A function (source, weights, unit, anchors) -> BlockStore.
        """
        return partial(_sweep, losses_at=losses_at, executor=executor, how=self)


def _sweep(
    source: RowSource,
    weights: FloatArray,
    unit: float,
    anchors: Anchors,
    *,
    losses_at: Any,
    executor: Any,
    how: Compute,
) -> BlockStore:
    """Build the sums over a source. A source with its own workers sums over its rows itself."""
    elsewhere = getattr(getattr(source, "rest", None), "sweep", None)
    if elsewhere is not None:
        if how.device != "cpu":
            raise ParameterError(
                "device",
                'must be "cpu" for Dask collections, because their workers compute',
                repr(how.device),
                'Pass "cpu".',
            )
        return elsewhere(source, weights, unit, anchors, losses_at, how.rows_at_a_time(source), how.memory)
    if how.device != "cpu":
        return _on_device(source, weights, unit, anchors, losses_at, how)
    block_rows = how.rows_at_a_time(source)
    losses = None if losses_at is None else StoredLosses.from_source(source, losses_at, block_rows)
    return BlockedRows(source, weights, unit, anchors, losses, executor, _share(source, how), block_rows)


def _on_device(
    source: RowSource, weights: FloatArray, unit: float, anchors: Anchors, losses_at: Any, how: Compute
) -> BlockStore:
    try:
        import torch

        from surefoot.backends.torch_sweep import TorchRows
    except ImportError as error:
        raise ImportError(f'device={how.device!r} needs torch: pip install "surefoot[torch]"') from error
    device = "cpu" if how.device == "torch" else how.device
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ParameterError(
            "device",
            "must be a device that torch can use, and no CUDA device is available",
            repr(how.device),
            'Pass device="cpu".',
        )
    losses = None if losses_at is None else losses_at(source.read(0, source.n_rows))
    precision = how.precision
    if precision == "auto":
        precision = "float32" if device.startswith("cuda") else "float64"
    return TorchRows.from_source(
        source,
        weights,
        unit,
        anchors,
        device=device,
        dtype=getattr(torch, precision),
        losses=losses,
        keep_bytes=_share(source, how),
    )


def _share(source: RowSource, how: Compute) -> int:
    """Return half of the memory for all rows, or a quarter for each of the two samples (no rows come first in them)."""
    return how.memory // (2 if getattr(source, "rest", None) is not None else 4)


# Losses of more than this many bytes are stored in a temporary file, so that unused pages can leave memory.
_IN_MEMORY = 1 << 27


@dataclass(frozen=True, eq=False)
class StoredLosses:
    """Losses (N, K), in memory or in a temporary file."""

    matrix: FloatArray
    file: object | None

    @classmethod
    def from_source(
        cls, source: RowSource, losses_at: Callable[[FloatArray], FloatArray], block_rows: int
    ) -> StoredLosses:
        """Compute the losses of one block after another."""
        matrix, file = None, None
        for start, stop in block_edges(source.n_rows, block_rows):
            part = losses_at(source.read(start, stop))
            if matrix is None:
                shape = (source.n_rows, part.shape[1])
                if 8 * shape[0] * shape[1] <= _IN_MEMORY:
                    matrix = np.empty(shape)
                else:
                    file = tempfile.TemporaryFile()  # noqa: SIM115 - the file lives as long as the losses
                    matrix = np.memmap(file, dtype=np.float64, mode="w+", shape=shape)
            matrix[start:stop] = part
        if matrix is None:
            raise ValueError("there are no rows: give at least one labeled row")
        return cls(matrix, file)

    def __call__(self, start: int, stop: int) -> FloatArray:
        return np.asarray(self.matrix[start:stop])
