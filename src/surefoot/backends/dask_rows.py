"""Rows of Dask arrays and dataframes: the workers of a cluster compute the sums over blocks.

Anchors and parameters go to the workers. Partial sums come back through a tree of additions, in the order of a single
process. The result is the same to the last bit, for any chunks and any number of workers. It also equals the result of
a single process, or equals it up to rounding if that process keeps short lists of anchors (`dual.row_store`).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._errors import ParameterError, import_extra
from surefoot._machine import one_blas_thread
from surefoot._validation import FloatArray, check_finite_array
from surefoot.backends.block_rows import FAN_IN, Anchors, BlockStore, RowBlock
from surefoot.backends.sources import StackedRows
from surefoot.dual.block import DualProblem
from surefoot.dual.models import Coordinates, FeatureBlock, FixedLosses, RowTotals
from surefoot.problem.rows import fingerprints


@dataclass
class Traffic:
    """Data sent during a fit: passes over the rows, tasks, bytes to the workers and back.

    Bytes to the workers count parameters once per worker and pass. Bytes back count the partial sums of every block,
    and the rows read into this process, which are samples, or all rows if there are few.
    """

    passes: int = 0
    tasks: int = 0
    sent: int = 0
    received: int = 0

    def __str__(self) -> str:
        return (
            f"{self.passes} passes, {self.tasks} tasks, {self.sent / 1e6:.1f} MB to the workers, "
            f"{self.received / 1e6:.1f} MB back"
        )


@dataclass(eq=False)
class DaskRows:
    """Rows of a Dask array (M, d), or of a dataframe's columns.

    Parameters
    ----------
    collection : dask array of shape (M, d), or dask dataframe
    client : distributed.Client, str or None
        A client, or the address of a scheduler; None takes the current client, or starts a cluster on this machine.
    """

    collection: Any
    client: Any = None
    traffic: Traffic = field(default_factory=Traffic)

    @cached_property
    def array(self) -> Any:
        """The rows as a Dask array with known chunks."""
        rows = self.collection
        if hasattr(rows, "to_dask_array"):
            rows = rows.to_dask_array(lengths=True)
        if rows.ndim != 2:
            raise ParameterError("X_unlabeled", "must have 2 dimensions", rows.ndim, "Pass an array (M, d).")
        if np.isnan(rows.shape[0]):
            rows = rows.compute_chunk_sizes()
        return rows.astype(np.float64)

    @cached_property
    def connected(self) -> Any:
        """The client."""
        return connect(self.client)

    @property
    def n_rows(self) -> int:
        return int(self.array.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.array.shape[1])

    @property
    def columns(self) -> list[Any] | None:
        """Names of the columns of a dataframe."""
        return list(self.collection.columns) if hasattr(self.collection, "columns") else None

    def read(self, start: int, stop: int) -> FloatArray:
        """Return rows start to stop, on this machine."""
        return self._fetch(self.array[start:stop])

    def take(self, chosen: NDArray[np.intp]) -> FloatArray:
        """Return the rows at ascending indices. All other rows stay on their workers."""
        return self._fetch(self.array[chosen])

    def _fetch(self, rows: Any) -> FloatArray:
        found = np.ascontiguousarray(self.connected.compute(rows).result())
        self.traffic.passes += 1
        self.traffic.tasks += rows.npartitions
        self.traffic.received += found.nbytes
        return check_finite_array(found, "X_unlabeled", ndim=2)

    def sweep(
        self,
        source: StackedRows,
        weights: FloatArray,
        unit: float,
        anchors: Anchors,
        losses_at: Any,
        block_rows: int,
        memory: int,
    ) -> BlockStore:
        """Sum over all rows on the workers, with the rows of `source` first. Each worker may keep `memory` bytes."""
        import dask.array as da

        rows = self.array
        if len(source.first):
            rows = da.concatenate([da.from_array(np.ascontiguousarray(source.first), chunks=(-1, -1)), rows])
        rows = rows.rechunk((block_rows, -1))
        return DaskSweep(rows, weights, unit, anchors, self.connected, losses_at, self.traffic, memory)


@dataclass
class _HeldByWorkers:
    """Data of each block that a sweep keeps on the workers: rows, distances, losses."""

    blocks: list[Any] | None = None
    distances: list[Any] | None = None
    losses: list[Any] | None = None


@dataclass(eq=False)
class DaskSweep(BlockStore):
    """Sums over the blocks of a Dask array (N, d). Each sum is computed where its rows are.

    If `memory` bytes per worker suffice, the workers keep data between passes: the rows, the losses of a fixed
    classifier, and the distances of the blocks that fit. Dask stores this data, recomputes the data of a lost worker,
    and frees the data together with this sweep.
    """

    rows: Any
    weights: FloatArray
    unit: float
    anchors: Anchors
    client: Any
    losses_at: Callable[[FloatArray], FloatArray] | None
    traffic: Traffic
    memory: int = 0
    coordinates: Coordinates | None = None
    _held: _HeldByWorkers = field(default_factory=_HeldByWorkers)

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return int(self.rows.shape[0])

    def in_coordinates(self, coordinates: Coordinates) -> DaskSweep:
        return replace(self, coordinates=coordinates)

    @cached_property
    def _workers(self) -> int:
        return max(1, len(self.client.scheduler_info(n_workers=-1)["workers"]))

    @property
    def _blocks(self) -> list[Any]:
        """One delayed (rows, weights, start) per block."""
        if self._held.blocks is None:
            from dask.delayed import delayed

            parts = [part[0] for part in self.rows.to_delayed()]
            edges = np.concatenate([[0], np.cumsum(self.rows.chunks[0])]).tolist()
            prepare = delayed(_prepare, pure=True)
            made = []
            for part, start, stop in zip(parts, edges[:-1], edges[1:], strict=True):
                labeled = self.weights[start:stop]
                weights = np.concatenate([labeled, np.full(stop - start - len(labeled), self.unit)])
                made.append(prepare(part, weights, start))
            self._held.blocks = list(self.client.persist(made)) if self._room >= 0 else made
        return self._held.blocks

    @property
    def _room(self) -> int:
        """Bytes left on all workers after they store the rows; negative if the rows do not fit."""
        return self.memory * self._workers - 8 * self.n_rows * (self.rows.shape[1] + 1)

    @property
    def _distances(self) -> list[Any]:
        """Return the distances of each block if they are kept, otherwise None."""
        if self._held.distances is None:
            from dask.delayed import delayed

            measure = delayed(_measure, pure=True)
            anchors = delayed(self.anchors, traverse=False)
            sizes = 8 * len(self.anchors.rows) * np.cumsum(self.rows.chunks[0])
            judged = 0 if self.losses_at is None else 16 * self.n_rows
            fit = int(np.searchsorted(sizes, max(self._room - judged, 0), side="right"))
            kept = self.client.persist([measure(block, anchors) for block in self._blocks[:fit]]) if fit else []
            self._held.distances = [*kept, *[None] * (len(self._blocks) - fit)]
        return self._held.distances

    @property
    def _losses(self) -> list[Any]:
        """Return the losses of each block if they are fixed, otherwise None."""
        if self.losses_at is None:
            return [None] * len(self._blocks)
        if self._held.losses is None:
            from dask.delayed import delayed

            judge, losses_at = delayed(_judge, pure=True), delayed(self.losses_at, traverse=False)
            made = [judge(block, losses_at) for block in self._blocks]
            self._held.losses = list(self.client.persist(made)) if self._room >= 0 else made
        return self._held.losses

    def features(self, work: Callable[..., RowTotals], *parameters: Any) -> RowTotals:
        from dask.delayed import delayed

        shared, task = self._share((work, parameters)), delayed(_feature_total)
        return self._tree([task(block, shared) for block in self._blocks])

    def total(self, problem: DualProblem, work: Any, *parameters: Any, **named: Any) -> Any:
        return self._tree(self._parts(problem, partial(work, **named) if named else work, parameters))

    def gather(self, problem: DualProblem, work: Any, *parameters: Any, **named: Any) -> Any:
        parts = self._parts(problem, partial(work, **named) if named else work, parameters)
        return np.concatenate(self.client.gather(self.client.compute(parts)))

    def fingerprints(self) -> NDArray[np.uint64]:
        from dask.delayed import delayed

        task = delayed(_fingerprints)
        return np.concatenate(self.client.gather(self.client.compute([task(block) for block in self._blocks])))

    def _parts(self, problem: DualProblem, work: Any, parameters: Any) -> list[Any]:
        from dask.delayed import delayed

        shared, task = self._share((problem, self.anchors, self.coordinates, work, parameters)), delayed(_block_total)
        wanted = self._losses if isinstance(problem.model, FixedLosses) else [None] * len(self._blocks)
        blocks = zip(self._blocks, self._distances, wanted, strict=True)
        return [task(block, distances, losses, shared) for block, distances, losses in blocks]

    def _share(self, what: Any) -> Any:
        """Return the parameters of a pass as a task of its graph, so that they survive the loss of a worker."""
        from dask.delayed import delayed

        self.traffic.sent += len(pickle.dumps(what, protocol=5)) * self._workers
        return delayed(what, traverse=False)

    def _tree(self, parts: list[Any]) -> Any:
        """Sum the parts of all blocks in groups of FAN_IN, level by level."""
        from dask.delayed import delayed

        add, count = delayed(_add), len(parts)
        self.traffic.passes += 1
        self.traffic.tasks += count
        while len(parts) > 1:
            parts = [add(parts[at : at + FAN_IN]) for at in range(0, len(parts), FAN_IN)]
            self.traffic.tasks += len(parts)
        found = self.client.compute(parts[0]).result()
        self.traffic.received += count * len(pickle.dumps(found, protocol=5))
        return found


# By default, Dask sets its workers' C library to use a system call and fresh pages for every array beyond 128 kB. This
# doubled the time of a pass. With these settings, memory is reused.
_ALLOCATION = {"MALLOC_TRIM_THRESHOLD_": 256 << 20, "MALLOC_MMAP_THRESHOLD_": 32 << 20}


def local_client(n_workers: int | None = None) -> Any:
    """Start a cluster on this machine, with one thread per worker, and return a client.

    Parameters
    ----------
    n_workers : int or None, default=None
        Worker processes; by default one per core.

    Returns
    -------
    distributed.Client
        Close it when done: it is a context manager.
    """
    dask = import_extra("dask", "dask", "local_client")
    client = import_extra("distributed", "dask", "local_client").Client
    own = {f"distributed.nanny.pre-spawn-environ.{name}": str(size) for name, size in _ALLOCATION.items()}
    with dask.config.set(own):
        return client(n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=":0")


def connect(client: Any) -> Any:
    """Return a client: the argument, one for an address, the current one, or one of a new cluster on this machine."""
    try:
        from distributed import Client, get_client
    except ImportError as error:
        raise ImportError('Dask collections require the package dask: pip install "surefoot[dask]"') from error
    if isinstance(client, str):
        return Client(client, set_as_default=False)
    if client is not None:
        return client
    try:
        return get_client()
    except ValueError:
        return local_client()


def _prepare(rows: Any, weights: FloatArray, start: int) -> RowBlock:
    found = np.ascontiguousarray(rows, dtype=np.float64)  # another order in memory would change the last digit
    if not np.isfinite(found).all():
        raise ParameterError("X_unlabeled", "must hold finite numbers", "NaN or infinity", "Drop or fill these rows.")
    return RowBlock(found, weights, start)


def _measure(block: RowBlock, anchors: Anchors) -> FloatArray:
    return anchors.distances_to(block.rows)


def _judge(block: RowBlock, losses_at: Callable[[FloatArray], FloatArray]) -> FloatArray:
    return losses_at(block.rows)


def _fingerprints(block: RowBlock) -> NDArray[np.uint64]:
    return fingerprints(block.rows)


def _block_total(block: RowBlock, distances: FloatArray | None, losses: FloatArray | None, shared: Any) -> Any:
    problem, anchors, coordinates, work, parameters = shared
    held = replace(block, distances=distances, losses=losses)
    return _one_thread(lambda: work(held.from_problem(problem, anchors, coordinates), *parameters))


def _feature_total(block: RowBlock, shared: Any) -> RowTotals:
    work, parameters = shared
    return _one_thread(lambda: work(FeatureBlock(block.rows, block.weights), *parameters))


def _one_thread(work: Callable[[], Any]) -> Any:
    with one_blas_thread():
        return work()


def _add(parts: list[Any]) -> Any:
    from copy import deepcopy

    total = deepcopy(parts[0])  # a result on a worker must not change
    for part in parts[1:]:
        total += part
    return total
