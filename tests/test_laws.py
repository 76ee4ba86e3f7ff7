"""Laws of the robust problem, on generated problems: monotone, invariant, on the safe side, and smooth as claimed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import surefoot as sf
from reference.inner import inner_reference
from surefoot.dual.bounds import dual_value
from surefoot.dual.models import DualPoint, FixedLosses, LinearModel
from surefoot.dual.objective import SmoothedDual, smoothed_support
from surefoot.dual.row_sums import DENSE_SHARE
from surefoot.problem.losses import log_loss_matrix
from surefoot.problem.sets import DecisionSet, build_decision_set
from surefoot.solvers.search.solution import Solution, solve_certified, solve_minimal_radius

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

Array = NDArray[np.float64]
TOL = 1e-6
PRIORS = ["exact", "intervals", "clopper-pearson", "none"]


@dataclass(frozen=True)
class Sample:
    """Rows with their true labels, of which the learner sees the first n; a prior around the true probabilities."""

    X: Array
    labels: NDArray[np.intp]
    n: int
    K: int
    prior: str
    label_cost: float | Array

    @property
    def p(self) -> Array:
        return np.bincount(self.labels, minlength=self.K) / len(self.labels)

    @property
    def label_prior(self) -> Array | str | None:
        if self.prior == "intervals":
            return self.intervals(0.2)
        return {"exact": self.p, "none": None}.get(self.prior, self.prior)

    def intervals(self, width: float) -> Array:
        return np.column_stack([(1 - width) * self.p, np.minimum((1 + width) * self.p, 1.0)])

    def decision_set(self, label_prior: Array | str | None = None) -> DecisionSet:
        return build_decision_set(
            self.X[: self.n], self.labels[: self.n], self.K, X_unlabeled=self.X[self.n :],
            label_prior=self.label_prior if label_prior is None else label_prior, label_cost=self.label_cost,
        )  # fmt: skip

    def model(self, l2: float = 0.0) -> LinearModel:
        rows = np.column_stack([self.X, np.ones(len(self.X))])
        return LinearModel(rows, np.append(np.full(self.X.shape[1], l2), 0.0), self.K)

    def solve(self, excess: float, *, tol: float = TOL) -> Solution:
        ds = self.decision_set()
        minimal = solve_minimal_radius(ds)
        return solve_certified(ds.with_radius(minimal.value + excess), self.model(), tol=tol, minimal=minimal)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    K = draw(st.sampled_from([2, 3]))
    n, M = draw(st.integers(K, 9)), draw(st.integers(0, 25))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = np.concatenate([np.arange(n) % K, rng.integers(K, size=M)])
    d = draw(st.integers(1, 3))
    X = draw(st.sampled_from([0.4, 0.8])) * rng.normal(size=(n + M, d)) + np.eye(K, d)[labels]
    cost = 0.7 if draw(st.booleans()) else rng.uniform(0.3, 1.5, size=(K, K)) * (1 - np.eye(K))
    return Sample(X, labels, n, K, draw(st.sampled_from(PRIORS)), cost)


excesses = st.floats(0.02, 0.5)
few = settings(max_examples=20, deadline=None, derandomize=True)
many = settings(max_examples=60, deadline=None, derandomize=True)


@few
@given(samples(), excesses, st.floats(1.05, 4.0))
def test_risk_grows_with_the_radius_and_is_concave_in_it(sample: Sample, excess: float, factor: float) -> None:
    near, middle, far = (sample.solve(e) for e in (excess, 0.5 * excess * (1 + factor), excess * factor))
    assert near.lower <= middle.risk
    assert middle.lower <= far.risk
    # a mixture of two adversaries is an adversary at the mean radius
    assert middle.risk >= 0.5 * (near.lower + far.lower) - 1e-12


@few
@given(samples(), excesses, st.floats(0.0, 0.9))
def test_risk_shrinks_when_an_interval_shrinks(sample: Sample, excess: float, share: float) -> None:
    wide, narrow = (sample.decision_set(sample.intervals(width)) for width in (0.3, 0.3 * share))
    # the narrower set is inside the wider one at one and the same radius
    radius = solve_minimal_radius(narrow).value + excess
    inside = solve_certified(narrow.with_radius(radius), sample.model(), tol=TOL)
    outside = solve_certified(wide.with_radius(radius), sample.model(), tol=TOL)
    assert inside.lower <= outside.risk
    assert outside.gap <= TOL
    assert inside.gap <= TOL


@few
@given(samples(), excesses)
def test_bounds_are_ordered_and_within_tolerance(sample: Sample, excess: float) -> None:
    solution = sample.solve(excess)
    assert 0 <= solution.lower <= solution.risk
    assert solution.gap <= TOL
    assert solution.status == "optimal"


@few
@given(samples(), excesses, st.integers(0, 1000))
def test_risk_is_unchanged_by_permuting_rows(sample: Sample, excess: float, seed: int) -> None:
    rng, n = np.random.default_rng(seed), sample.n
    order = np.concatenate([rng.permutation(n), n + rng.permutation(len(sample.X) - n)])
    moved = replace(sample, X=sample.X[order], labels=sample.labels[order])
    here, there = sample.solve(excess), moved.solve(excess)
    assert there.risk == pytest.approx(here.risk, abs=2 * TOL)
    np.testing.assert_allclose(there.minimal_radius.value, here.minimal_radius.value, atol=1e-12)


@few
@given(samples(), excesses)
def test_risk_is_unchanged_by_doubling_all_rows(sample: Sample, excess: float) -> None:
    assume(sample.prior != "clopper-pearson")  # twice the labels are twice the evidence
    n = sample.n
    order = np.concatenate([np.repeat(np.arange(n), 2), np.repeat(np.arange(n, len(sample.X)), 2)])
    doubled = replace(sample, X=sample.X[order], labels=sample.labels[order], n=2 * n)
    here, there = sample.solve(excess), doubled.solve(excess)
    assert there.risk == pytest.approx(here.risk, abs=2 * TOL)


@few
@given(samples(), excesses, st.floats(-1e3, 1e3))
def test_risk_is_unchanged_by_shifting_features(sample: Sample, excess: float, shift: float) -> None:
    here, there = fitted(sample, sample.X, excess), fitted(sample, sample.X + shift, excess)
    assert there.certificate_.risk == pytest.approx(here.certificate_.risk, abs=2 * TOL)
    np.testing.assert_allclose(there.worst_case_.label_probabilities.sum(), 1.0, atol=1e-12)


@few
@given(samples(), excesses, st.floats(1e-3, 1e3))
def test_risk_is_unchanged_by_the_unit_of_cost(sample: Sample, excess: float, unit: float) -> None:
    scaled = replace(sample, X=unit * sample.X, label_cost=unit * np.asarray(sample.label_cost))
    here, there = fitted(sample, sample.X, excess), fitted(scaled, scaled.X, unit * excess)
    assert there.certificate_.risk == pytest.approx(here.certificate_.risk, abs=2 * TOL)


def fitted(sample: Sample, X: Array, excess: float) -> sf.RobustLogisticRegression:
    X, y, U = X[: sample.n], sample.labels[: sample.n], X[sample.n :]
    keywords = {"label_prior": sample.label_prior, "label_cost": sample.label_cost}
    radius = sf.minimal_radius(X, y, X_unlabeled=U if len(U) else None, **keywords) + excess
    clf = sf.RobustLogisticRegression(radius=radius, tol=TOL, **keywords)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.UnlabeledRowsWarning)
        return clf.fit(X, y, X_unlabeled=U if len(U) else None)


@many
@given(samples(), st.floats(1.0, 1.5))
def test_true_risk_never_exceeds_the_certificate_at_the_distance_to_the_truth(sample: Sample, margin: float) -> None:
    X, y, U = sample.X[: sample.n], sample.labels[: sample.n], sample.X[sample.n :]
    radius = sf.transport_distance(X, y, sample.X, sample.labels, label_cost=sample.label_cost)
    prior = sample.label_prior if sample.prior != "clopper-pearson" else sample.intervals(0.5)
    clf = sf.RobustLogisticRegression(
        radius=margin * radius, label_prior=prior, label_cost=sample.label_cost, tol=1e-5
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.UnlabeledRowsWarning)
        clf.fit(X, y, X_unlabeled=U if len(U) else None)
    truth = -clf.predict_log_proba(sample.X)[np.arange(len(sample.X)), sample.labels].mean()
    assert truth <= clf.certificate_.risk + 1e-9
    assert clf.certificate_.minimal_radius <= radius * (1 + 1e-9)


@many
@given(samples(), st.integers(0, 2**32 - 1), st.floats(-3, 3), excesses)
def test_any_dual_point_bounds_the_worst_case_of_its_theta(
    sample: Sample, seed: int, log_alpha: float, excess: float
) -> None:
    rng, ds, model = np.random.default_rng(seed), sample.decision_set(), sample.model()
    ds = ds.with_radius(solve_minimal_radius(ds).value + excess)
    alpha = 0.0 if log_alpha > 2.5 else 10.0**log_alpha
    point = DualPoint(
        rng.normal(size=model.shape), alpha, rng.normal(size=sample.K), (0.1 + alpha) * rng.normal(size=sample.n)
    )  # fmt: skip
    losses = log_loss_matrix(model.scores(point.theta, slice(None)))
    worst = inner_reference(
        losses, ds.distances, ds.row_weights, ds.anchor_weights, ds.anchor_labels, ds.label_cost, ds.intervals,
        ds.radius,
    )["value"]  # fmt: skip
    assert dual_value(ds, model, point) >= worst - 1e-8
    assert dual_value(ds, FixedLosses(losses), replace(point, theta=np.zeros((0, 0)))) >= worst - 1e-8


@many
@given(samples(), st.integers(0, 2**32 - 1), st.sampled_from([1e-2, 1.0]), st.booleans())
def test_the_smoothed_dual_lies_between_the_exact_dual_and_its_entropy(
    sample: Sample, seed: int, tau: float, fixed: bool
) -> None:
    rng, ds = np.random.default_rng(seed), sample.decision_set().with_radius(1.0)
    model = FixedLosses(rng.normal(size=(len(sample.X), sample.K))) if fixed else sample.model(0.1)
    dual = SmoothedDual(ds, model)
    point = random_point(dual, rng)
    sums = dual.row_sums(point, tau, second_order=False)
    exact = dual_value(ds.with_radius(0.0), model, replace(point, lam=np.zeros(sample.K)))
    exact -= ds.anchor_weights @ point.beta + model.penalty_value(point.theta)
    shifted = dual.row_sums(replace(point, lam=np.zeros(sample.K)), tau, second_order=False)
    # the maximum over K·n values and its soft version differ by at most τ log(K n)
    assert exact - 1e-9 <= shifted.small[0] <= exact + tau * np.log(sample.K * sample.n) + 1e-9
    np.testing.assert_allclose([sums.label.sum(), sums.beta.sum()], 1.0, atol=1e-12)


def random_point(dual: SmoothedDual, rng: np.random.Generator) -> DualPoint:
    lam = np.zeros(dual.set.n_classes)
    lam[dual.layout.lam_free] = 0.5 * rng.normal(size=len(dual.layout.lam_free))
    return DualPoint(
        0.5 * rng.normal(size=dual.layout.theta_shape), float(rng.uniform(0.5, 2.0)), lam,
        0.3 * rng.normal(size=dual.layout.n_anchors),
    )  # fmt: skip


def stencil(values: list[Array], h: float) -> Array:
    """Five-point first derivative from values at −2h, −h, h, 2h: error O(h⁴)."""
    return (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)


def check_derivatives(dual: SmoothedDual, point: DualPoint, tau: float, h: float) -> None:
    """Gradient against values and Hessian against gradients, in every coordinate, by the five-point stencil."""
    at, here = dual.layout, dual.evaluate(point, tau, second_order=True)
    assert here.hessian is not None
    hessian = np.tril(here.hessian) + np.tril(here.hessian, -1).T
    vector = at.pack(point)
    gradient, columns = np.empty(at.size), np.empty((at.size, at.size))
    for i in range(at.size):
        unit = np.eye(at.size)[i]
        around = [
            dual.evaluate(at.unpack(vector + t * h * unit, point), tau, second_order=False) for t in (-2, -1, 1, 2)
        ]
        gradient[i] = stencil([np.asarray(e.value) for e in around], h)
        columns[i] = stencil([e.gradient for e in around], h)
    np.testing.assert_allclose(here.gradient, gradient, atol=1e-7)
    np.testing.assert_allclose(hessian, columns, atol=2e-6 * max(1.0, np.abs(columns).max()))
    without = dual.evaluate(point, tau, second_order=False)
    np.testing.assert_allclose(without.gradient, here.gradient, atol=1e-14)
    assert without.value == pytest.approx(here.value, abs=1e-14)
    for block in (at.theta, at.alpha, at.lam, at.beta):  # none of the blocks that are there is trivially zero
        if block.stop > block.start:
            assert np.abs(columns[block, block]).max() > 1e-4


def density(dual: SmoothedDual, point: DualPoint, tau: float) -> float:
    """Share of (row, anchor) pairs within the kernel's cut of their class's least."""
    ds = dual.set
    V = (point.alpha * ds.distances + point.beta) / tau
    least = np.minimum.reduceat(V, ds.class_offsets[:-1], axis=1)[:, ds.anchor_slots]
    return float(np.mean(V - least < 36.0))


@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("matrix", [False, True], ids=["scalar", "matrix"])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("K", [2, 3])
def test_derivatives_of_the_smoothed_dual_dense(K: int, prior: str, matrix: bool, l2: float) -> None:
    sample, rng = fixed_sample(K, prior, matrix=matrix, N=25, n=6)
    dual = SmoothedDual(sample.decision_set().with_radius(0.9), sample.model(l2))
    point = random_point(dual, rng)
    assert density(dual, point, 0.5) > DENSE_SHARE
    check_derivatives(dual, point, 0.5, 1e-3)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("K", [2, 3])
def test_derivatives_of_the_smoothed_dual_sparse(K: int, prior: str) -> None:
    sample, rng = fixed_sample(K, prior, matrix=True, N=60, n=40)
    solution = sample.solve(0.05, tol=2e-2)
    dual, tau = SmoothedDual(solution.decision_set, sample.model(0.1)), 0.5 * solution.path.tau
    while density(dual, solution.point, tau) > 0.8 * DENSE_SHARE:
        tau *= 0.8
    # at a random point one anchor per class and row has all the weight: near the optimum several compete
    vector = dual.layout.pack(solution.point)
    point = dual.layout.unpack(vector + 0.1 * tau * rng.normal(size=len(vector)), solution.point)
    assert density(dual, point, tau) < DENSE_SHARE
    check_derivatives(dual, point, tau, 1e-3 * tau)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("K", [2, 3])
def test_derivatives_with_fixed_losses(K: int, prior: str) -> None:
    sample, rng = fixed_sample(K, prior, matrix=True, N=25, n=6)
    dual = SmoothedDual(sample.decision_set().with_radius(0.9), FixedLosses(rng.exponential(size=(25, K))))
    check_derivatives(dual, random_point(dual, rng), 0.5, 1e-3)


def test_derivatives_where_a_class_has_no_label() -> None:
    sample, rng = fixed_sample(3, "intervals", matrix=True, N=25, n=6)
    y = np.where(sample.labels[:6] == 1, 2, sample.labels[:6])
    ds = build_decision_set(
        sample.X[:6], y, 3, X_unlabeled=sample.X[6:], label_prior=sample.label_prior, label_cost=sample.label_cost
    )
    dual = SmoothedDual(ds.with_radius(0.9), sample.model(0.1))
    check_derivatives(dual, random_point(dual, rng), 0.5, 1e-3)


def fixed_sample(K: int, prior: str, *, matrix: bool, N: int, n: int) -> tuple[Sample, np.random.Generator]:
    rng = np.random.default_rng(K)
    labels = np.concatenate([np.arange(n) % K, rng.integers(K, size=N - n)])
    X = 0.7 * rng.normal(size=(N, 2)) + np.eye(K, 2)[labels]
    cost = rng.uniform(0.3, 1.5, size=(K, K)) * (1 - np.eye(K)) if matrix else 0.7
    return Sample(X, labels, n, K, prior, cost), rng


@pytest.mark.parametrize(("K", "N", "n"), [(2, 600, 20), (3, 5000, 12)])
def test_threads_and_groups_of_rows_only_add_up(K: int, N: int, n: int) -> None:
    sample, rng = fixed_sample(K, "intervals", matrix=True, N=N, n=n)
    ds, model = sample.decision_set().with_radius(0.9), sample.model(0.1)
    dual = SmoothedDual(ds, model)
    point = random_point(dual, rng)
    for tau in (0.5, 1e-3):
        whole = dual.evaluate(point, tau, second_order=True)
        halves = [dual.evaluate(point, tau, second_order=True) for dual in split(ds, model)]
        # F of the whole is the mean of F over two halves of its rows, since all else is in each of them
        assert whole.value == pytest.approx(np.mean([h.value for h in halves]), abs=1e-12)
        np.testing.assert_allclose(whole.gradient, np.mean([h.gradient for h in halves], axis=0), atol=1e-12)
        mean = np.mean([h.hessian for h in halves], axis=0)
        np.testing.assert_allclose(np.tril(whole.hessian), np.tril(mean), atol=1e-10 * np.abs(mean).max())


def split(ds: DecisionSet, model: LinearModel) -> list[SmoothedDual]:
    N = len(ds.row_weights)
    return [
        SmoothedDual(
            replace(ds, distances=ds.distances[part], row_weights=2 * ds.row_weights[part]),
            replace(model, X=model.X[part]),
        )
        for part in (slice(0, N // 2), slice(N // 2, N))
    ]


@given(
    st.floats(0, 1), st.floats(0, 1), st.floats(-50, 50), st.sampled_from([1e-6, 1e-3, 0.1]),
)  # fmt: skip
@settings(max_examples=200, deadline=None, derandomize=True)
def test_smoothed_support_and_its_derivatives(a: float, b: float, lam: float, barrier: float) -> None:
    lo, hi = min(a, b), max(a, b)
    assume(hi - lo > 1e-3)
    intervals = np.array([[lo, hi]])
    # the curve bends over a length of about barrier / width
    h = 1e-2 * np.hypot(2 * barrier / (hi - lo), 0.1 * lam)
    at = [smoothed_support(intervals, np.array([lam + t * h]), barrier) for t in (-2, -1, 1, 2)]
    value, slope, curvature = (v[0] for v in smoothed_support(intervals, np.array([lam]), barrier))
    rounding = 1e-14 * (1 + abs(lam)) / h
    assert slope == pytest.approx(stencil([v[0][0] for v in at], h), rel=1e-6, abs=1e-7 + rounding)
    scale = (hi - lo) ** 2 / barrier
    assert curvature == pytest.approx(stencil([v[1][0] for v in at], h), rel=1e-5, abs=1e-7 * scale + 1e-15 / h)
    assert lo <= slope <= hi
    assert curvature >= 0
    # it solves min λ̄ p_hi − λ p_lo − μ log λ̄ − μ log λ over λ̄ − λ = lam: no other pair is better
    lower = np.maximum(0.0, -lam) + np.geomspace(1e-9, 1e3, 400)
    best = np.min((lower + lam) * hi - lower * lo - barrier * (np.log(lower + lam) + np.log(lower)))
    assert value <= best + 1e-9 * (1 + abs(lam))
    assert value >= best - 2e-2 * barrier - 1e-9 * (1 + abs(lam))


@given(st.floats(0, 1), st.floats(-50, 50))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_smoothed_support_of_an_exact_probability_is_linear(p: float, lam: float) -> None:
    value, slope, curvature = smoothed_support(np.array([[p, p]]), np.array([lam]), 0.01)
    assert (value[0], slope[0], curvature[0]) == (p * lam, p, 0.0)
