"""Learning against a union of decision sets: a conic reference, laws, feasible adversaries, and harder problems."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from reference.test_inner_agreement import assert_feasible
from reference.union import SetInUnion, union_reference
from surefoot._errors import InfeasibleRadiusError
from surefoot.dual.bounds import dual_value
from surefoot.dual.models import DualPoint, LinearModel
from surefoot.dual.row_store import InMemoryRows
from surefoot.problem.sets import DecisionSet, build_decision_set
from surefoot.solvers.joint_objective import JointDual, JointPoint, smooth_maximum
from surefoot.solvers.minimal_radius import MinimalRadius, solve_minimal_radius
from surefoot.solvers.newton import DEFAULT_OPTIONS
from surefoot.solvers.search import search as search_module
from surefoot.solvers.search.best_bounds import BestBounds, JointState, SetAtRadius
from surefoot.solvers.search.search import Search
from surefoot.solvers.search.solution import Solution, solve_certified
from surefoot.solvers.search.solution import solve_held as solve_union

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate:UserWarning")

Array = NDArray[np.float64]
Sets = list[tuple[DecisionSet, MinimalRadius]]


def draw(
    K: int = 2, *, N: int = 30, n: int = 8, d: int = 2, seed: int = 0, shift: float = 0.8, l2: float = 0.0
) -> tuple[DecisionSet, LinearModel]:
    """One decision set with label intervals around the labeled frequencies, and a linear model on its rows."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(n) % K, rng.integers(K, size=N - n)])
    X = 0.6 * rng.normal(size=(N, d)) + shift * np.eye(K, d)[labels]
    p = np.bincount(labels[:n], minlength=K) / n
    ds = build_decision_set(
        X[:n], labels[:n], K, X_unlabeled=X[n:], label_prior=np.column_stack([0.7 * p, 1.3 * p]), label_cost=0.7
    )
    return ds, LinearModel(np.column_stack([X, np.ones(N)]), np.append(np.full(d, l2), 0.0), K)


def favouring(ds: DecisionSet, k: int, excess: float) -> tuple[DecisionSet, MinimalRadius]:
    """A set where turning a label into k is free and turning k into another costs twice as much."""
    gains = np.arange(ds.n_classes) == k
    cost = ds.label_cost + ds.label_cost.max() * (gains[None, :].astype(float) - gains[:, None])
    np.fill_diagonal(cost, 0.0)
    changed = replace(ds, label_cost=np.maximum(cost, 0.0))
    minimal = solve_minimal_radius(changed)
    return changed.with_radius(minimal.value + excess), minimal


def one_per_class(ds: DecisionSet, excess: float) -> Sets:
    return [favouring(ds, k, excess) for k in range(ds.n_classes)]


def conic_value(sets: Sets, model: LinearModel, l2: float = 0.0) -> float:
    first = sets[0][0]
    stated = [SetInUnion(ds.label_cost, ds.intervals, ds.radius) for ds, _ in sets]
    common = (first.distances, first.row_weights, first.anchor_weights, first.anchor_labels, model.X[:, :-1], l2)
    try:
        return union_reference(stated, *common)
    except RuntimeError:  # Clarabel could not reach nine digits: seven are enough here
        return union_reference(stated, *common, tolerance=1e-7)


def assert_sound(solution: Solution, sets: Sets, model: LinearModel, tol: float) -> None:
    """Bounds in order and within tol, recomputed upper bounds, feasible adversaries, and a mixture of just these."""
    assert solution.lower <= solution.risk
    assert solution.status in {"optimal", "separable"}
    assert solution.gap <= tol
    assert solution.weights.min() >= 0
    assert solution.weights.sum() == pytest.approx(1.0, abs=1e-12)
    values = [dual_value(ds, model, part.point) for (ds, _), part in zip(sets, solution.parts, strict=True)]
    assert solution.risk == pytest.approx(max(values), abs=1e-12)
    mixed = np.zeros_like(solution.label_proba)
    for (ds, _), part, weight in zip(sets, solution.parts, solution.weights, strict=True):
        np.testing.assert_array_equal(part.point.theta, solution.theta)
        assert_feasible(part.adversary, ds)
        mixed += weight * part.adversary.label_proba
    np.testing.assert_allclose(solution.label_proba, mixed, atol=1e-12)


@pytest.mark.parametrize("l2", [0.0, 0.1])
@pytest.mark.parametrize("excess", [1e-3, 0.02, 0.2])
@pytest.mark.parametrize("K", [2, 3])
def test_both_bounds_are_the_conic_optimum(K: int, excess: float, l2: float) -> None:
    ds, model = draw(K, seed=K, l2=l2)
    sets = one_per_class(ds, excess)
    solution = solve_union(sets, model, tol=1e-6)
    assert_sound(solution, sets, model, 1e-6)
    value = conic_value(sets, model, l2)
    assert solution.risk == pytest.approx(value, abs=1e-5)
    assert solution.lower <= value + 1e-6
    assert solution.risk >= value - 1e-6


@pytest.mark.parametrize("K", [2, 3])
def test_sets_may_differ_in_costs_intervals_and_radius(K: int) -> None:
    ds, model = draw(K, seed=10 + K)
    rng = np.random.default_rng(K)
    exact = replace(ds, intervals=np.repeat(ds.label_frequencies[:, None], 2, axis=1))
    matrix = replace(ds, label_cost=rng.uniform(0.2, 1.5, size=(K, K)) * (1 - np.eye(K)))
    free = replace(ds, intervals=np.tile([0.0, 1.0], (K, 1)))
    changed = [(exact, 0.1), (matrix, 0.03), (free, 0.01)]
    minima = [solve_minimal_radius(one) for one, _ in changed]
    sets = [(one.with_radius(m.value + excess), m) for (one, excess), m in zip(changed, minima, strict=True)]
    solution = solve_union(sets, model, tol=1e-6)
    assert_sound(solution, sets, model, 1e-6)
    assert solution.risk == pytest.approx(conic_value(sets, model), abs=1e-5)


@pytest.mark.parametrize("K", [2, 3])
def test_a_union_is_at_least_as_bad_as_each_of_its_sets(K: int) -> None:
    ds, model = draw(K, seed=20 + K)
    sets = one_per_class(ds, 0.02)
    solution = solve_union(sets, model, tol=1e-6)
    alone = [solve_certified(one, model, tol=1e-6, minimal=minimal) for one, minimal in sets]
    assert solution.risk >= max(one.lower for one in alone)
    # here no set decides alone: the mixture gains on each of them
    assert solution.lower > max(one.risk for one in alone) + 1e-4
    assert np.count_nonzero(solution.weights > 0.05) >= 2


@pytest.mark.parametrize("copies", [1, 2, 4])
def test_equal_sets_are_one_set(copies: int) -> None:
    ds, model = draw(3, seed=4)
    one = favouring(ds, 1, 0.02)
    alone = solve_certified(one[0], model, tol=1e-7, minimal=one[1])
    solution = solve_union([one] * copies, model, tol=1e-7)
    assert_sound(solution, [one] * copies, model, 1e-7)
    assert solution.risk == pytest.approx(alone.risk, abs=2e-7)
    np.testing.assert_allclose(solution.theta, alone.theta, atol=1e-3)


def test_a_set_inside_another_gets_no_weight() -> None:
    ds, model = draw(2, seed=5)
    (wide, minimal), _ = one_per_class(ds, 0.02)
    narrow = wide.with_radius(minimal.value + 0.002)
    solution = solve_union([(narrow, minimal), (wide, minimal)], model, tol=1e-7)
    alone = solve_certified(wide, model, tol=1e-7, minimal=minimal)
    assert solution.risk == pytest.approx(alone.risk, abs=2e-7)
    np.testing.assert_allclose(solution.weights, [0.0, 1.0], atol=1e-5)
    assert solution.parts[0].risk < solution.risk - 1e-4


def test_the_value_grows_with_the_radius_and_with_more_sets() -> None:
    ds, model = draw(3, seed=6)
    found = [solve_union(one_per_class(ds, excess), model, tol=1e-6) for excess in (0.0, 1e-4, 1e-3, 0.01, 0.1)]
    assert all(small.lower <= large.risk for small, large in pairwise(found))
    assert found[0].risk < found[-1].lower - 0.01
    sets = one_per_class(ds, 0.01)
    nested = [solve_union(sets[:count], model, tol=1e-6) for count in (1, 2, 3)]
    assert all(small.lower <= large.risk for small, large in pairwise(nested))


def test_the_order_of_the_sets_does_not_matter() -> None:
    ds, model = draw(3, seed=7)
    sets = one_per_class(ds, 0.02)
    forward, backward = (solve_union(order, model, tol=1e-6) for order in (sets, sets[::-1]))
    assert forward.risk == pytest.approx(backward.risk, abs=1e-6)
    np.testing.assert_allclose(forward.weights, backward.weights[::-1], atol=1e-4)
    np.testing.assert_allclose(forward.theta, backward.theta, atol=1e-4)


@pytest.mark.parametrize("K", [2, 3])
def test_at_the_minimal_radius(K: int) -> None:
    ds, model = draw(K, N=43, n=8, seed=30 + K)
    sets = one_per_class(ds, 0.0)
    solution = solve_union(sets, model, tol=1e-5)
    assert solution.status == "optimal"
    assert solution.gap <= 1e-5
    # the adversaries may exceed the radius by a share of 1e-6, and no more: so much may the lower bound be off
    nearly = [(one.with_radius(one.radius * (1 + 1e-6)), minimal) for one, minimal in sets]
    barely = [(one.with_radius(one.radius * (1 + 1e-9)), minimal) for one, minimal in sets]
    assert solution.lower <= conic_value(nearly, model) + 1e-5
    assert solution.risk >= conic_value(barely, model) - 1e-4
    for (one, _), part in zip(sets, solution.parts, strict=True):
        assert_feasible(part.adversary, one)


@pytest.mark.parametrize("K", [2, 3])
def test_sets_wrongly_left_behind_are_taken_in_again(K: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ds, model = draw(K, N=60, n=10, seed=40 + K)
    sets = one_per_class(ds, 0.02)
    value = solve_union(sets, model, tol=1e-6).risk
    monkeypatch.setattr(search_module, "_FAR", 0.0)  # leave all but the worst set behind, at once
    calls: list[int] = []
    rejoin = Search._rejoin
    monkeypatch.setattr(Search, "_rejoin", lambda self, inside, path: calls.append(1) or rejoin(self, inside, path))
    solution = solve_union(sets, model, tol=1e-6)
    assert calls
    assert_sound(solution, sets, model, 1e-6)
    assert solution.risk == pytest.approx(value, abs=1e-6)


def test_sets_are_left_behind_as_soon_as_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    ds, model = draw(3, N=60, n=12, seed=2)
    sets = [*one_per_class(ds, 0.05)[:1], *one_per_class(ds, 0.001)[1:]]  # the first is the worst
    left: list[float] = []
    leave = Search._leave_behind

    def noted(self: Search, joint: JointDual, inside: list[int], path: JointState) -> tuple[list[int], JointState]:
        kept, path = leave(self, joint, inside, path)
        left.extend([path.tau] * (len(kept) < len(inside)))
        return kept, path

    monkeypatch.setattr(Search, "_leave_behind", noted)
    found = solve_union(sets, model, tol=1e-6)
    early, left = left[0], []
    monkeypatch.setattr(search_module, "_MANY", 1.1)
    late = solve_union(sets, model, tol=1e-6)
    assert early > left[0]
    assert_sound(found, sets, model, 1e-6)
    assert found.risk == pytest.approx(late.risk, abs=1e-6)


def test_labels_that_a_model_can_separate() -> None:
    ds, model = draw(2, N=40, n=12, seed=1, shift=12.0)
    ds = replace(ds, intervals=np.array([[0.4, 0.6], [0.4, 0.6]]))
    sets = one_per_class(ds, 0.0)
    solution = solve_union(sets, model, tol=1e-4)
    assert solution.gap <= 1e-4
    assert solution.status in {"optimal", "separable"}


def test_a_stopped_search_says_so_and_keeps_its_bounds() -> None:
    from surefoot.solvers.newton import NewtonOptions

    ds, model = draw(2, seed=8)
    sets = one_per_class(ds, 0.02)
    solution = solve_union(sets, model, tol=1e-9, options=NewtonOptions(max_steps=8, smallest_tau=1e-2))
    exact = solve_union(sets, model, tol=1e-7)
    assert solution.status == "stopped"
    assert solution.gap > 1e-9
    assert solution.lower <= exact.risk
    assert solution.risk >= exact.lower


def test_rounds_are_told_and_threads_change_nothing() -> None:
    ds, model = draw(2, N=700, n=12, seed=9)
    sets = one_per_class(ds, 0.01)
    taus: list[float] = []
    one = solve_union(sets, model, on_round=lambda state: taus.append(state.tau))
    two = solve_union(sets, model, n_jobs=2)
    assert len(taus) > 3
    assert min(taus) < 1e-2
    np.testing.assert_array_equal(one.theta, two.theta)
    assert one.risk == two.risk


def test_bad_input_is_refused() -> None:
    ds, model = draw(2)
    sets = one_per_class(ds, 0.01)
    with pytest.raises(ValueError, match="at least one decision set, got none"):
        solve_union([], model)
    other, _ = draw(2, N=31)
    with pytest.raises(ValueError, match="share their rows"):
        solve_union([sets[0], favouring(other, 0, 0.01)], model)
    three, _ = draw(3)
    with pytest.raises(ValueError, match="share their rows and the 2 classes"):
        solve_union([sets[0], favouring(three, 0, 0.01)], model)
    with pytest.raises(ValueError, match="one row per row of the sets; got 31 and 30"):
        solve_union(sets, replace(model, X=np.ones((31, 3))))
    one, minimal = sets[1]
    with pytest.raises(InfeasibleRadiusError):
        solve_union([sets[0], (one.with_radius(0.9 * minimal.value), minimal)], model)


@pytest.mark.parametrize("K", [2, 3])
def test_derivatives_of_the_joint_objective_and_its_newton_direction(K: int) -> None:
    ds, model = draw(K, seed=3, l2=0.05)
    members = [SetAtRadius(*one) for one in one_per_class(ds, 0.05)]
    search = Search(BestBounds(InMemoryRows.from_decision_set(ds, model), model, members), 1.0, 1e-4, DEFAULT_OPTIONS)
    dual = JointDual([search.dual(one) for one in members])
    rng, tau, h = np.random.default_rng(0), 0.5, 1e-5
    parts = [
        DualPoint(model.X[:0], 0.5 + rng.random(), 0.1 * rng.normal(size=K), 0.1 * rng.normal(size=8)) for _ in members
    ]
    point = JointPoint.with_theta(rng.normal(size=model.shape), parts)
    vector = dual.pack(point)
    point = dual.unpack(vector, point)  # a class without a multiplier of its own keeps the one it has
    np.testing.assert_array_equal(dual.pack(point), vector)
    steps = h * np.eye(len(vector))
    at = [[dual.evaluate(dual.unpack(vector + s * e, point), tau, second_order=False) for s in (1, -1)] for e in steps]
    here = dual.evaluate(point, tau, second_order=True)
    slopes = np.array([up.value - down.value for up, down in at]) / (2 * h)
    np.testing.assert_allclose(here.gradient, slopes, atol=1e-8)
    H = np.array([up.gradient - down.gradient for up, down in at]) / (2 * h)
    newton = dual.direction(here, 1e-11)
    direction, decrement = newton.step, newton.decrement
    np.testing.assert_allclose(H @ direction, -here.gradient, atol=1e-6)
    assert decrement == pytest.approx(-here.gradient @ direction, rel=1e-9)


@pytest.mark.parametrize("values", [[0.3], [1.0, 1.0, 1.0], [0.0, 5.0, 4.999], [-1e8, 0.0], [1e3, -1e3, 0.0]])
@pytest.mark.parametrize("barrier", [1e-9, 1e-2, 1.0])
def test_the_smooth_maximum_is_what_its_definition_says(values: list[float], barrier: float) -> None:
    D = np.array(values)
    value, weights = smooth_maximum(D, barrier)
    assert weights.sum() == pytest.approx(1.0, abs=1e-14)
    assert weights.min() > 0
    # p_s = μ / (t − D_s) for one t: that t minimises, and the value there is the definition's
    slack = barrier / weights[D.argmax()] + (D.max() - D)
    np.testing.assert_allclose(weights * slack, barrier, rtol=1e-9)
    expected = D.max() + slack[D.argmax()] - barrier * np.log(slack / barrier).sum()
    assert value == pytest.approx(expected, abs=1e-12 * max(1.0, np.abs(D).max()))


def real_like(N: int, n: int, K: int, *, skewed: bool, seed: int) -> tuple[DecisionSet, LinearModel]:
    """Columns of unequal spread, standardised as in the experiments; equal classes, or one of them frequent."""
    rng, d = np.random.default_rng(seed), 8
    p = np.arange(1, K + 1) ** 2.0 if skewed else np.ones(K)
    labels = rng.choice(K, size=N, p=p / p.sum())
    labels[:K] = np.arange(K)
    X = rng.normal(size=(N, d)) + 1.5 * np.eye(K, d)[labels]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X /= np.abs(X).max()
    ds = build_decision_set(X[:n], labels[:n], K, X_unlabeled=X[n:], label_prior="clopper-pearson")
    return ds, LinearModel(np.column_stack([X, np.ones(N)]), np.zeros(d + 1), K)


@pytest.mark.slow
@pytest.mark.parametrize("excess", [1e-4, 1e-3, 1e-2, 0.1])
@pytest.mark.parametrize("skewed", [False, True], ids=["even", "skewed"])
@pytest.mark.parametrize(("N", "n", "K"), [(500, 20, 2), (2011, 50, 2), (507, 20, 3), (1500, 40, 3), (6000, 60, 2)])
def test_problems_of_real_size_are_certified(N: int, n: int, K: int, skewed: bool, excess: float) -> None:
    ds, model = real_like(N, n, K, skewed=skewed, seed=N)
    sets = one_per_class(ds, excess)
    solution = solve_union(sets, model)
    assert solution.status == "optimal"
    assert solution.gap <= 1e-4
    worst = max(solve_certified(one, model, minimal=minimal).lower for one, minimal in sets)
    assert solution.risk >= worst
