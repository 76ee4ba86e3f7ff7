"""The Wasserstein ball alone: closed forms, laws, certificates on hard data."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize_scalar
from scipy.special import entr
from sklearn.linear_model import LogisticRegression

from refusals import Refused, refuses
from surefoot.solvers.ball import ball_lower_bound, ball_upper_bound, ball_worst_case, solve_ball

LOG2 = np.log(2.0)
NORMS = ["l2", "linf", "l1"]
ORDER = {"l2": 2, "linf": np.inf, "l1": 1}
DUAL_ORDER = {"l2": 2, "linf": 1, "l1": np.inf}
Data = tuple[np.ndarray, np.ndarray]


def labels(rng: np.random.Generator, X: np.ndarray, slope: float = 2.0) -> np.ndarray:
    score = X @ rng.normal(size=X.shape[1])
    score = slope * (score - np.median(score)) / max(float(np.abs(score).mean()), 1e-300)
    return np.where(rng.random(len(X)) < 1 / (1 + np.exp(-np.clip(score, -30, 30))), 1.0, -1.0)


def draw(seed: int = 0, n: int = 60, d: int = 5) -> Data:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, labels(rng, X)


def hard_data() -> dict[str, Data]:
    """Datasets by the difficulty they pose."""
    rng = np.random.default_rng(7)
    X, y = draw(1)
    wide, square, heavy = rng.normal(size=(20, 50)), rng.normal(size=(20, 20)), rng.standard_cauchy(size=(60, 4))
    constant = X.copy()
    constant[:, 2], constant[:, 4] = 3.0, 0.0
    return {
        "separable": (X, np.where(X[:, 0] > 0, 1.0, -1.0)),
        "wide": (wide, labels(rng, wide)),
        "square": (square, labels(rng, square)),
        "duplicates": (np.vstack([X, X, X[:9]]), np.concatenate([y, y, -y[:9]])),
        "one row": (X[:1], y[:1]),
        "one class": (X, np.ones(len(X))),
        "constant features": (constant, y),
        "only constants": (np.full((9, 2), 5.0), np.where(np.arange(9) < 3, 1.0, -1.0)),
        "large": (X * 1e6, y),
        "small": (X * 1e-6, y),
        "mixed scales": (X * 10.0 ** np.array([6, -6, 0, 3, -3]), y),
        "heavy tails": (heavy, labels(rng, np.tanh(heavy))),
        "far from the origin": (X + 1e4, y),
        "collinear": (np.hstack([X, X]), y),
    }


HARD = hard_data()


def check_certificate(solution, X, y, *, radius, label_cost=1.0, norm="l2", weights=None, fit_intercept=True) -> None:
    """Recompute both sides from their definitions, with none of the package's code."""
    w = np.full(len(y), 1 / len(y)) if weights is None else weights / weights.sum()
    z = y * (X @ solution.coef + solution.intercept)
    hinge = np.maximum(z - solution.lam * label_cost, 0.0) if np.isfinite(label_cost) else 0.0
    assert solution.risk == pytest.approx(radius * solution.lam + w @ (np.logaddexp(0, -z) + hinge), abs=1e-11)
    assert np.linalg.norm(solution.coef, ORDER[norm]) <= solution.lam * (1 + 1e-12)
    p, s = solution.p, solution.s
    assert min(p.min(), s.min()) >= 0
    assert max(p.max(), s.max()) <= 1
    flow = w * (p - s) * y
    if fit_intercept:
        assert abs(flow.sum()) <= 1e-15
        X = X - w @ X
    flips = label_cost * (w @ s) if np.isfinite(label_cost) else 0.0
    rounding = 1e-13 * np.linalg.norm(np.abs(flow) @ np.abs(X), DUAL_ORDER[norm])
    assert np.linalg.norm(flow @ X, DUAL_ORDER[norm]) + flips <= radius * (1 + 1e-12) + rounding
    assert solution.lower <= w @ (entr(p) + entr(1 - p)) + 1e-14
    assert solution.gap == solution.risk - solution.lower >= 0


# closed forms


@pytest.mark.parametrize("norm", NORMS)
def test_radius_zero_is_plain_logistic_regression(norm: str) -> None:
    X, y = draw()
    ours = solve_ball(X, y, radius=0.0, norm=norm)
    plain = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(X, y)
    z = y * plain.decision_function(X)
    assert ours.status == "optimal"
    assert ours.risk == pytest.approx(np.logaddexp(0, -z).mean(), abs=1e-8)
    np.testing.assert_allclose(ours.coef, plain.coef_[0], atol=1e-3)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("label_cost", [0.2, 1.0])
def test_half_the_label_cost_leaves_nothing_to_learn(norm: str, label_cost: float) -> None:
    # the adversary can afford to flip every label with probability 1/2
    X, y = draw()
    ours = solve_ball(X, y, radius=label_cost / 2, label_cost=label_cost, norm=norm)
    assert ours.risk == pytest.approx(LOG2, abs=1e-12)
    assert ours.gap <= 1e-12
    assert not ours.coef.any()
    assert ours.intercept == ours.lam == 0.0
    one_class = solve_ball(X, np.ones(len(y)), radius=0.49 * label_cost, label_cost=label_cost, norm=norm)
    assert one_class.risk < LOG2 - 1e-4


@pytest.mark.parametrize("penalty", [0.02, 0.1])
def test_infinite_label_cost_is_l1_regularised_logistic_regression(penalty: float) -> None:
    X, y = draw()
    ours = solve_ball(X, y, radius=penalty, label_cost=np.inf, norm="l1", fit_intercept=False)
    lasso = LogisticRegression(
        C=1 / (penalty * len(y)), l1_ratio=1.0, solver="liblinear", fit_intercept=False, tol=1e-12, max_iter=100_000
    ).fit(X, y)
    coef = lasso.coef_[0]
    value = np.logaddexp(0, -y * (X @ coef)).mean() + penalty * np.abs(coef).sum()
    assert ours.risk == pytest.approx(value, abs=1e-7)


@pytest.mark.parametrize("norm", NORMS)
def test_infinite_label_cost_and_radius_is_the_entropy_of_the_labels(norm: str) -> None:
    X, y = draw()
    share = (y > 0).mean()
    ours = solve_ball(X, y, radius=1e3, label_cost=np.inf, norm=norm)
    assert ours.risk == pytest.approx(entr(share) + entr(1 - share), abs=1e-8)
    np.testing.assert_allclose(ours.coef, 0.0, atol=1e-8)


@pytest.mark.parametrize("norm", NORMS)
def test_one_class_alone_has_a_closed_form(norm: str) -> None:
    # θ = 0 and b = λκ: min over λ of ελ + log(1 + e^{−λκ}), the entropy of ε/κ
    X, _ = draw()
    radius, label_cost = 0.1, 0.7
    ours = solve_ball(X, np.ones(len(X)), radius=radius, label_cost=label_cost, norm=norm)
    share = radius / label_cost
    assert ours.risk == pytest.approx(entr(share) + entr(1 - share), abs=1e-8)


def test_one_class_is_not_attained_where_nothing_bounds_the_intercept() -> None:
    X, _ = draw()
    for radius, label_cost in [(0.0, 1.0), (0.0, np.inf), (0.1, np.inf)]:
        ours = solve_ball(X, -np.ones(len(X)), radius=radius, label_cost=label_cost)
        assert ours.status == "separable"
        assert 0 <= ours.risk <= 1e-8


def test_separable_data_at_radius_zero() -> None:
    X, y = HARD["separable"]
    ours = solve_ball(X, y, radius=0.0)
    assert ours.status == "separable"
    assert ours.lower == 0.0
    assert ours.risk <= 1e-8


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_partly_separable_data_at_radius_zero(shift: float) -> None:
    # rows at x = shift carry labels +, −, +: the infimum is theirs, and θ → ∞ to reach it
    X = np.array([-2.0, -1, 0, 0, 1, 2, 0])[:, None] + shift
    y = np.array([-1.0, -1, 1, -1, 1, 1, 1])
    ours = solve_ball(X, y, radius=0.0)
    assert ours.status == "separable"
    assert ours.risk == pytest.approx(3 / 7 * (entr(1 / 3) + entr(2 / 3)), abs=1e-8)
    assert ours.gap <= 1e-8
    assert np.abs(ours.coef).max() < 1e4


# certificates on grids


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", HARD)
def test_no_failure_on_a_grid_of_radii(name: str, norm: str) -> None:
    X, y = HARD[name]
    previous = 0.0
    for radius in np.concatenate([[0.0], np.logspace(-8, 3, 39)]):
        solution = solve_ball(X, y, radius=float(radius), norm=norm)
        assert solution.status in {"optimal", "separable"}, (radius, solution.gap)
        assert solution.gap <= 1e-8
        assert solution.risk >= previous - 1e-8
        previous = solution.risk
        check_certificate(solution, X, y, radius=radius, norm=norm)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("label_cost", [1e-3, 0.1, 1e3, np.inf])
@pytest.mark.parametrize("name", HARD)
def test_no_failure_over_label_costs(name: str, label_cost: float, fit_intercept: bool) -> None:
    X, y = HARD[name]
    for norm in NORMS:
        for radius in [0.0, 1e-8, 1e-4, 0.03, 1e3]:
            options = {
                "radius": radius,
                "label_cost": label_cost,
                "norm": norm,
                "fit_intercept": fit_intercept,
            }
            solution = solve_ball(X, y, **options)
            assert solution.status in {"optimal", "separable"}, (options, solution.gap)
            check_certificate(solution, X, y, **options)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("label_cost", [1e-3, 1.0, np.inf])
def test_radius_below_the_rounding_of_the_features(norm: str, label_cost: float) -> None:
    # features up to 1e9: a radius of 1e-8 is beyond double precision, the certificate must hold all the same
    X, y = HARD["heavy tails"][0] ** 3 * 1e4, HARD["heavy tails"][1]
    for radius in [0.0, 1e-8, 1e-6, 1e-4, 1.0, 1e3]:
        solution = solve_ball(X, y, radius=radius, label_cost=label_cost, norm=norm)
        assert np.isfinite([solution.risk, solution.lower, solution.lam, *solution.coef]).all()
        assert (solution.status == "max_iter") == (solution.gap > 1e-8)
        check_certificate(solution, X, y, radius=radius, label_cost=label_cost, norm=norm)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 30),
    d=st.integers(1, 12),
    radius=st.floats(-8, 1).map(lambda e: 10**e),
    label_cost=st.floats(-2, 2).map(lambda e: 10**e),
    norm=st.sampled_from(NORMS),
    fit_intercept=st.booleans(),
)
def test_certified_on_random_problems(seed, n, d, radius, label_cost, norm, fit_intercept) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).round(rng.integers(0, 3)) * 10 ** rng.uniform(-1, 1, size=d)
    y, w = rng.choice([-1.0, 1.0], size=n), rng.uniform(0.01, 1, size=n)
    options = {
        "radius": radius,
        "label_cost": label_cost,
        "norm": norm,
        "fit_intercept": fit_intercept,
        "weights": w,
    }
    solution = solve_ball(X, y, **options)
    assert solution.status == "optimal"
    check_certificate(solution, X, y, **options)


# laws


@pytest.mark.parametrize("norm", NORMS)
def test_invariant_under_permutation_and_rescaling(norm: str) -> None:
    X, y = draw()
    order = np.random.default_rng(0).permutation(len(y))
    base = solve_ball(X, y, radius=0.05, norm=norm)
    shuffled = solve_ball(X[order], y[order], radius=0.05, norm=norm)
    scaled = solve_ball(1e3 * X, y, radius=50.0, label_cost=1e3, norm=norm)
    moved = solve_ball(X + 10.0, y, radius=0.05, norm=norm)
    flipped = solve_ball(X, -y, radius=0.05, norm=norm)
    for other in (shuffled, scaled, moved, flipped):
        assert other.risk == pytest.approx(base.risk, abs=2e-8)


def test_weights_are_repetitions_and_zero_weight_removes_a_row() -> None:
    X, y = draw()
    count = np.random.default_rng(1).integers(0, 4, size=len(y))
    weighted = solve_ball(X, y, weights=count.astype(float), radius=0.05)
    repeated = solve_ball(np.repeat(X, count, axis=0), np.repeat(y, count), radius=0.05)
    assert weighted.risk == pytest.approx(repeated.risk, abs=2e-8)
    assert not weighted.p[count == 0].any()
    check_certificate(weighted, X, y, radius=0.05, weights=count)


def test_cheaper_flips_and_larger_metrics_only_help_one_side() -> None:
    X, y = draw()
    risks = [solve_ball(X, y, radius=0.05, label_cost=k).risk for k in (0.2, 1.0, 5.0, np.inf)]
    assert all(a >= b - 1e-8 for a, b in pairwise(risks))
    by_norm = [solve_ball(X, y, radius=0.05, label_cost=np.inf, norm=norm).risk for norm in ("linf", "l2", "l1")]
    assert by_norm[0] <= by_norm[1] + 1e-8 <= by_norm[2] + 2e-8


@pytest.mark.parametrize("norm", NORMS)
def test_warm_start_reaches_the_same_value(norm: str) -> None:
    X, y = draw()
    near = solve_ball(X, y, radius=0.04, norm=norm)
    cold, warm = (solve_ball(X, y, radius=0.05, norm=norm, warm_start=start) for start in (None, near))
    assert warm.status == "optimal"
    assert warm.risk == pytest.approx(cold.risk, abs=2e-8)


def test_stopping_early_is_reported_with_a_valid_certificate() -> None:
    X, y = draw()
    rough, fine = solve_ball(X, y, radius=0.05, max_iter=2), solve_ball(X, y, radius=0.05)
    assert rough.status == "max_iter"
    assert rough.gap > 1e-8
    assert rough.lower <= fine.risk <= rough.risk
    check_certificate(rough, X, y, radius=0.05)


# the worst case of a fixed classifier


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("label_cost", [0.3, 1.0, 4.0])
def test_worst_case_against_a_scalar_search_and_a_linear_programme(norm: str, label_cost: float) -> None:
    X, y = draw(2)
    rng = np.random.default_rng(3)
    w, coef = rng.uniform(0.1, 1, size=len(y)), rng.normal(size=X.shape[1]) * 0.5
    w = w / w.sum()
    radii = np.array([0.0, 1e-3, 0.02, 0.1, 0.5, 3.0])
    values = ball_worst_case(X, y, coef, 0.2, weights=w, radii=radii, label_cost=label_cost, norm=norm)
    z = y * (X @ coef + 0.2)
    size, loss = np.linalg.norm(coef, ORDER[norm]), w @ np.logaddexp(0, -z)
    for radius, value in zip(radii, values, strict=True):

        def objective(lam: float, eps: float = radius) -> float:
            return float(eps * lam + w @ np.maximum(z - lam * label_cost, 0.0))

        top = max(size, z.max() / label_cost) + 1.0
        found = minimize_scalar(objective, bounds=(size, top), method="bounded", options={"xatol": 1e-12})
        assert value <= loss + found.fun + 1e-12
        # (λ, u) ≥ 0 with u_i ≥ z_i − λκ
        rows = np.hstack([np.full((len(z), 1), -label_cost), -np.eye(len(z))])
        bounds = [(size, None)] + [(0, None)] * len(z)
        exact = linprog(np.append(radius, w), A_ub=rows, b_ub=-z, bounds=bounds)
        assert value == pytest.approx(loss + exact.fun, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 40), norm=st.sampled_from(NORMS), tied=st.booleans())
def test_worst_case_is_monotone_concave_and_equal_to_the_upper_bound(seed, n, norm, tied) -> None:
    rng = np.random.default_rng(seed)
    X, y, coef = rng.normal(size=(n, 3)), rng.choice([-1.0, 1.0], size=n), rng.normal(size=3)
    if tied:
        X, coef = X.round(), coef.round()
    radii = np.linspace(0, 1.5, 31)
    values = ball_worst_case(X, y, coef, 0.1, radii=radii, label_cost=0.8, norm=norm)
    assert (np.diff(values) >= -1e-12).all()
    assert (np.diff(values, 2) <= 1e-12).all()
    upper = [ball_upper_bound(X, y, coef, 0.1, radius=r, label_cost=0.8, norm=norm)[0] for r in radii]
    np.testing.assert_allclose(values, upper, atol=1e-12)
    assert ball_worst_case(X, y, coef, 0.1, radii=0.0, norm=norm) == pytest.approx(
        np.logaddexp(0, -y * (X @ coef + 0.1)).mean(), abs=1e-12
    )


def test_infinite_label_cost_adds_radius_times_norm() -> None:
    X, y = draw()
    coef = np.arange(5.0)
    values = ball_worst_case(X, y, coef, 0.0, radii=[0.0, 0.5], label_cost=np.inf, norm="l1")
    np.testing.assert_allclose(values, np.logaddexp(0, -y * (X @ coef)).mean() + np.array([0.0, 5.0]))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), norm=st.sampled_from(NORMS), fit_intercept=st.booleans())
def test_every_dual_point_bounds_every_classifier_from_below(seed, norm, fit_intercept) -> None:
    rng = np.random.default_rng(seed)
    n, radius = int(rng.integers(1, 25)), float(10 ** rng.uniform(-3, 1))
    X, y = rng.normal(size=(n, 3)), rng.choice([-1.0, 1.0], size=n)
    p, s = rng.uniform(-0.2, 1.2, size=n), rng.uniform(-0.2, 0.6, size=n)
    lower, p, s = ball_lower_bound(X, y, p, s, radius=radius, norm=norm, fit_intercept=fit_intercept)
    again = ball_lower_bound(X, y, p, s, radius=radius, norm=norm, fit_intercept=fit_intercept)[0]
    assert again == pytest.approx(lower, abs=1e-12)
    for size in (0.0, 0.3, 3.0):
        b = float(rng.normal()) if fit_intercept else 0.0
        upper, _ = ball_upper_bound(X, y, size * rng.normal(size=3), b, radius=radius, norm=norm)
        assert lower <= upper + 1e-12


# invalid input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"radius": -0.1}, "radius"),
        ({"radius": np.inf}, "radius"),
        ({"label_cost": 0.0}, "label_cost"),
        ({"label_cost": np.nan}, "label_cost"),
        ({"norm": "l3"}, ("norm", "'l3'")),
        ({"weights": np.zeros(60)}, "weights"),
        ({"weights": np.ones(3)}, "weights"),
        ({"X": np.full((60, 5), np.nan)}, "X"),
        ({"y_sign": np.zeros(60)}, "y_sign"),
        ({"y_sign": np.ones(3)}, "X"),
        ({"X": np.empty((60, 0))}, "X"),
        ({"tol": 0.0}, ("tol", 0.0)),
    ],
)
def test_invalid_input_names_the_rule(change: dict, message: Refused) -> None:
    X, y = draw()
    arguments = {"X": X, "y_sign": y, "radius": 0.1} | change
    with refuses(message):
        solve_ball(arguments.pop("X"), arguments.pop("y_sign"), **arguments)
