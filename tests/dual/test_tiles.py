"""Products, factors and solutions by tiles agree with LAPACK's, and do not depend on the number of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky

from surefoot.kernels import tiles
from surefoot.kernels.tiles import sparse_solver

SIZES = [1, 7, tiles._COLUMNS, 2 * tiles._COLUMNS + 1, 1500]


def positive(m: int, smallest: float, seed: int = 0) -> NDArray[np.float64]:
    """A symmetric matrix with eigenvalues from `smallest` to 1."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(m, m)))[0]
    A = (Q * np.geomspace(1.0, smallest, m)) @ Q.T
    return 0.5 * (A + A.T)


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("threads", [0, 1, 3])
def test_the_factor_is_that_of_lapack(m: int, threads: int) -> None:
    A = positive(m, 1e-3)
    known = cholesky(A, lower=True)
    found = np.tril(A)
    if threads == 0:
        tiles.factorize(found)
    else:
        with ThreadPoolExecutor(threads) as executor:
            tiles.factorize(found, executor)
    np.testing.assert_allclose(np.tril(found), known, rtol=0, atol=1e-12)


@pytest.mark.parametrize("smallest", [1e-2, 1e-5, 1e-10])
@pytest.mark.parametrize("m", [300, 900])
def test_solutions_are_those_of_float64(m: int, smallest: float) -> None:
    A, right = positive(m, smallest), np.random.default_rng(1).normal(size=m)
    solve = tiles.factorized(np.tril(A), tame=True)
    for size in (1.0, 1e-30, 1e30):
        x = solve(size * right)
        assert np.linalg.norm(A @ x - size * right) <= 1e-9 * size * np.linalg.norm(right) / min(1.0, 1e7 * smallest)
        known = size * np.linalg.solve(A, right)
        # the error as Newton's method feels it, in the norm of A
        assert (x - known) @ A @ (x - known) <= 1e-10 * (known @ A @ known)
    assert not solve(np.zeros(m)).any()


def test_threads_give_the_same_bits() -> None:
    A, right = positive(1500, 1e-4), np.random.default_rng(1).normal(size=1500)
    alone = tiles.factorized(np.tril(A), tame=True)(right)
    with ThreadPoolExecutor(3) as executor:
        assert np.array_equal(tiles.factorized(np.tril(A), executor, tame=True)(right), alone)


@pytest.mark.parametrize("m", [5, 300, 900])
def test_a_matrix_that_is_not_positive_definite_is_refused(m: int) -> None:
    A = positive(m, 1e-2) - 0.02 * np.eye(m)
    with pytest.raises(LinAlgError):
        tiles.factorized(np.tril(A), tame=True)(np.ones(m))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_product_with_itself_is_added_to_the_lower_triangle(dtype: type) -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(50, 2 * tiles._COLUMNS + 3)).astype(dtype)
    total = rng.normal(size=(A.shape[1], A.shape[1]))
    known = np.tril(total + A.astype(np.float64).T @ A)
    tiles.add_gram(A, total)
    np.testing.assert_allclose(np.tril(total), known, rtol=0, atol=1e-12 if dtype is np.float64 else 1e-4)


def sparse(m: int, full: int, seed: int = 0, least: float = 0.1) -> NDArray[np.float64]:
    """A positive definite matrix with a unit diagonal, few entries per row, and `full` rows at its beginning."""
    rng = np.random.default_rng(seed)
    A = np.zeros((m, m))
    pairs = rng.integers(full, m, size=(2 * m, 2))
    for i, j in pairs[pairs[:, 0] != pairs[:, 1]]:
        weight = rng.random() / (least + rng.random())
        A[[i, j], [i, j]] += weight
        A[[i, j], [j, i]] -= weight
    A += np.diag(np.full(m, least))
    mixed = 0.1 * rng.normal(size=(full, m - full))
    A[:full, full:] = mixed @ A[full:, full:]
    A[full:, :full] = A[:full, full:].T
    A[:full, :full] = A[:full, full:] @ mixed.T + np.eye(full)
    scale = 1.0 / np.sqrt(A.diagonal())
    return np.asarray(A * scale * scale[:, None])


@pytest.mark.parametrize("full", [0, 20])
@pytest.mark.parametrize("least", [0.1, 1e-6])
def test_sparse_systems_are_solved_as_full_ones(full: int, least: float) -> None:
    A, right = sparse(1000, full, least=least), np.random.default_rng(1).normal(size=1000)
    solve = sparse_solver(np.tril(A))
    assert solve is not None
    known = np.linalg.solve(A, right)
    for found in (solve(right), tiles.factorized(np.tril(A))(right)):
        assert (found - known) @ A @ (found - known) <= 1e-12 * (known @ A @ known)


def test_full_matrices_have_no_sparse_factor() -> None:
    assert sparse_solver(positive(700, 1e-2)) is None


def test_a_sparse_matrix_that_is_not_positive_definite_is_refused() -> None:
    A = sparse(1000, 5)
    i, j = 400, 300
    A[i, j] = A[j, i] = -1.5
    assert np.linalg.eigvalsh(A)[0] < 0
    with pytest.raises(LinAlgError):
        tiles.factorized(np.tril(A))(np.ones(1000))
