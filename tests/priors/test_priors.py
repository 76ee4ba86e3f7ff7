from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import binomtest

from refusals import refuses
from surefoot.priors import (
    AssistedPrior,
    ClopperPearson,
    ExactPrior,
    HypergeometricPrior,
    IntervalPrior,
    LabelPrior,
    NoPrior,
    resolve_prior,
)
from surefoot.priors.clopper_pearson import tighten

counts = st.lists(st.integers(0, 200), min_size=2, max_size=5).filter(any).map(np.array)
probability_vectors = (
    st.lists(st.floats(0, 1), min_size=1, max_size=6)
    .filter(lambda w: sum(w) > 1e-3)
    .map(lambda w: np.array(w) / sum(w))
)


@st.composite
def boxes(draw: st.DrawFn) -> np.ndarray:
    """Intervals around a distribution, hence admitting one."""
    p = draw(probability_vectors)
    K = len(p)
    widths = np.array(draw(st.lists(st.floats(0, 1), min_size=2 * K, max_size=2 * K))).reshape(K, 2)
    return np.column_stack([p * (1 - widths[:, 0]), np.minimum(p + (1 - p) * widths[:, 1], 1.0)])


class TestClopperPearson:
    @pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
    @pytest.mark.parametrize(("m", "n"), [(0, 1), (1, 1), (0, 20), (20, 20), (3, 20), (17, 400), (1, 10_000)])
    def test_against_the_exact_binomial_test(self, m: int, n: int, level: float) -> None:
        reference = binomtest(m, n).proportion_ci(confidence_level=level, method="exact")
        interval = ClopperPearson(level).intervals([m, n - m])[0]
        np.testing.assert_allclose(
            interval, [reference.low, reference.high], rtol=1e-9, atol=2e-12
        )  # its root finder stops at 2e-12

    @pytest.mark.parametrize("n", [1, 7, 50])
    def test_closed_forms_at_the_ends(self, n: int) -> None:
        # no label of a class: [0, 1 - (a/2)^(1/n)]; all labels: [(a/2)^(1/n), 1]
        end = 0.025 ** (1 / n)
        np.testing.assert_allclose(ClopperPearson().intervals([0, n]), [[0, 1 - end], [end, 1]], rtol=1e-12)

    @pytest.mark.parametrize("n", [2, 50, 10_000])
    def test_closed_form_with_one_label(self, n: int) -> None:
        # P(at least 1 of n) = 1 - (1 - lo)^n = a/2
        lo = -np.expm1(np.log1p(-0.025) / n)
        np.testing.assert_allclose(ClopperPearson().intervals([1, n - 1])[0, 0], lo, rtol=1e-12)

    @given(counts, st.floats(0.01, 0.99))
    def test_frequencies_are_inside(self, m: np.ndarray, level: float) -> None:
        lo, hi = ClopperPearson(level).intervals(m).T
        p = m / m.sum()
        assert (lo >= 0).all()
        assert (lo <= p).all()
        assert (p <= hi).all()
        assert (hi <= 1).all()

    @given(counts)
    def test_shrinks_with_more_labels_and_lower_level(self, m: np.ndarray) -> None:
        width = np.diff(ClopperPearson(0.95).intervals(m))
        assert (np.diff(ClopperPearson(0.95).intervals(4 * m)) < width).all()
        assert (np.diff(ClopperPearson(0.5).intervals(m)) < width).all()

    @given(st.lists(st.floats(0, 3), min_size=2, max_size=4).filter(lambda m: sum(m) > 1e-2), st.floats(1e-4, 0.999))
    def test_fractional_counts_admit_their_frequencies(self, m: list[float], level: float) -> None:
        intervals = ClopperPearson(level).intervals(m)
        p = np.array(m) / sum(m)
        assert ((intervals[:, 0] <= p + 1e-15) & (p <= intervals[:, 1] + 1e-15)).all()
        tighten(intervals)  # raises if no distribution is admitted

    @pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 95, np.nan, "0.95", True])
    def test_refuses_a_bad_level(self, level: object) -> None:
        with refuses("level"):
            ClopperPearson(level)

    def test_needs_labels(self) -> None:
        with refuses("class_weights", "[0. 0.]"):
            ClopperPearson().intervals([0, 0])

    def test_is_data(self) -> None:
        assert ClopperPearson(0.9) == ClopperPearson(0.9)
        assert repr(ClopperPearson()) == "ClopperPearson(level=0.95)"


class TestOtherPriors:
    def test_none_admits_everything(self) -> None:
        np.testing.assert_array_equal(NoPrior().intervals([3, 0, 2]), [[0, 1]] * 3)

    def test_exact(self) -> None:
        np.testing.assert_array_equal(ExactPrior([0.25, 0.75]).intervals([1, 9]), [[0.25, 0.25], [0.75, 0.75]])

    def test_exact_divides_rounding_out(self) -> None:
        assert abs(ExactPrior([0.3, 0.7 + 9e-9]).intervals([1, 1])[:, 0].sum() - 1) <= 2e-16

    def test_intervals(self) -> None:
        bounds = np.array([[0.2, 0.5], [0.5, 0.9]])
        np.testing.assert_array_equal(IntervalPrior(bounds).intervals([1, 9]), bounds)

    @pytest.mark.parametrize("prior", [ExactPrior([0.25, 0.75]), IntervalPrior([[0.2, 0.5], [0.5, 0.9]])])
    def test_refuses_another_number_of_classes_and_names_both(self, prior: LabelPrior) -> None:
        with refuses("label_prior", 2, 3):
            prior.intervals([1, 2, 3])

    @pytest.mark.parametrize("prior", [NoPrior(), ClopperPearson(), ExactPrior([1.0]), IntervalPrior([[0.0, 1.0]])])
    @pytest.mark.parametrize("bad", [[-1.0], [np.nan], [], [[1.0]]])
    def test_refuses_bad_class_weights(self, prior: LabelPrior, bad: object) -> None:
        with refuses("class_weights"):
            prior.intervals(bad)

    @pytest.mark.parametrize(
        ("bad", "named"),
        [
            ([0.5, 0.6], "sum 1.1"),
            ([-0.5, 1.5], "[0, 1]"),
            ([0.5, np.nan], "nan at index 1"),
            ([[0.5, 0.5]], "shape (1, 2)"),
        ],
    )
    def test_exact_refuses(self, bad: object, named: str) -> None:
        with refuses("label_prior", named):
            ExactPrior(bad)

    def test_are_copies_that_cannot_be_written_to(self) -> None:
        p = np.array([0.25, 0.75])
        prior = ExactPrior(p)
        p[0] = 9.0
        np.testing.assert_array_equal(prior.probabilities, [0.25, 0.75])
        with pytest.raises(ValueError, match="read-only"):
            prior.probabilities[0] = 9.0
        bounds = IntervalPrior([[0.2, 0.5], [0.5, 0.9]])
        bounds.intervals([1, 1])[0, 0] = 9.0
        assert bounds.bounds[0, 0] == 0.2
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(bounds)).bounds, bounds.bounds)

    def test_repr(self) -> None:
        assert repr(ExactPrior([0.25, 0.75])) == "ExactPrior([0.25, 0.75])"
        assert repr(IntervalPrior([[0.25, 0.5], [0.5, 1.0]])) == "IntervalPrior([[0.25, 0.5 ], [0.5 , 1.  ]])"


BAD_INTERVALS = [
    ([[0.6, 0.7], [0.5, 0.9]], 1.1),
    ([[0.1, 0.25], [0.1, 0.5]], 0.75),
    ([[0.6, 0.5], [0.1, 0.9]], "[0.6, 0.5] for class 0"),
    ([[-0.5, 0.5], [0.1, 0.9]], "bounds from -0.5"),
    ([[0.5, 1.5], [0.1, 0.9]], "bounds from 0.1 to 1.5"),
    ([[0.5, np.nan], [0.1, 0.9]], "nan at index (0, 1)"),
    ([[0.1, 0.2, 0.3]], "(1, 3)"),
]


class TestTighten:
    @given(boxes())
    def test_each_bound_against_a_linear_programme(self, box: np.ndarray) -> None:
        K = len(box)
        tight = tighten(box)
        for k in range(K):
            for sign, end in [(1, 0), (-1, 1)]:
                objective = np.zeros(K)
                objective[k] = sign
                solution = linprog(objective, A_eq=np.ones((1, K)), b_eq=[1.0], bounds=box, method="highs")
                assume(solution.status == 0)  # boxes of a width near rounding are infeasible to HiGHS
                assert abs(sign * solution.fun - tight[k, end]) <= 1e-6  # HiGHS allows itself 1e-7 per constraint

    @given(boxes())
    def test_is_ordered_inside_and_idempotent(self, box: np.ndarray) -> None:
        tight = tighten(box)
        assert (box[:, 0] <= tight[:, 0]).all()
        assert (tight[:, 0] <= tight[:, 1]).all()
        assert (tight[:, 1] <= box[:, 1]).all()
        np.testing.assert_allclose(tighten(tight), tight, atol=1e-15)

    @given(probability_vectors)
    def test_keeps_exact_priors_exact(self, p: np.ndarray) -> None:
        intervals = ExactPrior(p).intervals(np.ones(len(p)))
        np.testing.assert_array_equal(tighten(intervals), intervals)

    def test_two_classes_by_hand(self) -> None:
        np.testing.assert_allclose(tighten([[0.0, 1.0], [0.25, 0.5]]), [[0.5, 0.75], [0.25, 0.5]])

    def test_forgives_rounding(self) -> None:
        third = np.full((3, 2), 1 / 3 + 1e-13)
        np.testing.assert_array_equal(tighten(third), third)

    @pytest.mark.parametrize(("bad", "named"), BAD_INTERVALS)
    def test_refuses(self, bad: object, named: object) -> None:
        with refuses("label_prior", named):
            tighten(bad)
        with refuses("label_prior", named):
            IntervalPrior(bad)


class TestResolvePrior:
    def test_each_kind(self) -> None:
        assert resolve_prior(None) == NoPrior()
        assert resolve_prior("clopper-pearson") == ClopperPearson(0.95)
        assert resolve_prior("hypergeometric") == HypergeometricPrior(None, 0.95)
        assert resolve_prior("assisted") == AssistedPrior(0.95)
        np.testing.assert_array_equal(resolve_prior([0.25, 0.75]).probabilities, [0.25, 0.75])
        np.testing.assert_array_equal(resolve_prior([[0.2, 0.5], [0.5, 0.9]]).bounds, [[0.2, 0.5], [0.5, 0.9]])
        prior = ClopperPearson(0.8)
        assert resolve_prior(prior) is prior

    @pytest.mark.parametrize("bad", ["clopper", 0.5, np.zeros((2, 2, 2))])
    def test_refuses_others_and_lists_the_choices(self, bad: object) -> None:
        with refuses("label_prior", "'auto'", "'clopper-pearson'", "'hypergeometric'", "'assisted'"):
            resolve_prior(bad)

    def test_refuses_a_class(self) -> None:
        with refuses("label_prior"):
            resolve_prior(NoPrior)


def test_intervals_that_rounding_left_outside_are_clipped() -> None:
    prior = IntervalPrior(np.array([[-1e-16, 1.0 + 2e-16], [0.0, 1.0]]))
    np.testing.assert_array_equal(prior.bounds, [[0.0, 1.0], [0.0, 1.0]])
    with refuses("label_prior", "[0, 1]"):
        IntervalPrior(np.array([[0.0, 1.0 + 1e-9], [0.0, 1.0]]))


def test_huge_counts_leave_a_point() -> None:
    """Weights may be of any size: beyond what the beta distribution can tell the shares are what they are."""
    for n in (1e14, 1e18, 1e300):
        found = ClopperPearson().intervals([0.3 * n, 0.7 * n])
        np.testing.assert_allclose(found, [[0.3, 0.3], [0.7, 0.7]], atol=1e-6)
        assert (found[:, 0] <= found[:, 1]).all()
        assert np.isfinite(ClopperPearson().intervals([5.0, n])).all()
