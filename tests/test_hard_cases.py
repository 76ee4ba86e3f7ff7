"""Hard cases: each keeps its guarantee, two finite bounds, a gap within tolerance and a feasible adversary.

Both bounds are checked against a linear program over all plans at the coefficients returned: nothing is taken on trust.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import ot
import pytest
from numpy.typing import NDArray
from scipy.special import entr
from sklearn.exceptions import ConvergenceWarning

import surefoot as sf
from reference.inner import inner_reference
from refusals import warns
from surefoot.dual.adversary import FEASIBILITY, LabelTable, allowance, feasible_adversary, meet
from surefoot.dual.bounds import dual_value
from surefoot.dual.models import DualPoint, FeatureBlock, LinearModel, standard_coordinates
from surefoot.problem.sets import DecisionSet, build_decision_set
from surefoot.solvers.minimal_radius import solve_minimal_radius

Array = NDArray[np.float64]
TOL = 1e-6
SOLVED = {"optimal", "separable"}


@dataclass(frozen=True)
class Case:
    """Labeled rows, unlabeled rows and the parameters of the estimator, all but its radius."""

    X: Array
    y: NDArray[np.intp]
    U: Array | None = None
    weights: Array | None = None
    prior: Array | str | None = "clopper-pearson"
    label_cost: float | Array = 1.0
    classes: NDArray[np.intp] | None = None

    @property
    def rows(self) -> Array:
        return self.X if self.U is None else np.vstack([self.X, self.U])

    @property
    def n_classes(self) -> int:
        return len(np.unique(self.y if self.classes is None else self.classes))

    def decision_set(self) -> DecisionSet:
        return build_decision_set(
            self.X, self.y, self.n_classes, X_unlabeled=self.U, sample_weight=self.weights, label_prior=self.prior,
            label_cost=self.label_cost,
        )  # fmt: skip

    def minimal_radius(self) -> float:
        return sf.minimal_radius(
            self.X, self.y, X_unlabeled=self.U, sample_weight=self.weights, label_prior=self.prior,
            label_cost=self.label_cost, classes=self.classes,
        )  # fmt: skip

    def fit(self, radius: float, tol: float) -> tuple[sf.RobustLogisticRegression, list[warnings.WarningMessage]]:
        clf = sf.RobustLogisticRegression(
            radius=radius, label_prior=self.prior, label_cost=self.label_cost, tol=tol, classes=self.classes
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            warnings.simplefilter("ignore", sf.UnlabeledRowsWarning)
            clf.fit(self.X, self.y, self.weights, X_unlabeled=self.U)
        return clf, [w for w in caught if issubclass(w.category, ConvergenceWarning)]


def solve(
    case: Case, *, excess: float = 0.0, radius: float | None = None, tol: float = TOL, statuses: set[str] = SOLVED
) -> sf.RobustLogisticRegression:
    """Fit, and check all that is guaranteed of every fit; `statuses` are those that this case may end with."""
    radius = case.minimal_radius() + excess if radius is None else radius
    clf, caught = case.fit(radius, tol)
    certificate = clf.certificate_
    assert np.isfinite([certificate.risk, certificate.lower]).all()
    assert np.isfinite(clf.coef_).all()
    assert np.isfinite(clf.intercept_).all()
    assert certificate.lower <= certificate.risk
    assert certificate.risk >= 0
    assert certificate.status in statuses
    assert bool(caught) == (certificate.status != "optimal")
    if certificate.status != "stopped":
        assert certificate.gap <= tol
    check_adversary(case, clf, radius)
    check_against_the_linear_program(case, clf, radius, tol)
    return clf


def check_adversary(case: Case, clf: sf.RobustLogisticRegression, radius: float) -> None:
    """Feasible by POT on the plain cost of all labeled rows: no merged anchors, no code of the package."""
    worst = clf.worst_case_
    assert worst.label_proba.shape == (len(case.rows), case.n_classes)
    assert worst.label_proba.min() >= 0
    np.testing.assert_allclose(worst.label_proba.sum(axis=1), 1.0, atol=1e-12)
    p, intervals = worst.label_probabilities, clf.certificate_.label_intervals
    assert np.all(p >= intervals[:, 0] - 1e-9)
    assert np.all(p <= intervals[:, 1] + 1e-9)
    w = np.ones(len(case.X)) if case.weights is None else case.weights
    codes = np.searchsorted(clf.classes_, case.y)
    kappa = np.asarray(case.label_cost) * (1 - np.eye(case.n_classes))
    distances = np.linalg.norm(case.rows[:, None] - case.X, axis=2)
    costs = (distances[:, None, :] + kappa[:, codes]).reshape(-1, len(case.X))
    mass = (worst.row_weights[:, None] * worst.label_proba).ravel()
    found = ot.emd2(mass / mass.sum(), w / w.sum(), costs, numItermax=5_000_000)
    assert found <= radius * (1 + 1e-6) + 1e-15 * costs.max()


def check_against_the_linear_program(case: Case, clf: sf.RobustLogisticRegression, radius: float, tol: float) -> None:
    """The worst loss of the returned coefficients is at most risk; in a set 1e-6 wider it is at least lower."""
    ds = case.decision_set()
    losses = -clf.predict_log_proba(case.rows)
    arguments = ds.distances, ds.row_weights, ds.anchor_weights, ds.anchor_labels, ds.label_cost, ds.intervals
    # the radius is brought to one: HiGHS has absolute tolerances
    unit = radius if radius > 0 else max(float(ds.distances.max()), float(ds.label_cost.max()))
    scaled = arguments[0] / unit, *arguments[1:4], arguments[4] / unit, arguments[5]
    least = solve_minimal_radius(ds).value
    # at the minimal radius HiGHS is given room for rounding errors; elsewhere 1e-12 of the radius can be worth 1e-6
    inside = inner_reference(losses, *scaled, max(radius, least * (1 + 1e-12)) / unit)["value"]
    wider = inner_reference(losses, *scaled, max(radius, least) * (1 + 1e-6) / unit)["value"]
    assert clf.certificate_.risk >= inside - 1e-7
    assert clf.certificate_.lower <= wider + 1e-7
    if clf.certificate_.status == "optimal":
        assert clf.certificate_.risk <= wider + tol + 1e-7


def draw(K: int = 2, *, N: int = 60, n: int = 12, d: int = 2, seed: int = 0) -> tuple[Case, Array]:
    """A case without constraint on labels, and the true label probabilities of its rows."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(n) % K, rng.integers(K, size=N - n)])
    X = 0.8 * rng.normal(size=(N, d)) + np.eye(K, d)[labels]
    return Case(X[:n], labels[:n], X[n:], prior=None), np.bincount(labels, minlength=K) / N


def with_prior(case: Case, p: Array, name: str) -> Case:
    frequencies = np.bincount(case.y, minlength=case.n_classes) / len(case.y)
    priors = {
        "exact": p, "frequencies": frequencies, "intervals": np.column_stack([0.8 * p, np.minimum(1.2 * p, 1.0)]),
        "none": None,
    }  # fmt: skip
    return replace(case, prior=priors.get(name, name))


PRIORS = ["exact", "frequencies", "intervals", "clopper-pearson", "none"]
both = pytest.mark.parametrize("K", [2, 3])


@pytest.mark.parametrize("prior", PRIORS)
@both
def test_radius_exactly_minimal(K: int, prior: str) -> None:
    solve(with_prior(*draw(K), prior), excess=0.0)


@pytest.mark.parametrize("prior", PRIORS)
@both
def test_radius_a_millionth_above_the_minimal_one(K: int, prior: str) -> None:
    case = with_prior(*draw(K, seed=1), prior)
    solve(case, radius=case.minimal_radius() * (1 + 1e-6), tol=1e-4)


@pytest.mark.parametrize("prior", PRIORS)
@both
def test_radius_with_the_margin_of_the_paper(K: int, prior: str) -> None:
    solve(with_prior(*draw(K, seed=2), prior), excess=1e-3)


@pytest.mark.parametrize("prior", PRIORS)
@both
def test_default_tolerance_at_the_margin_of_the_paper(K: int, prior: str) -> None:
    solve(with_prior(*draw(K, N=100, n=30, d=3), prior), excess=1e-3, tol=1e-4)


@pytest.mark.parametrize("radius", [50.0, 1e3, 1e6])
@both
def test_at_a_vast_radius_an_exact_prior_is_the_answer(K: int, radius: float) -> None:
    case, p = draw(K)
    clf = solve(replace(case, prior=p), radius=radius)
    assert clf.certificate_.risk == pytest.approx(entr(p).sum(), abs=TOL)
    np.testing.assert_allclose(clf.coef_, 0.0, atol=1e-3)
    odds = np.log(p[1:] / p[0])
    intercept = clf.intercept_ if K == 2 else clf.intercept_[1:] - clf.intercept_[0]
    np.testing.assert_allclose(intercept, odds, atol=5e-3)


@pytest.mark.parametrize("radius", [50.0, 1e6])
@both
def test_at_a_vast_radius_without_prior_nothing_beats_a_guess(K: int, radius: float) -> None:
    case, _ = draw(K)
    clf = solve(case, radius=radius)
    assert clf.certificate_.risk == pytest.approx(np.log(K), abs=TOL)
    np.testing.assert_allclose(clf.predict_proba(case.rows), 1 / K, atol=2e-3)


def test_at_a_vast_radius_intervals_give_their_largest_entropy() -> None:
    case, _ = draw(2)
    clf = solve(replace(case, prior=np.array([[0.6, 0.9], [0.1, 0.4]])), radius=100.0)
    assert clf.certificate_.risk == pytest.approx(entr([0.6, 0.4]).sum(), abs=TOL)


@pytest.mark.parametrize("excess", [0.0, 1e-3, 0.1, 3.0])
@pytest.mark.parametrize("p", [(0.0, 1.0), (1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.5, 0.5, 0.0)], ids=str)
def test_exact_priors_at_the_boundary(p: tuple[float, ...], excess: float) -> None:
    case, _ = draw(len(p))
    clf = solve(replace(case, prior=np.array(p)), excess=excess)
    if max(p) == 1.0:  # one label is certain: the loss is as small as one likes
        assert clf.certificate_.risk <= 2 * TOL


@both
def test_intervals_that_touch_zero_and_one(K: int) -> None:
    case, _ = draw(K)
    bounds = np.zeros((K, 2))
    bounds[:2] = [[0.0, 0.3], [0.7, 1.0]]
    solve(replace(case, prior=bounds), excess=0.05)


@pytest.mark.parametrize("tol", [1e-4, 1e-6])
@pytest.mark.parametrize("prior", ["frequencies", "none"])
@both
def test_separable_worst_case_says_so_and_keeps_a_valid_bound(K: int, prior: str, tol: float) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(12) % K
    case = Case(rng.normal(size=(12, 2)) + 20 * np.eye(K, 2)[y], y)
    clf = solve(with_prior(case, np.full(K, 1 / K), prior), radius=0.0, tol=tol, statuses={"separable"})
    assert 0 <= clf.certificate_.risk <= tol
    assert np.array_equal(clf.predict(case.X), y)


@both
def test_nearly_separable_worst_case_has_a_finite_optimum(K: int) -> None:
    rng = np.random.default_rng(1)
    y = np.arange(12) % K
    case = Case(rng.normal(size=(12, 2)) + 20 * np.eye(K, 2)[y], y, prior=None)
    clf = solve(case, radius=1e-3, statuses={"optimal"})
    assert 0 < clf.certificate_.risk < 0.05


@pytest.mark.parametrize("prior", ["frequencies", "none", "clopper-pearson"])
@both
def test_all_rows_labeled(K: int, prior: str) -> None:
    case, p = draw(K, N=30, n=29)
    case = with_prior(replace(case, U=None), p, prior)
    none, some = solve(case, radius=0.0), solve(case, radius=0.1)
    assert none.certificate_.risk < some.certificate_.risk


@both
def test_duplicate_rows(K: int) -> None:
    case, p = draw(K)
    case = replace(case, prior=p)
    base = solve(case, excess=0.05)
    labeled = replace(case, X=np.repeat(case.X, 3, axis=0), y=np.repeat(case.y, 3))
    solve(labeled, excess=0.05)
    weighted = solve(replace(case, weights=np.full(len(case.X), 3.0)), excess=0.05)
    assert weighted.certificate_.risk == pytest.approx(solve(labeled, excess=0.05).certificate_.risk, abs=2 * TOL)
    whole = replace(labeled, U=np.repeat(case.U, 3, axis=0))
    assert solve(whole, excess=0.05).certificate_.risk == pytest.approx(base.certificate_.risk, abs=2 * TOL)


@both
def test_equal_rows_with_different_labels(K: int) -> None:
    case, _ = draw(K)
    contradictory = replace(case, X=np.vstack([case.X, case.X]), y=np.append(case.y, (case.y + 1) % K))
    solve(contradictory, excess=0.01)
    solve(contradictory, excess=0.0)


@pytest.mark.parametrize("excess", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("prior", ["uniform", "clopper-pearson", "none"])
@both
def test_one_labeled_row(K: int, prior: str, excess: float) -> None:
    case, _ = draw(K)
    given = {"uniform": np.full(K, 1 / K), "none": None}.get(prior, prior)
    case = replace(case, X=case.X[:1], y=case.y[:1], prior=given, classes=np.arange(K))
    clf = solve(case, excess=excess)
    if prior == "none":
        # all rows come from one anchor at a known cost: what is left of the radius, ε − W_d, flips labels at κ = 1 each
        t = min(excess, 1 - 1 / K)
        flipped = entr([1 - t, *np.full(K - 1, t / (K - 1))]).sum()
        assert clf.certificate_.risk == pytest.approx(flipped, abs=2 * TOL)


@both
def test_one_row_in_all(K: int) -> None:
    case = Case(np.array([[1.0, 2.0]]), np.array([0]), prior=None, classes=np.arange(K))
    clf = solve(case, radius=0.1)
    assert clf.certificate_.risk == pytest.approx(entr([0.9, *np.full(K - 1, 0.1 / (K - 1))]).sum(), abs=TOL)


@pytest.mark.parametrize("excess", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("prior", ["exact", "clopper-pearson", "none"])
@both
def test_a_class_that_no_label_shows_yet(K: int, prior: str, excess: float) -> None:
    case, p = draw(K)
    shown = case.y > 0
    case = with_prior(case, p, prior)
    clf = solve(replace(case, X=case.X[shown], y=case.y[shown], classes=np.arange(K)), excess=excess)
    assert clf.predict_proba(case.rows).shape == (len(case.rows), K)


@both
def test_constant_features(K: int) -> None:
    case, _ = draw(K)
    base = solve(case, excess=0.05)
    with_constant = replace(
        case, X=np.insert(case.X, 1, 7.0, axis=1), U=np.insert(case.U, 1, 7.0, axis=1)
    )  # fmt: skip
    clf = solve(with_constant, excess=0.05)
    assert clf.certificate_.risk == pytest.approx(base.certificate_.risk, abs=2 * TOL)
    assert np.all(clf.coef_[:, 1] == 0)


@both
def test_only_constant_features(K: int) -> None:
    y = np.arange(12) % K
    case = Case(np.full((12, 2), 3.0), y, np.full((20, 2), 3.0), prior=None)
    assert case.minimal_radius() == 0
    clf = solve(case, radius=0.0)
    assert clf.certificate_.risk == pytest.approx(entr(np.bincount(y) / 12).sum(), abs=TOL)


@pytest.mark.parametrize("unit", [1e6, 1e-6])
@both
def test_features_and_label_cost_in_other_units(K: int, unit: float) -> None:
    case, p = draw(K)
    for name in ("exact", "clopper-pearson", "none"):
        here = with_prior(case, p, name)
        there = replace(here, X=unit * here.X, U=unit * here.U, label_cost=unit)
        base, scaled = solve(here, excess=0.05), solve(there, excess=0.05 * unit)
        assert scaled.certificate_.risk == pytest.approx(base.certificate_.risk, abs=1e-6)


@pytest.mark.parametrize("share", [0.01, 0.1])
@pytest.mark.parametrize("unit", [1e6, 1e-6])
@both
def test_features_in_other_units_than_the_label_cost(K: int, unit: float, share: float) -> None:
    case, _ = draw(K)
    scaled = replace(case, X=unit * case.X, U=unit * case.U)
    solve(scaled, excess=share * scaled.minimal_radius(), tol=1e-4)


@pytest.mark.parametrize("unit", [1e6, 1e-6])
@both
def test_one_feature_in_another_unit(K: int, unit: float) -> None:
    case, _ = draw(K, d=3)
    units = np.array([1.0, unit, 1.0])
    scaled = replace(case, X=units * case.X, U=units * case.U)
    solve(scaled, excess=0.05 * scaled.minimal_radius())


@both
def test_a_radius_that_only_differs_in_the_eighth_digit_is_still_bounded_truly(K: int) -> None:
    # κ = 1 beside distances of 1e6: an excess of 1e-7 of the radius. The gap may stay open, both bounds must hold.
    case, _ = draw(K)
    scaled = replace(case, X=1e6 * case.X, U=1e6 * case.U)
    solve(scaled, excess=0.05, statuses=SOLVED | {"stopped"})


@pytest.mark.parametrize("excess", [0.0, 0.05, 0.5])
@both
def test_more_features_than_rows(K: int, excess: float) -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(25, 60)), np.arange(10) % K
    solve(Case(X[:10], y, X[10:]), excess=excess)


@pytest.mark.parametrize("fit_intercept", [True, False])
@both
def test_more_features_than_rows_are_worked_on_in_the_span_of_the_rows(K: int, fit_intercept: bool) -> None:
    """Rotated into the span of the rows, fewer features give the same optimum: the penalty is the same in any basis."""
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(25, 60)) * 10.0 ** rng.uniform(-1, 1, size=60) + 3.0
    rows[:, 7] = 2.0
    centre = rows.mean(axis=0) if fit_intercept else np.zeros(60)
    turned = np.linalg.svd(rows - centre, full_matrices=False)[2][: 24 if fit_intercept else 25].T
    y, parameters = np.arange(10) % K, {"l2": 0.3, "label_cost": 8.0, "fit_intercept": fit_intercept, "tol": 1e-8}
    radius = sf.minimal_radius(rows[:10], y, X_unlabeled=rows[10:], label_cost=8.0) + 0.05
    wide, few = (
        sf.RobustLogisticRegression(radius=radius, **parameters).fit(some[:10], y, X_unlabeled=some[10:])
        for some in (rows, (rows - centre) @ turned)
    )
    assert wide.certificate_.risk == pytest.approx(few.certificate_.risk, abs=2e-8)
    np.testing.assert_allclose(wide.coef_, few.coef_ @ turned.T, atol=1e-4)
    assert np.abs(few.coef_).max() > 0.01
    found = standard_coordinates(FeatureBlock(rows, np.full(25, 0.04)), 0.3, fit_intercept)
    assert found.design(rows).shape == (25, 25)
    at = rng.normal(size=(1, 25))
    penalty = float(found.penalty(0.3) @ at[0] ** 2)
    assert penalty == pytest.approx(0.3 * np.square(found.coefficients(at)[0]).sum(), rel=1e-10)


@pytest.mark.parametrize("excess", [0.0, 0.05])
@both
def test_collinear_features(K: int, excess: float) -> None:
    case, _ = draw(K)

    def widen(X: Array) -> Array:
        return np.column_stack([X, 2 * X[:, 0] - X[:, 1], X[:, 0]])

    solve(replace(case, X=widen(case.X), U=widen(case.U)), excess=excess)


@pytest.mark.parametrize("excess", [0.0, 0.01, 0.1])
@both
def test_a_prior_far_from_the_labeled_frequencies(K: int, excess: float) -> None:
    case, _ = draw(K)
    far = np.append(np.full(K - 1, 0.03 / (K - 1)), 0.97)
    clf = solve(replace(case, prior=far), excess=excess)
    assert clf.certificate_.risk <= entr(far).sum() + TOL


@pytest.mark.parametrize("excess", [0.0, 0.05])
@both
def test_very_unbalanced_weights(K: int, excess: float) -> None:
    case, p = draw(K)
    weights = 10.0 ** np.random.default_rng(4).uniform(-6, 3, size=len(case.X))
    # at the minimal radius the gap reached changes with the last bit of that radius: 4e-8 to 5e-6
    tol = TOL if excess else 1e-5
    for name in ("exact", "clopper-pearson", "none"):
        solve(replace(with_prior(case, p, name), weights=weights), excess=excess, tol=tol)


@pytest.mark.parametrize("excess", [0.0, 0.05])
@both
def test_rows_of_zero_weight_count_nowhere(K: int, excess: float) -> None:
    case, p = draw(K, n=15)
    weights = np.ones(len(case.X))
    weights[::4] = 0.0
    kept = weights > 0
    weighted = solve(replace(case, prior=p, weights=weights), excess=excess)
    without = solve(replace(case, prior=p, X=case.X[kept], y=case.y[kept]), excess=excess)
    assert weighted.certificate_.risk == pytest.approx(without.certificate_.risk, abs=3 * TOL)


def test_a_class_of_zero_weight_is_a_class_that_no_label_shows() -> None:
    case, _ = draw(3)
    solve(replace(case, weights=np.where(case.y == 1, 0.0, 1.0)), excess=0.05)


def test_repair_of_labels_stands_rounding_of_their_sum() -> None:
    # exact probabilities leave no room: what rounding puts beyond them must not become 0 / 0
    case, p = draw(2)
    ds = replace(case, prior=p).decision_set()
    nearest = solve_minimal_radius(ds).adversary
    for factor in (1 - 1e-15, 1 + 1e-15):
        wanted = LabelTable(np.tile(p, (len(case.rows), 1)) * factor, 10.0)
        repaired = feasible_adversary(ds.with_radius(20.0), wanted, wanted.label_probabilities(ds), nearest)
        assert np.isfinite(repaired.label_proba).all()
        np.testing.assert_allclose(repaired.label_probabilities(ds), p, atol=1e-12)


@pytest.mark.parametrize("shift", [1e9 / 7, -1e9 / 7])
@both
def test_the_upper_bound_survives_a_constant_in_the_multipliers(K: int, shift: float) -> None:
    # β + c is the same bound for every c: its value must not fall below the truth by the rounding of c
    case, p = draw(K, seed=5)
    ds = replace(case, prior=p).decision_set().with_radius(50.0)
    model = LinearModel(np.column_stack([case.rows, np.ones(len(case.rows))]), np.zeros(3), K)
    point = DualPoint(np.zeros(model.shape), 0.0, np.zeros(K), np.zeros(len(case.X)))
    point.theta[:, -1] = np.log(p[1:] / p[0])
    point.lam[1:] = -np.log(p[1:] / p[0])
    value = dual_value(ds, model, point)
    assert value == pytest.approx(entr(p).sum(), abs=1e-12)
    moved = dual_value(ds, model, replace(point, beta=point.beta + shift))
    assert moved == pytest.approx(value, abs=1e-9)
    assert moved >= value - 1e-12


@pytest.mark.parametrize("prior", [(0.5, 0.5), None], ids=str)
def test_rows_far_away_do_not_lend_the_adversary_a_budget(prior: tuple[float, float] | None) -> None:
    # the minimal radius is 333,333: a share of 2.5e-7 of it would pay for 0.08 of the labels, at κ = 1. At this radius
    # each row has the label of the nearer anchor, so that some classifier has no loss at all.
    X, y, U = np.array([[0.0], [1.0]]), np.array([0, 1]), np.array([[0.0], [1.0], [-1e6], [1e6 + 1]])
    case = Case(X, y, U, prior=None if prior is None else np.array(prior))
    radius = case.minimal_radius()
    clf, caught = case.fit(radius, 1e-4)
    certificate = clf.certificate_
    # float64 tells radii apart to 6e-11 here, and a label changed at a row a million away costs a million
    assert 0 <= certificate.lower <= 0.02
    assert clf.worst_case_.transport_cost - radius <= 2e-9
    assert certificate.status != "optimal" or certificate.risk <= 0.02
    assert bool(caught) == (certificate.status != "optimal")
    losses = np.array([[0.0, 1.0], [1.0, 0.0]] * 3)
    fixed = sf.certify(None, X, y, X_unlabeled=U, losses=losses, radius=radius, label_prior=prior)
    assert fixed.lower <= 1e-8


def test_the_allowance_is_a_share_of_the_minimal_radius_unless_rows_are_far_away() -> None:
    case, _ = draw(2)
    near, far = case.decision_set(), replace(case, U=np.vstack([case.U, [[1e7, 0.0]]])).decision_set()
    value, large = solve_minimal_radius(near).value, solve_minimal_radius(far).value
    assert large > 1e5
    assert allowance(near, value) == pytest.approx(FEASIBILITY * value)
    assert allowance(far, large) <= 1e-14 * large
    cheap = replace(near, label_cost=1e-3 * near.label_cost)
    assert allowance(cheap, value) == pytest.approx(1e-3 * FEASIBILITY)


def test_bounds_that_cross_by_more_than_rounding_are_reported() -> None:
    assert meet(0.5, 0.4) == 0.4
    assert meet(0.5, 0.5 + 1e-8) == 0.5
    with warns("crossed_bounds", ConvergenceWarning, risk=0.5):
        assert meet(0.5, 0.501) == 0.5


def synthetic(N: int, n: int, d: int, K: int, seed: int) -> tuple[Case, Array]:
    """Rows standardised and divided by their largest entry, as in the experiments of the paper."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(n) % K, rng.choice(K, size=N - n, p=(np.arange(K) + 1) / (K * (K + 1) / 2))])
    centres = rng.normal(size=(K, d)) * (2.0 / np.sqrt(d))
    X = rng.normal(size=(N, d)) @ (np.eye(d) + 0.5 * rng.normal(size=(d, d)) / np.sqrt(d)) + centres[labels]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X /= np.abs(X).max()
    return Case(X[:n], labels[:n], X[n:]), np.bincount(labels, minlength=K) / N


def solve_large(case: Case, radius: float) -> None:
    clf, caught = case.fit(radius, 1e-4)
    assert clf.certificate_.status in SOLVED
    assert bool(caught) == (clf.certificate_.status != "optimal")
    assert 0 <= clf.certificate_.lower <= clf.certificate_.risk
    assert clf.certificate_.gap <= 1e-4
    assert clf.worst_case_.transport_cost <= radius * (1 + 1e-6)


LARGE = {"magic": (13_376, 100, 10, 2), "isolet": (1_500, 60, 617, 2), "thousand-labels": (13_376, 1_000, 10, 2)}


@pytest.mark.slow
@pytest.mark.parametrize("excess", [1e-3, 0.01])
@pytest.mark.parametrize("prior", ["exact", "clopper-pearson"])
@pytest.mark.parametrize("shape", LARGE)
def test_large_problems_at_the_default_tolerance(shape: str, prior: str, excess: float) -> None:
    case = with_prior(*synthetic(*LARGE[shape], seed=0), prior)
    solve_large(case, case.minimal_radius() + excess)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["magic", "isolet"])
def test_large_problems_at_the_minimal_radius(shape: str) -> None:
    case, _ = synthetic(*LARGE[shape], seed=1)
    clf, _ = case.fit(case.minimal_radius(), 1e-4)
    assert clf.certificate_.gap <= 1e-4
    check_adversary(case, clf, clf.radius_)


@pytest.mark.slow
def test_three_classes_of_letters_size() -> None:
    case, p = synthetic(5_000, 90, 30, 3, seed=2)
    solve_large(replace(case, prior=p), replace(case, prior=p).minimal_radius() + 5e-3)
