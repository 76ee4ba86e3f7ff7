from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from refusals import Refused, refuses
from surefoot.problem.losses import LOG_LOSS, ZERO_ONE, log_loss_matrix, loss_matrix_from_proba, probabilities

# softplus(s) = log(1 + exp(s)), from mpmath 1.4.1 at 800 digits, rounded to double
SOFTPLUS = [
    (-800.0, 0.0),  # 3.67e-348, below the smallest double
    (-700.0, 9.85967654375977e-305),
    (-100.0, 3.720075976020836e-44),
    (-40.0, 4.248354255291589e-18),
    (-10.0, 4.539889921686465e-05),
    (-1.0, 0.3132616875182228),
    (0.0, 0.6931471805599453),
    (1e-9, 0.6931471810599453),
    (1.0, 1.3132616875182228),
    (10.0, 10.000045398899218),
    (40.0, 40.0),
    (800.0, 800.0),
]

# scores and their log losses, from mpmath 1.4.1 at 800 digits, rounded to double; the last row by hand
MULTINOMIAL = [
    ([0.0, 0.0, 0.0], [1.0986122886681098] * 3),
    ([1.0, 2.0, 3.0], [2.40760596444438, 1.4076059644443804, 0.4076059644443803]),
    ([800.0, 0.0, -800.0], [0.0, 800.0, 1600.0]),
    ([-800.0, -800.0, -800.0], [1.0986122886681098] * 3),
    ([800.0, 800.0, -800.0], [0.6931471805599453, 0.6931471805599453, 1600.69314718056]),
    ([50.0, 0.0, 0.0], [3.8574996959278356e-22, 50.0, 50.0]),
    ([1e300, 0.0, 0.0], [0.0, 1e300, 1e300]),
]

scores_nk = arrays(
    np.float64, array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=5), elements=st.floats(-50, 50)
)


class TestLogLoss:
    @pytest.mark.parametrize(("score", "expected"), SOFTPLUS)
    def test_binary_against_constants(self, score: float, expected: float) -> None:
        np.testing.assert_allclose(log_loss_matrix([score])[0, 0], expected, rtol=4e-16)
        np.testing.assert_allclose(log_loss_matrix([-score])[0, 1], expected, rtol=4e-16)

    @pytest.mark.parametrize(("scores", "expected"), MULTINOMIAL)
    def test_multinomial_against_constants(self, scores: list[float], expected: list[float]) -> None:
        np.testing.assert_allclose(log_loss_matrix([scores])[0], expected, rtol=4e-16)

    def test_one_score_stands_for_zero_and_itself(self) -> None:
        s = np.linspace(-30, 30, 61)
        two = log_loss_matrix(np.column_stack([np.zeros_like(s), s]))
        np.testing.assert_allclose(log_loss_matrix(s), two, rtol=4e-16)
        np.testing.assert_array_equal(log_loss_matrix(s[:, None]), log_loss_matrix(s))

    @given(scores_nk, st.floats(-100, 100))
    def test_shift_of_all_scores_changes_nothing(self, s: np.ndarray, shift: float) -> None:
        np.testing.assert_allclose(log_loss_matrix(s + shift), log_loss_matrix(s), rtol=1e-12, atol=1e-12)

    @given(scores_nk)
    def test_is_positive_and_its_exponentials_are_the_probabilities(self, s: np.ndarray) -> None:
        losses = log_loss_matrix(s)
        assert losses.min() >= 0
        np.testing.assert_allclose(np.exp(-losses), probabilities(s), rtol=1e-13)

    @pytest.mark.parametrize("shape", [(6,), (6, 2), (6, 4)])
    def test_gradient_by_five_point_stencil(self, shape: tuple[int, ...]) -> None:
        # dℓ_k/ds_c = p_c − 1[c = k]; with a single score, dℓ_k/ds = p_1 − k
        s = np.random.default_rng(0).normal(scale=2.0, size=shape)
        p, K = probabilities(s), 2 if s.ndim == 1 else s.shape[1]
        h = 1e-3
        for c in range(1 if s.ndim == 1 else K):
            step = np.zeros_like(s)
            step[..., c if s.ndim == 2 else slice(None)] = h
            f = [log_loss_matrix(s + t * step) for t in (-2, -1, 1, 2)]
            numeric = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h)
            exact = p[:, [1]] - np.arange(2) if s.ndim == 1 else p[:, [c]] - np.eye(K)[c]
            np.testing.assert_allclose(numeric, exact, atol=1e-10)

    @pytest.mark.parametrize("function", [log_loss_matrix, probabilities])
    @pytest.mark.parametrize("bad", [1.0, np.zeros((2, 3, 4)), np.zeros((3, 0))])
    def test_refuses_other_shapes(self, function: object, bad: object) -> None:
        with refuses("scores", 1):
            function(bad)

    def test_does_not_write_to_its_argument(self) -> None:
        s = np.array([[1.0, 2.0, 3.0]])
        log_loss_matrix(s)
        probabilities(s)
        np.testing.assert_array_equal(s, [[1.0, 2.0, 3.0]])


class TestProbabilities:
    def test_extreme_scores(self) -> None:
        np.testing.assert_array_equal(probabilities([[800.0, -800.0, 0.0]]), [[1.0, 0.0, 0.0]])
        np.testing.assert_array_equal(probabilities([800.0, -800.0]), [[0.0, 1.0], [1.0, 0.0]])
        # exp(-700), from mpmath
        np.testing.assert_allclose(probabilities([-700.0])[0, 1], 9.85967654375977e-305, rtol=1e-13)

    @given(scores_nk)
    def test_rows_sum_to_one(self, s: np.ndarray) -> None:
        np.testing.assert_allclose(probabilities(s).sum(axis=1), 1.0, rtol=1e-15)


class TestLossFromProba:
    def test_log_loss_agrees_with_that_of_the_scores(self) -> None:
        s = np.random.default_rng(1).normal(size=(20, 3))
        np.testing.assert_allclose(loss_matrix_from_proba(probabilities(s), LOG_LOSS), log_loss_matrix(s), rtol=1e-12)

    def test_log_loss_is_clipped_from_above_only_at_clip(self) -> None:
        losses = loss_matrix_from_proba([[1.0, 0.0], [1 - 1e-6, 1e-6]], LOG_LOSS, clip=1e-3)
        np.testing.assert_allclose(losses, [[0.0, -np.log(1e-3)], [-np.log1p(-1e-6), -np.log(1e-3)]], rtol=1e-9)
        assert not np.signbit(losses).any()
        np.testing.assert_allclose(loss_matrix_from_proba([[1.0, 0.0]], LOG_LOSS)[0, 1], 12 * np.log(10))

    def test_zero_one(self) -> None:
        losses = loss_matrix_from_proba([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]], ZERO_ONE)
        np.testing.assert_array_equal(losses, [[1, 0, 1], [0, 1, 1]])

    @pytest.mark.parametrize(
        ("proba", "match"),
        [
            ([[0.5, np.nan]], ("proba", "nan at index (0, 1)")),
            ([0.5, 0.5], ("proba", 2)),
            ([[1.0], [1.0]], ("proba", "shape (2, 1)")),
            ([[-0.5, 1.5]], ("proba", "[0, 1]", -0.5, 1.5)),
            ([[0.5, 0.5], [0.5, 0.25]], ("proba", 1, 0.75)),
        ],
    )
    def test_refuses_bad_probabilities(self, proba: object, match: Refused) -> None:
        with refuses(match):
            loss_matrix_from_proba(proba, LOG_LOSS)

    def test_accepts_single_precision(self) -> None:
        p = np.random.default_rng(2).dirichlet(np.ones(50), size=20).astype(np.float32)
        assert loss_matrix_from_proba(p, LOG_LOSS).shape == (20, 50)

    def test_refuses_an_unknown_loss(self) -> None:
        with refuses("loss", "'log_loss'", "'zero_one'", "'hinge'"):
            loss_matrix_from_proba([[0.5, 0.5]], "hinge")

    @pytest.mark.parametrize("clip", [0.0, 1.0, -1e-3, np.nan])
    def test_refuses_a_bad_clip(self, clip: float) -> None:
        with refuses("clip", 0, 1):
            loss_matrix_from_proba([[0.5, 0.5]], LOG_LOSS, clip=clip)
