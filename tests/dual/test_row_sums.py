"""Sums over rows where weights underflow: nothing subnormal is multiplied, and the sums are those of the weights."""

from __future__ import annotations

import numpy as np
import pytest

from surefoot.dual.models import NO_RESPONSE
from surefoot.kernels.soft_rows import soft_rows
from surefoot.kernels.tiles import least_factor, root_weights


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tau", [1e-3, 1e-2, 0.1])
def test_weights_whose_products_are_subnormal_are_zero(dtype: type, tau: float) -> None:
    rng = np.random.default_rng(0)
    B, n, K = 20, 300, 2
    D, m, offsets = rng.uniform(size=(B, n)), 10.0 ** rng.uniform(-9, 0, size=B), np.array([0, n // 2, n])
    kappa, U, least = 0.2 * (1.0 - np.eye(K)), np.zeros((B, K)), least_factor(dtype)
    A, g_beta, h_ab, h_lb, small = np.empty((B, n)), np.zeros(n), np.zeros(n), np.zeros((K, n)), np.zeros(4)
    phi, q, cck, s = np.empty(B), np.empty((B, K)), np.empty((B, K)), np.empty((B, K, 2))
    soft_rows(
        D, m, 1.0, np.zeros(n), offsets, kappa, U, tau, *NO_RESPONSE, least, A, phi, q, cck, s, np.empty((0, 2, 2)),
        g_beta, h_ab, h_lb, np.zeros((2, 2)), small, True,
    )  # fmt: skip
    rooted = A * np.sqrt(m)[:, None]
    assert not ((rooted > 0) & (rooted < least)).any()
    # kappa is the same to either class, so that the labels of a row do not change the weights of its anchors
    exact = np.exp((D.min(axis=1, keepdims=True) - D) / tau)
    exact /= exact.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(A, exact, rtol=1e-12, atol=2.0 * least / np.sqrt(m.min()))
    np.testing.assert_allclose(g_beta, m @ exact, rtol=1e-12)
    if tau < 0.1:
        assert (exact * np.sqrt(m)[:, None] < 1e-19).any()


def test_roots_of_weights_whose_squares_are_subnormal_are_zero() -> None:
    weights = np.array([1.0, 1e-30, 1e-40, -1e-20, 0.0])
    assert root_weights(weights, np.ones((5, 1), np.float32)).ravel().tolist() == [
        1.0,
        np.float32(1e-15),
        0.0,
        0.0,
        0.0,
    ]
    assert root_weights(weights, np.ones((5, 1))).ravel().tolist() == [1.0, 1e-15, 1e-20, 0.0, 0.0]
