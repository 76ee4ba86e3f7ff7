from __future__ import annotations

import pickle

import numpy as np
import pytest

from refusals import refuses
from surefoot._errors import InfeasibleRadiusError
from surefoot._validation import check_finite_array, check_positive_scalar, check_probability_vector, read_only_copy


class TestInfeasibleRadiusError:
    def test_is_a_value_error_with_both_radii(self) -> None:
        error = InfeasibleRadiusError(0.125, np.float64(0.5))
        assert isinstance(error, ValueError)
        assert (error.radius, error.minimal_radius) == (0.125, 0.5)

    def test_message_has_the_rule_the_values_and_the_fix(self) -> None:
        message = str(InfeasibleRadiusError(0.125, 0.5))
        assert "at least the minimal radius" in message
        assert "radius=0.125" in message
        assert "minimal_radius=0.5" in message
        assert "Pass a radius of 0.5 or more" in message

    @pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
    def test_survives_pickling(self, protocol: int) -> None:
        error = InfeasibleRadiusError(0.125, 0.5)
        copy = pickle.loads(pickle.dumps(error, protocol=protocol))
        assert type(copy) is InfeasibleRadiusError
        assert (copy.radius, copy.minimal_radius, str(copy)) == (0.125, 0.5, str(error))


class TestCheckFiniteArray:
    def test_converts_and_does_not_copy_needlessly(self) -> None:
        array = np.arange(6.0).reshape(3, 2)
        assert check_finite_array(array, "X") is array
        assert check_finite_array([[1, 2]], "X").dtype == np.float64

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_refuses_what_is_not_finite_and_says_where(self, bad: float) -> None:
        with refuses("X", "(1, 0)"):
            check_finite_array([[0.0, 1.0], [bad, 2.0]], "X")

    def test_names_a_flat_index_for_vectors(self) -> None:
        with refuses("w", 2):
            check_finite_array([0.0, 1.0, np.nan], "w")

    def test_refuses_other_dimensions(self) -> None:
        with refuses("X", 2, "(3,)"):
            check_finite_array([1.0, 2.0, 3.0], "X", ndim=2)
        with refuses("w", 1, "(1, 1)"):
            check_finite_array([[1.0]], "w", ndim=1)

    @pytest.mark.parametrize("bad", [["a", "b"], [[1.0], [1.0, 2.0]], object(), [1j]])
    def test_refuses_what_is_not_numbers(self, bad: object) -> None:
        with refuses("X"):
            check_finite_array(bad, "X")


class TestCheckPositiveScalar:
    @pytest.mark.parametrize("good", [2, 2.0, np.float32(2), np.int64(2), np.array(2.0)])
    def test_accepts_any_real_number(self, good: object) -> None:
        value = check_positive_scalar(good, "kappa")
        assert type(value) is float
        assert value == 2.0

    @pytest.mark.parametrize("bad", [0, -1.0, np.nan, np.inf, -np.inf])
    def test_refuses_what_is_not_positive(self, bad: float) -> None:
        with refuses("kappa", 0):
            check_positive_scalar(bad, "kappa")

    @pytest.mark.parametrize("bad", ["1", None, True, [1.0], 1j])
    def test_refuses_what_is_not_a_number(self, bad: object) -> None:
        with refuses("kappa", 0):
            check_positive_scalar(bad, "kappa")

    def test_zero_where_allowed(self) -> None:
        assert check_positive_scalar(0, "radius", allow_zero=True) == 0.0
        with refuses("radius", 0, -0.5):
            check_positive_scalar(-0.5, "radius", allow_zero=True)


class TestCheckProbabilityVector:
    def test_divides_rounding_out(self) -> None:
        p = check_probability_vector([0.3, 0.7 + 5e-9], "p")
        assert abs(p.sum() - 1) <= 2e-16
        np.testing.assert_allclose(p, [0.3, 0.7], atol=5e-9)

    def test_refuses_another_sum(self) -> None:
        with refuses("p", 1, 0.75):
            check_probability_vector([0.25, 0.5], "p")

    @pytest.mark.parametrize("bad", [[-0.1, 1.1], [2.0, -1.0], []])
    def test_refuses_what_is_no_probability(self, bad: list[float]) -> None:
        with refuses("p", "[0, 1]"):
            check_probability_vector(bad, "p")


def test_read_only_copy_is_a_copy_that_refuses_writing() -> None:
    array = np.ones(3)
    copy = read_only_copy(array)
    array[0] = 2.0
    assert copy[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        copy[0] = 3.0
