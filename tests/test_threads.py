"""Fits in threads of one process: BLAS runs on one thread meanwhile, and on as many as before afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from threading import Barrier, Thread

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from surefoot._machine import one_blas_thread
from surefoot.solvers.search.solution import solver_threads

_FITS = """
import numpy as np, surefoot as sf
from concurrent.futures import ThreadPoolExecutor
from threadpoolctl import ThreadpoolController
import scipy.linalg

blas = ThreadpoolController().select(user_api="blas")
blas.limit(limits=2)
before = [library["num_threads"] for library in blas.info()]
rng = np.random.default_rng(0)
X, y = rng.normal(size=(60, 3)), np.arange(60) % 2

def fit(rows):
    sf.RobustLogisticRegression(radius=0.9).fit(X[:rows], y[:rows], X_unlabeled=X[rows:])
    sf.WassersteinLogisticRegression(radius=0.1).fit(X[:rows], y[:rows])

with ThreadPoolExecutor(4) as pool:
    list(pool.map(fit, [20, 22, 24, 26, 28, 30, 32, 34]))
after = [library["num_threads"] for library in blas.info()]
print(before, after)
assert before == after and max(before) == 2
"""


def threads_of_blas() -> set[int]:
    return {library["num_threads"] for library in ThreadpoolController().select(user_api="blas").info()}


def test_the_last_user_restores_what_the_first_one_found() -> None:
    # the second enters while the first is inside, and leaves after it: each alone would restore what it met
    entered, left = Barrier(2), Barrier(2)
    inside: list[set[int]] = []

    def second() -> None:
        entered.wait()
        with solver_threads(1):
            entered.wait()
            left.wait()
            inside.append(threads_of_blas())

    with ThreadpoolController().limit(limits=2, user_api="blas"):
        before = threads_of_blas()
        thread = Thread(target=second)
        thread.start()
        with solver_threads(1):
            assert threads_of_blas() == {1}
            entered.wait()
            entered.wait()
        left.wait()
        thread.join()
        assert inside == [{1}]
        assert threads_of_blas() == before


def test_an_error_leaves_the_limit_too() -> None:
    before = threads_of_blas()
    with pytest.raises(np.linalg.LinAlgError), one_blas_thread():
        np.linalg.cholesky(-np.eye(2))
    assert threads_of_blas() == before


def test_fits_in_a_pool_of_threads_leave_blas_as_it_was() -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", _FITS], check=True, env=environment)
