from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from refusals import Refused, refuses
from surefoot._errors import ParameterError
from surefoot.costs.learned import resolve_metric
from surefoot.costs.metrics import (
    CallableMetric,
    Chebyshev,
    Euclidean,
    FeatureMetric,
    Mahalanobis,
    Manhattan,
    Precomputed,
)
from surefoot.problem.sets import label_cost_matrix

SPD = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.25], [0.0, -0.25, 4.0]])
METRICS = [
    Euclidean(),
    Manhattan(),
    Chebyshev(),
    Mahalanobis(SPD),
    CallableMetric(lambda a, b: abs(a - b).sum() ** 0.5),
]

points = arrays(np.float64, (6, 3), elements=st.floats(-100, 100))


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(7, 3))


@pytest.fixture
def anchors() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(4, 3))


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: type(m).__name__)
class TestLaws:
    @given(X=points)
    def test_symmetric_and_zero_on_the_diagonal(self, metric: FeatureMetric, X: np.ndarray) -> None:
        D = metric.distances(X, X)
        np.testing.assert_allclose(D, D.T, atol=1e-10)
        np.testing.assert_allclose(np.diagonal(D), 0.0, atol=1e-10)

    @given(X=points)
    def test_triangle_inequality(self, metric: FeatureMetric, X: np.ndarray) -> None:
        D = metric.distances(X, X)
        shortcut = (D[:, :, None] + D[None, :, :]).min(axis=1)  # over the point between
        assert np.all(shortcut >= D - 1e-9)

    @given(X=points)
    def test_shift_of_features_changes_nothing(self, metric: FeatureMetric, X: np.ndarray) -> None:
        np.testing.assert_allclose(metric.distances(X + 8.0, X + 8.0), metric.distances(X, X), atol=1e-6)

    def test_contract_of_the_result(self, metric: FeatureMetric, rows: np.ndarray, anchors: np.ndarray) -> None:
        D = metric.distances(rows, anchors)
        assert D.shape == (7, 4)
        assert D.dtype == np.float64
        assert D.flags.c_contiguous
        np.testing.assert_allclose(D[2:3, 1:2], metric.distances(rows[2:3], anchors[1:2]), rtol=1e-14)

    def test_labeled_distances_pick_columns(self, metric: FeatureMetric, rows: np.ndarray) -> None:
        picked = metric.labeled_distances(rows, rows[:5], np.array([3, 0]))
        np.testing.assert_allclose(picked, metric.distances(rows, rows[:5])[:, [3, 0]], rtol=1e-13, atol=1e-13)

    def test_refuses_different_features(self, metric: FeatureMetric, rows: np.ndarray) -> None:
        with pytest.raises(ParameterError) as caught:
            metric.distances(rows, np.zeros((4, 2)))
        assert caught.value.parameter in ("rows", "anchors")

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_refuses_what_is_not_finite(self, metric: FeatureMetric, rows: np.ndarray, bad: float) -> None:
        with refuses("anchors"):
            metric.distances(rows, [[0.0, bad, 0.0]])


class TestNorms:
    def test_each_against_its_formula(self, rows: np.ndarray, anchors: np.ndarray) -> None:
        difference = rows[:, None, :] - anchors[None, :, :]
        for metric, order in [(Euclidean(), 2), (Manhattan(), 1), (Chebyshev(), np.inf)]:
            expected = np.linalg.norm(difference, ord=order, axis=2)
            np.testing.assert_allclose(metric.distances(rows, anchors), expected, rtol=1e-14)

    def test_euclidean_keeps_its_digits_far_from_the_origin(self) -> None:
        base = np.full((1, 50), 1e6)
        near = base.copy()
        near[0, 0] += 2.0**-20
        D = Euclidean().distances(np.vstack([base, near]), base)
        np.testing.assert_array_equal(D, [[0.0], [2.0**-20]])

    @pytest.mark.parametrize("metric", [Euclidean(), Manhattan()])
    def test_overflow_is_an_error(self, metric: FeatureMetric) -> None:
        with refuses("metric"):
            metric.distances([[1.5e308]], [[-1.5e308]])

    def test_instances_are_equal_data(self) -> None:
        assert Euclidean() == Euclidean()
        assert repr(Chebyshev()) == "Chebyshev()"
        assert pickle.loads(pickle.dumps(Manhattan())) == Manhattan()


class TestMahalanobis:
    def test_transform_makes_it_euclidean(self, rows: np.ndarray, anchors: np.ndarray) -> None:
        metric = Mahalanobis(SPD)
        difference = rows[:, None, :] - anchors[None, :, :]
        expected = np.sqrt(np.einsum("jia,ab,jib->ji", difference, SPD, difference))
        np.testing.assert_allclose(metric.distances(rows, anchors), expected, rtol=1e-13)
        transformed = Euclidean().distances(metric.transform(rows), metric.transform(anchors))
        np.testing.assert_allclose(transformed, expected, rtol=1e-13)

    def test_identity_is_euclidean(self, rows: np.ndarray, anchors: np.ndarray) -> None:
        np.testing.assert_allclose(
            Mahalanobis(np.eye(3)).distances(rows, anchors), Euclidean().distances(rows, anchors), rtol=1e-14
        )

    def test_from_covariance_inverts(self) -> None:
        metric = Mahalanobis.from_covariance(SPD)
        np.testing.assert_allclose(metric.inverse_covariance @ SPD, np.eye(3), atol=1e-14)

    def test_from_data_ignores_linear_maps_of_the_features(self) -> None:
        rng = np.random.default_rng(3)
        X, A = rng.normal(size=(50, 3)), rng.normal(size=(3, 3))
        D = Mahalanobis.from_data(X).distances(X, X[:5])
        np.testing.assert_allclose(Mahalanobis.from_data(X @ A).distances(X @ A, X[:5] @ A), D, rtol=1e-8, atol=1e-10)

    def test_from_data_is_the_inverse_of_the_covariance(self) -> None:
        X = np.random.default_rng(3).normal(size=(50, 3))
        expected = np.linalg.inv(np.cov(X.T) + 0.5 * np.eye(3))
        np.testing.assert_allclose(Mahalanobis.from_data(X, ridge=0.5).inverse_covariance, expected, rtol=1e-12)

    @pytest.mark.parametrize(
        ("matrix", "named"),
        [
            (np.diag([1.0, 0.0, 1.0]), "eigenvalues from 0.0"),
            (np.diag([1.0, -1.0]), "eigenvalues from -1.0"),
            ([[1.0, 0.5], [0.0, 1.0]], "by up to 0.5"),
            ([[1.0, 0.0]], "shape (1, 2)"),
            ([[np.nan]], "nan at index (0, 0)"),
            ([1.0, 2.0], "shape (2,)"),
        ],
    )
    def test_refuses_bad_matrices(self, matrix: object, named: str) -> None:
        with refuses("inverse_covariance", named):
            Mahalanobis(matrix)
        with refuses("covariance", named):
            Mahalanobis.from_covariance(matrix)

    def test_singular_data_needs_a_ridge(self) -> None:
        X = np.column_stack([np.arange(5.0), np.ones(5)])
        with refuses("X", 0):
            Mahalanobis.from_data(X)
        np.testing.assert_allclose(Mahalanobis.from_data(X, ridge=1.0).inverse_covariance, np.diag([1 / 3.5, 1.0]))

    def test_refuses_one_row_and_a_negative_ridge(self) -> None:
        with refuses("X", 2, 1):
            Mahalanobis.from_data([[1.0, 2.0]])
        with refuses("ridge", 0, -1.0):
            Mahalanobis.from_data(np.eye(3), ridge=-1.0)

    def test_is_data_only(self) -> None:
        matrix = SPD.copy()
        metric = Mahalanobis(matrix)
        matrix[0, 0] = 100.0
        np.testing.assert_array_equal(metric.inverse_covariance, SPD)
        with pytest.raises(ValueError, match="read-only"):
            metric.inverse_covariance[0, 0] = 1.0
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(metric)).inverse_covariance, SPD)
        assert repr(metric) == "Mahalanobis(<3 features>)"


class TestPrecomputed:
    def test_returns_the_matrix_and_picks_columns(self) -> None:
        matrix = np.arange(12.0).reshape(4, 3)
        metric = Precomputed(matrix)
        np.testing.assert_array_equal(metric.distances(np.zeros((4, 9)), np.zeros((3, 9))), matrix)
        picked = metric.labeled_distances(np.zeros((4, 9)), np.zeros((3, 9)), np.array([2, 0]))
        np.testing.assert_array_equal(picked, matrix[:, [2, 0]])
        assert picked.flags.c_contiguous
        assert repr(metric) == "Precomputed(<4 x 3 distances>)"

    def test_is_checked_for_shape_at_use(self) -> None:
        metric = Precomputed(np.ones((4, 3)))
        with refuses("metric", "(5, 3)", "(4, 3)"):
            metric.distances(np.zeros((5, 1)), np.zeros((3, 1)))
        with refuses("metric", "(4, 2)", "(4, 3)"):
            metric.labeled_distances(np.zeros((4, 1)), np.zeros((2, 1)), np.array([0, 1]))

    @pytest.mark.parametrize(
        ("matrix", "named"),
        [
            ([[0.0, -1.0]], "values from -1.0 to 0.0"),
            ([[0.0, np.nan]], "nan at index (0, 1)"),
            ([[0.0, np.inf]], "inf at index (0, 1)"),
            ([0.0, 1.0], "shape (2,)"),
        ],
    )
    def test_refuses_bad_matrices(self, matrix: object, named: str) -> None:
        with refuses("matrix", named):
            Precomputed(matrix)


class TestCallable:
    def test_by_pair_and_vectorized_agree(self, rows: np.ndarray, anchors: np.ndarray) -> None:
        by_pair = CallableMetric(lambda a, b: float(np.abs(a - b).sum()))
        at_once = CallableMetric(lambda A, B: np.abs(A[:, None] - B[None]).sum(axis=2), vectorized=True)
        expected = Manhattan().distances(rows, anchors)
        np.testing.assert_allclose(by_pair.distances(rows, anchors), expected, rtol=1e-14)
        np.testing.assert_allclose(at_once.distances(rows, anchors), expected, rtol=1e-14)

    @pytest.mark.parametrize(
        ("result", "named"),
        [
            (-1.0, "values from -1.0 to -1.0"),
            (np.nan, "nan at index (0, 0)"),
            ("far", "'far'"),
            ([1.0, 2.0], "shape (7, 2, 2)"),
        ],
    )
    def test_refuses_bad_results_by_pair(self, rows: np.ndarray, result: object, named: str) -> None:
        def mine(_a: np.ndarray, _b: np.ndarray) -> object:
            return result

        with refuses("function", named):
            CallableMetric(mine).distances(rows, rows[:2])

    def test_refuses_a_bad_shape_of_a_vectorized_result(self, rows: np.ndarray) -> None:
        metric = CallableMetric(lambda A, B: np.zeros((len(B), len(A))), vectorized=True)
        with refuses("function", "(7, 2)", "(2, 7)"):
            metric.distances(rows, rows[:2])

    def test_refuses_what_is_not_callable(self) -> None:
        with refuses("function", 3):
            CallableMetric(3)


class TestResolveMetric:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("euclidean", Euclidean),
            ("l2", Euclidean),
            ("manhattan", Manhattan),
            ("l1", Manhattan),
            ("cityblock", Manhattan),
            ("chebyshev", Chebyshev),
            ("linf", Chebyshev),
        ],
    )
    def test_names(self, name: str, expected: type[FeatureMetric]) -> None:
        assert type(resolve_metric(name)) is expected

    def test_instances_pass_and_functions_are_wrapped(self) -> None:
        metric = Mahalanobis(SPD)
        assert resolve_metric(metric) is metric
        assert resolve_metric(max) == CallableMetric(max)

    @pytest.mark.parametrize("bad", ["cosine", "Euclidean", 2, None])
    def test_refuses_others_and_lists_the_choices(self, bad: object) -> None:
        with refuses("metric", "'euclidean'", "'chebyshev'", "'linf'"):
            resolve_metric(bad)

    def test_refuses_a_class(self) -> None:
        with refuses("metric"):
            resolve_metric(Euclidean)


class TestLabelCost:
    def test_scalar(self) -> None:
        np.testing.assert_array_equal(label_cost_matrix(0.5, 3), [[0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]])
        assert label_cost_matrix(np.array(2), 1).shape == (1, 1)

    def test_matrix_need_not_be_symmetric_and_is_copied(self) -> None:
        given_matrix = np.array([[0.0, 1.0], [3.0, 0.0]])
        matrix = label_cost_matrix(given_matrix, 2)
        given_matrix[0, 1] = 9.0
        np.testing.assert_array_equal(matrix, [[0, 1], [3, 0]])

    @pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, None, True])
    def test_refuses_bad_scalars(self, bad: object) -> None:
        with refuses("label_cost", 0):
            label_cost_matrix(bad, 2)

    @pytest.mark.parametrize(
        ("bad", "match"),
        [
            (np.ones((3, 3)) - np.eye(3), ("label_cost", 2, "(3, 3)")),
            ([1.0, 2.0], ("label_cost", "(2,)")),
            ([[1.0, 1.0], [1.0, 0.0]], ("label_cost", "[1. 0.]")),
            ([[0.0, 1.0], [0.0, 0.0]], ("label_cost", 0, 0.0)),
            ([[0.0, 1.0], [-2.0, 0.0]], ("label_cost", 0, -2.0)),
            ([[0.0, np.nan], [1.0, 0.0]], "label_cost"),
            ([[0.0, np.inf], [1.0, 0.0]], "label_cost"),
        ],
    )
    def test_refuses_bad_matrices(self, bad: object, match: Refused) -> None:
        with refuses(match):
            label_cost_matrix(bad, 2)
