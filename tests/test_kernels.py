"""The kernel of soft rows against the softmax written out; kernels are compiled where nothing can be written, too."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp

from surefoot.kernels.soft_rows import soft_rows

Array = NDArray[np.float64]

_FIT = """
import warnings
from numba.core import caching

def refuse(self):
    raise OSError(30, "Read-only file system")

# neither the folder of the package nor that of the user can be written
caching._CacheLocator.ensure_cache_path = refuse
import surefoot as sf

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    clf = sf.RobustLogisticRegression(radius=0.5, label_prior=[0.5, 0.5])
    clf.fit([[0.0], [1.0]], [0, 1], X_unlabeled=[[0.1], [0.9], [1.1]])
assert clf.certificate_.gap <= 1e-4
said = [str(one.message) for one in caught if "NUMBA_CACHE_DIR" in str(one.message)]
assert len(said) == 1, said
"""


def test_a_fit_where_no_folder_can_be_written() -> None:
    subprocess.run([sys.executable, "-c", _FIT], check=True)


def _written_out(
    D: Array, m: Array, alpha: float, beta: Array, label_cost: Array, U: Array, tau: float
) -> tuple[Array, ...]:
    """What the kernel gives, from P(label, anchor | row) as an array (B, K, n); label_cost is (K, n)."""
    cost = D[:, None, :] + label_cost
    values = U[:, :, None] - alpha * cost - beta
    phi = tau * logsumexp(values / tau, axis=(1, 2))
    P = np.exp((values - phi[:, None, None]) / tau)
    A, q, mean = P.sum(axis=1), P.sum(axis=2), (P * cost).sum(axis=(1, 2))
    cck = (P * cost).sum(axis=2) - mean[:, None] * q
    beta_sums = m @ A
    alpha_beta = m @ ((P * cost).sum(axis=1) - mean[:, None] * A)
    label_beta = np.einsum("j,jki->ki", m, P) - np.einsum("j,jk,ji->ki", m, q, A)
    entropy = -(P * np.log(np.maximum(P, 1e-300))).sum(axis=(1, 2))
    variance = (P * cost**2).sum(axis=(1, 2)) - mean**2
    small = np.array([m @ phi, m @ mean, m @ variance, m @ entropy])
    return A, phi, q, cck, beta_sums, alpha_beta, label_beta[1:], small


@pytest.mark.parametrize("tau", [0.3, 0.02, 1e-3])
@pytest.mark.parametrize("sizes", [(7, 12), (150, 90), (200, 3), (100, 70, 130)])
def test_soft_rows_are_the_softmax_written_out(sizes: tuple[int, ...], tau: float) -> None:
    """Over few anchors, and over so many that blocks of them are passed over in most rows."""
    rng, n, K, B = np.random.default_rng(sum(sizes)), sum(sizes), len(sizes), 40
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    anchors = np.sort(rng.uniform(size=n))  # neighbours have near numbers: some blocks are near a row, most are not
    D = np.abs(rng.uniform(size=B)[:, None] - anchors)
    m, beta, alpha = rng.dirichlet(np.ones(B)), 0.1 * rng.normal(size=n), 3.0
    kappa, U = 0.7 * (1.0 - np.eye(K)), rng.normal(size=(B, K))
    found = []
    for kept in (B, 1):
        A, phi, q, cck, s = (np.empty(shape) for shape in ((kept, n), B, (B, K), (B, K), (B, K, K)))
        sums = np.zeros(n), np.zeros(n), np.zeros((K, n)), np.zeros(4)
        stored = soft_rows(D, m, alpha, beta, offsets, kappa, U, tau, A, phi, q, cck, s, *sums)
        found.append((A, phi, q, cck, sums[0], sums[1], sums[2][1:], sums[3]))
    expected = _written_out(D, m, alpha, beta, np.repeat(kappa, sizes, axis=1), U, tau)
    for got, wanted in zip(found[0], expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-13)
    assert stored == np.count_nonzero(found[0][0] > np.exp(-36.0))
    for got, wanted in zip(found[1][1:], found[0][1:], strict=True):
        np.testing.assert_array_equal(got, wanted)
