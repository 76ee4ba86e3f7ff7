from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

import surefoot as sf
from generators import BlockPool
from refusals import refuses
from surefoot.backends.block_rows import FAN_IN, tree_sum
from surefoot.backends.sources import ArrayRows, StackedRows, as_source, sample_rows
from surefoot.dual.bounds import RowTotals


@pytest.mark.parametrize(("start", "stop"), [(0, 900), (0, 1), (169, 171), (440, 460), (899, 900), (100, 800)])
def test_parquet_rows_are_those_of_the_array(tmp_path: Path, start: int, stop: int) -> None:
    pool = BlockPool.draw()
    rows = pool.parquet(tmp_path)
    assert (rows.n_rows, rows.n_features) == pool.U.shape
    np.testing.assert_array_equal(rows.read(start, stop), pool.U[start:stop])


def test_parquet_columns_are_chosen_by_name(tmp_path: Path) -> None:
    pool = BlockPool.draw()
    pool.parquet(tmp_path)
    chosen = sf.ParquetRows(tmp_path / "parts" / "0.parquet", columns=["x2", "x0"])
    np.testing.assert_array_equal(chosen.read(0, 5), pool.U[:5, [2, 0]])
    with refuses("columns", 0):
        sf.ParquetRows(tmp_path / "parts", columns=["x9"])
    with refuses("path"):
        sf.ParquetRows(tmp_path / "nothing")


def test_parquet_text_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": ["a", "b"]}), tmp_path / "text.parquet")
    with refuses("columns", "'x'"):
        sf.ParquetRows(tmp_path / "text.parquet").read(0, 2)


def test_missing_numbers_are_refused_with_their_row(tmp_path: Path) -> None:
    pool = BlockPool.draw()
    pool.U[300, 1] = np.nan
    with refuses("X_unlabeled", "row 300"):
        ArrayRows(pool.U).read(256, 512)
    with refuses("X_unlabeled", "row 300"):
        pool.fit(pool.memmap(tmp_path), radius=2.0)


def test_labeled_rows_come_first() -> None:
    pool = BlockPool.draw()
    both = StackedRows(pool.X, ArrayRows(pool.U))
    np.testing.assert_array_equal(both.read(15, 30), np.vstack([pool.X[15:], pool.U[:10]]))
    np.testing.assert_array_equal(both.read(25, 30), pool.U[5:10])
    np.testing.assert_array_equal(both.read(3, 5), pool.X[3:5])


def test_a_sample_is_without_repeats() -> None:
    pool = BlockPool.draw()
    rows, where = sample_rows(ArrayRows(pool.U), 100, np.random.default_rng(0))
    assert len(np.unique(where)) == 100
    np.testing.assert_array_equal(rows, pool.U[where])


def test_other_features_are_refused() -> None:
    with refuses("X_unlabeled", 4, 3):
        as_source(np.zeros((5, 3)), 4)
    with refuses("X_unlabeled", 2):
        as_source(np.zeros(5), 1)


@pytest.mark.parametrize("count", [1, FAN_IN - 1, FAN_IN, FAN_IN + 1, FAN_IN**2, FAN_IN**2 + FAN_IN + 3])
def test_a_tree_adds_up_as_groups_of_groups_would(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count) * 10.0 ** np.arange(count % 7, count % 7 + count) % 13
    parts: list[np.float64] = list(values)
    while len(parts) > 1:  # what a cluster does
        parts = [sum(parts[at + 1 : at + FAN_IN], parts[at]) for at in range(0, len(parts), FAN_IN)]
    total = tree_sum(RowTotals((np.array([value]),), (float(value),)) for value in values)
    assert total.sums[0][0] == parts[0]  # to the last bit
    assert total.largest == (values.max(),)


def test_what_a_tree_has_added_up_is_gone() -> None:
    made: list[weakref.ref[RowTotals]] = []

    def part() -> RowTotals:
        found = RowTotals((np.ones(1),))
        made.append(weakref.ref(found))
        return found

    gc.disable()  # a cycle of references would keep parts, 200 MB each with 5,000 anchors, until the collector runs
    try:
        total = tree_sum(part() for _ in range(3 * FAN_IN + 1))
        alive = [one() for one in made if one() is not None]
    finally:
        gc.enable()
    assert alive == [total]
