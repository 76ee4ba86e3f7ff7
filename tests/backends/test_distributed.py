"""Dask collections: the certificate of one process, whatever the chunks, the workers, and who dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from sklearn.naive_bayes import GaussianNB

import surefoot as sf
import surefoot.active as al
from generators import SMALL_BLOCKS, BlockPool
from refusals import refuses
from surefoot.backends import blocks as block_problem
from surefoot.backends.dask_rows import DaskRows, connect


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    # threads in one process: starting processes costs seconds each
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as found:
        yield found


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as found:
        yield found


@pytest.fixture(scope="module")
def pool() -> BlockPool:
    return BlockPool.draw(n=8, M=500)


@pytest.fixture(scope="module")
def alone(pool: BlockPool) -> sf.Certificate:
    return pool.fit(pool.U).certificate_


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("chunk", [97])
def test_the_certificate_is_that_of_one_process(
    cluster: LocalCluster, client: Client, pool: BlockPool, alone: sf.Certificate, workers: int, chunk: int
) -> None:
    cluster.scale(workers)
    client.wait_for_workers(workers)
    rows = DaskRows(da.from_array(pool.U, chunks=(chunk, -1)), client)
    found = pool.fit(rows).certificate_
    assert (found.risk, found.lower) == (alone.risk, alone.lower)
    np.testing.assert_array_equal(found.worst_case.label_proba, alone.worst_case.label_proba)
    assert rows.traffic.passes > 10
    assert rows.traffic.tasks >= 2 * rows.traffic.passes
    assert rows.traffic.sent > 0
    assert "passes" in str(rows.traffic)


def test_dataframes_and_unknown_chunks(client: Client, pool: BlockPool, alone: sf.Certificate) -> None:
    frame = dd.from_pandas(pd.DataFrame(pool.U, columns=["a", "b", "c"]), npartitions=3)
    assert pool.fit(frame).certificate_.risk == alone.risk
    np.testing.assert_array_equal(DaskRows(frame.to_dask_array(), client).read(400, 450), pool.U[400:450])


def test_certify_minimal_radius_and_scores(
    client: Client, pool: BlockPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impact = np.random.default_rng(0).random((len(pool.U), 2))
    exact = al.robust_model_change(impact, pool.X, pool.y, X_unlabeled=pool.U, margin=1e-4, radius="minimal")
    monkeypatch.setattr("surefoot.problem.placement.MOST_DISTANCES", 0)
    rows, stored = da.from_array(pool.U, chunks=(200, -1)), pool.memmap(tmp_path)
    assert sf.minimal_radius(pool.X, pool.y, X_unlabeled=rows) == sf.minimal_radius(pool.X, pool.y, X_unlabeled=stored)
    bayes = GaussianNB().fit(pool.X, pool.y)
    ours, theirs = (
        sf.certify(bayes, pool.X, pool.y, X_unlabeled=U, radius=pool.radius, loss="zero_one", tol=1e-3)
        for U in (stored, rows)
    )
    assert (theirs.risk, theirs.lower) == (ours.risk, ours.lower)
    for U in (rows, stored):
        scores = al.robust_model_change(impact, pool.X, pool.y, X_unlabeled=U, margin=1e-4, radius="minimal")
        np.testing.assert_allclose(scores, exact, atol=1e-9)


JUDGED: list[int] = []


class CountingBayes(GaussianNB):
    def predict(self, X: Any) -> Any:
        JUDGED.append(len(X))
        return super().predict(X)


@pytest.mark.usefixtures("in_blocks")
def test_a_classifier_is_asked_once_about_each_row(client: Client, pool: BlockPool) -> None:
    bayes = CountingBayes().fit(pool.X, pool.y)
    rows = DaskRows(da.from_array(pool.U, chunks=(200, -1)), client)
    JUDGED.clear()
    sf.certify(bayes, pool.X, pool.y, X_unlabeled=rows, radius=pool.radius, loss="zero_one", tol=1e-3)
    assert rows.traffic.passes > 10
    assert sum(JUDGED) <= 2 * (len(pool.X) + len(pool.U))


def test_an_address_and_the_current_client(cluster: LocalCluster, client: Client) -> None:
    assert connect(None) is client
    assert connect(client) is client
    other = connect(cluster.scheduler_address)
    assert other.scheduler_info()["address"] == cluster.scheduler_address
    other.close()
    rows = DaskRows(da.zeros((10, 2)), cluster.scheduler_address)
    assert rows.connected is rows.connected  # one connection for all passes
    assert rows.read(2, 5).shape == (3, 2)
    rows.connected.close()


ALONE = """
import os
import dask.array as da
import numpy as np
import surefoot as sf
from distributed import get_client

if __name__ == "__main__":
    U = np.random.default_rng(0).random((400, 2))
    clf = sf.RobustLogisticRegression(radius=0.5, label_prior=None, compute=sf.Compute())
    found, here = (clf.fit(U[:10], np.arange(10) % 2, X_unlabeled=rows).certificate_.risk for rows in (
        da.from_array(U, chunks=(150, -1)), U))
    client = get_client()
    sizes = client.run(lambda: int(os.environ["MALLOC_MMAP_THRESHOLD_"])).values()
    print(found == here, set(sizes) == {32 << 20})
    client.close()
    client.cluster.close()
"""


@pytest.mark.slow
def test_without_a_client_a_cluster_is_started_here(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(ALONE)  # a file: its worker processes import it
    done = subprocess.run([sys.executable, tmp_path / "alone.py"], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "True"], done.stderr[-2000:]


def test_bad_rows_are_refused(client: Client, pool: BlockPool) -> None:
    with refuses("X_unlabeled", 2):
        pool.fit(da.from_array(pool.U[:, 0], chunks=100), radius=1.0)
    with refuses("X_unlabeled", 3, 2):
        pool.fit(da.from_array(pool.U[:, :2], chunks=100), radius=1.0)
    broken = pool.U.copy()
    broken[5, 0] = np.inf
    with refuses("X_unlabeled", "inf at index (5, 0)"):
        pool.fit(da.from_array(broken, chunks=(100, -1)), radius=1.0)


def test_a_gpu_is_not_for_dask(client: Client, pool: BlockPool) -> None:
    with refuses("device", '"cpu"', "'torch'"):
        pool.fit(da.from_array(pool.U, chunks=(100, -1)), sf.Compute("torch"), radius=1.0)


def test_a_killed_worker_costs_time_and_not_the_answer(pool: BlockPool, alone: sf.Certificate) -> None:
    with Client(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as client:
        rows = DaskRows(da.from_array(pool.U, chunks=(97, -1)), client)
        killed = threading.Event()

        def kill() -> None:
            while rows.traffic.passes < 15:
                time.sleep(0.01)
            process = next(iter(client.run(os.getpid).values()))
            os.kill(process, signal.SIGKILL)
            killed.set()

        thread = threading.Thread(target=kill)
        thread.start()
        found = pool.fit(rows).certificate_
        thread.join()
    assert killed.is_set()
    assert (found.risk, found.lower) == (alone.risk, alone.lower)


def test_the_samples_are_drawn_from_the_collection(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_problem, "_LEVELS", ((5, 2e-2),))
    monkeypatch.setattr(block_problem, "COARSE_ROWS", 60)
    pool = BlockPool.draw(n=12, M=600)
    here, there = pool.fit(pool.U), pool.fit(da.from_array(pool.U, chunks=(250, -1)), SMALL_BLOCKS)
    assert there.certificate_.risk == here.certificate_.risk
