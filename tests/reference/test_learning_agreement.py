"""The exact solver against an independent conic program (cvxpy + Clarabel): learning to 1e-6 in all its variants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp

import surefoot as sf
from reference.inner import inner_reference
from reference.learning import LearningReference, learn_reference
from surefoot.dual.models import LinearModel
from surefoot.problem.sets import DecisionSet, build_decision_set
from surefoot.solvers.search.solution import Solution, solve_certified, solve_minimal_radius

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate:UserWarning")

Array = NDArray[np.float64]
PRIORS = ["exact", "intervals", "clopper-pearson", "none"]


@dataclass(frozen=True)
class Sample:
    """Labeled rows (every class among them), unlabeled rows, and what is told to the learner."""

    X: Array
    y: NDArray[np.intp]
    U: Array
    weights: Array | None
    prior: Array | str | None
    label_cost: float | Array

    @property
    def rows(self) -> Array:
        return np.vstack([self.X, self.U])

    @property
    def n_classes(self) -> int:
        return int(self.y.max()) + 1

    def decision_set(self, excess: float) -> DecisionSet:
        ds = build_decision_set(
            self.X, self.y, self.n_classes, X_unlabeled=self.U, sample_weight=self.weights,
            label_prior=self.prior, label_cost=self.label_cost,
        )  # fmt: skip
        return ds.with_radius(solve_minimal_radius(ds).value + excess)


def draw(
    K: int, prior: str, cost: str, *, weighted: bool, N: int = 32, n: int = 8, d: int = 2, seed: int = 0
) -> Sample:
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(n) % K, rng.integers(K, size=N - n)])
    X = 0.6 * rng.normal(size=(N, d)) + 0.8 * np.eye(K, d)[labels]
    p = np.bincount(labels, minlength=K) / N
    matrix = rng.uniform(0.4, 1.4, size=(K, K)) * (1 - np.eye(K))
    weights = rng.uniform(0.2, 2.0, size=n)
    priors = {"exact": p, "intervals": np.column_stack([0.8 * p, np.minimum(1.2 * p, 1.0)]), "none": None}
    return Sample(
        X[:n], labels[:n], X[n:], weights if weighted else None, priors.get(prior, prior),
        matrix if cost == "matrix" else 0.7,
    )  # fmt: skip


def linear_model(rows: Array, K: int, l2: float) -> LinearModel:
    penalty = np.append(np.full(rows.shape[1], l2), 0.0)
    return LinearModel(np.column_stack([rows, np.ones(len(rows))]), penalty, K)


def reference_arguments(ds: DecisionSet) -> tuple[Array, Array, Array, NDArray[np.intp], Array, Array, float]:
    return (
        ds.distances, ds.row_weights, ds.anchor_weights, ds.anchor_labels, ds.label_cost, ds.intervals, ds.radius
    )  # fmt: skip


def conic_optimum(ds: DecisionSet, rows: Array, l2: float) -> LearningReference:
    """Clarabel's optimum at the tightest of three tolerances that it reaches, 1e-8 at worst.

    The last bit of a radius may stop it at all of them: it is then moved by 1e-13, and the value by far less than 1e-9.
    """
    attempts = [(ds.radius * (1.0 + shift), tolerance) for shift in (0.0, 1e-13) for tolerance in (1e-10, 1e-9, 1e-8)]
    for radius, tolerance in attempts:
        try:
            return learn_reference(
                *reference_arguments(ds.with_radius(radius)), rows, l2, n_classes=ds.n_classes, tolerance=tolerance
            )  # fmt: skip
        except RuntimeError:
            continue
    raise RuntimeError(f"Clarabel found no optimum near radius {ds.radius!r} to 1e-8")


def assert_agrees(solution: Solution, value: float) -> None:
    assert solution.risk == pytest.approx(value, abs=1e-6)
    assert solution.lower == pytest.approx(value, abs=1e-6)
    assert solution.lower <= value + 1e-7
    assert solution.risk >= value - 1e-7
    assert solution.gap <= 1e-6


@pytest.mark.parametrize("l2", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("cost", ["scalar", "matrix"])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("K", [2, 3])
def test_risk_and_lower_bound_are_the_conic_optimum(K: int, prior: str, cost: str, weighted: bool, l2: float) -> None:
    sample = draw(K, prior, cost, weighted=weighted, seed=K)
    ds = sample.decision_set(0.04)
    solution = solve_certified(ds, linear_model(sample.rows, K, l2), tol=1e-8)
    assert_agrees(solution, conic_optimum(ds, sample.rows, l2)["value"])


@pytest.mark.parametrize("excess", [1e-3, 0.01, 0.3])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("K", [2, 3])
def test_agreement_from_a_tight_radius_to_a_wide_one(K: int, prior: str, excess: float) -> None:
    sample = draw(K, prior, "scalar", weighted=False, N=40, n=10, d=3, seed=10 + K)
    ds = sample.decision_set(excess)
    solution = solve_certified(ds, linear_model(sample.rows, K, 0.0), tol=1e-8)
    assert_agrees(solution, conic_optimum(ds, sample.rows, 0.0)["value"])


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("K", [2, 3])
def test_tolerance_of_eight_digits_is_reached(K: int, prior: str) -> None:
    sample = draw(K, prior, "matrix", weighted=True, seed=20 + K)
    solution = solve_certified(sample.decision_set(0.1), linear_model(sample.rows, K, 0.0), tol=1e-8)
    assert solution.status == "optimal"
    assert solution.gap <= 1e-8


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("K", [2, 3])
def test_the_estimator_certifies_the_conic_optimum(K: int, prior: str) -> None:
    sample = draw(K, prior, "matrix", weighted=True, seed=30 + K)
    ds = sample.decision_set(0.05)
    clf = sf.RobustLogisticRegression(
        radius=ds.radius, label_prior=sample.prior, label_cost=sample.label_cost, tol=1e-7
    ).fit(sample.X, sample.y, sample.weights, X_unlabeled=sample.U)
    value = conic_optimum(ds, sample.rows, 0.0)["value"]
    assert clf.certificate_.risk == pytest.approx(value, abs=1e-6)
    assert clf.certificate_.lower <= value + 1e-7
    # the coefficients themselves, as the user sees them, have that worst case
    scores = clf.decision_function(sample.rows)
    scores = np.column_stack([np.zeros(len(scores)), scores]) if K == 2 else scores
    losses = logsumexp(scores, axis=1, keepdims=True) - scores
    assert inner_reference(losses, *reference_arguments(ds))["value"] == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("K", [2, 3])
def test_the_estimator_takes_the_penalty_out_of_its_certificate(K: int) -> None:
    sample = draw(K, "clopper-pearson", "scalar", weighted=False, seed=40 + K)
    ds, l2 = sample.decision_set(0.05), 0.1
    clf = sf.RobustLogisticRegression(radius=ds.radius, label_cost=sample.label_cost, tol=1e-7, l2=l2)
    clf.fit(sample.X, sample.y, X_unlabeled=sample.U)
    penalty = 0.5 * l2 * float(np.sum(clf.coef_**2))
    assert clf.certificate_.risk + penalty == pytest.approx(conic_optimum(ds, sample.rows, l2)["value"], abs=1e-6)
