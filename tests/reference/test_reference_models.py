"""The references against each other and against closed forms: what is trusted as a reference is tested first."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import ot
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import entr, logsumexp

from reference.inner import inner_reference, minimal_radius_reference, transport_reference
from reference.learning import learn_reference

Array = NDArray[np.float64]
PRIORS = ["none", "exact", "interval"]


@dataclass(frozen=True)
class Problem:
    """A random labeled sample among rows with known labels; `set` holds the arguments that all references share."""

    X: Array
    labels: NDArray[np.intp]
    anchors: NDArray[np.intp]
    label_cost: Array
    intervals: Array | None
    row_weights: Array
    anchor_weights: Array

    @property
    def distances(self) -> Array:
        return np.linalg.norm(self.X[:, None] - self.X[self.anchors], axis=2)

    @property
    def set(self) -> tuple[Array, Array, Array, NDArray[np.intp], Array, Array | None]:
        labels = self.labels[self.anchors]
        return self.distances, self.row_weights, self.anchor_weights, labels, self.label_cost, self.intervals

    @property
    def n_classes(self) -> int:
        return len(self.label_cost)

    @property
    def label_probabilities(self) -> Array:
        return np.bincount(self.labels, weights=self.row_weights, minlength=self.n_classes)

    def true_radius(self) -> float:
        """W_c from the labeled sample to all rows with their labels."""
        labels = self.labels[self.anchors]
        weights = self.row_weights, self.anchor_weights
        return transport_reference(self.distances, self.labels, labels, self.label_cost, *weights)


def make_problem(
    n_classes: int, prior: str, *, N: int = 40, n: int = 9, seed: int = 0, weighted: bool = False
) -> Problem:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(N) % n_classes)
    X = 0.5 * rng.normal(size=(N, 3)) + 0.7 * np.eye(n_classes, 3)[labels]
    anchors = rng.choice(N, size=n, replace=False)
    label_cost = rng.uniform(0.5, 1.5, size=(n_classes, n_classes)) * (1 - np.eye(n_classes))
    rows, labeled = (rng.uniform(0.2, 1, size=N), rng.uniform(0.2, 1, size=n)) if weighted else (np.ones(N), np.ones(n))
    rows, labeled = rows / rows.sum(), labeled / labeled.sum()
    p = np.bincount(labels, weights=rows, minlength=n_classes)
    intervals = {"none": None, "exact": np.column_stack([p, p]), "interval": np.column_stack([0.8 * p, 1.3 * p])}[prior]
    return Problem(X, labels, anchors, label_cost, intervals, rows, labeled)


def log_losses(X: Array, theta: Array, intercept: Array) -> Array:
    scores = np.column_stack([np.zeros(len(X)), X @ theta.T + intercept])
    return logsumexp(scores, axis=1, keepdims=True) - scores


def penalty(theta: Array, l2: float) -> float:
    """½ l2 ‖θ‖² of the coefficients themselves (two classes) or of those, centred over classes, that sum to zero."""
    if len(theta) == 1:
        return 0.5 * l2 * float(np.sum(theta**2))
    full = np.vstack([np.zeros_like(theta[0]), theta])
    return 0.5 * l2 * float(np.sum((full - full.mean(axis=0)) ** 2))


@pytest.mark.parametrize("l2", [0.0, 0.1])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_learning_value_is_the_inner_value_at_its_own_theta(n_classes: int, prior: str, l2: float) -> None:
    problem = make_problem(n_classes, prior, weighted=True)
    radius = minimal_radius_reference(*problem.set) + 0.05
    found = learn_reference(*problem.set, radius, problem.X, l2, n_classes=n_classes)
    losses = log_losses(problem.X, found["theta"], found["intercept"])
    inner = inner_reference(losses, *problem.set, radius)
    assert found["value"] == pytest.approx(inner["value"] + penalty(found["theta"], l2), abs=1e-7)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_other_theta_does_better(n_classes: int) -> None:
    problem = make_problem(n_classes, "interval", N=25, n=6)
    radius = minimal_radius_reference(*problem.set) + 0.1
    found = learn_reference(*problem.set, radius, problem.X, n_classes=n_classes)
    rng = np.random.default_rng(1)
    for scale in (1e-3, 1e-1, 1.0):
        theta = found["theta"] + scale * rng.normal(size=found["theta"].shape)
        intercept = found["intercept"] + scale * rng.normal(size=found["intercept"].shape)
        worst = inner_reference(log_losses(problem.X, theta, intercept), *problem.set, radius)["value"]
        assert worst >= found["value"] - 1e-8


@pytest.mark.parametrize("n_classes", [2, 3])
def test_at_an_infinite_radius_the_prior_is_the_answer(n_classes: int) -> None:
    problem = make_problem(n_classes, "exact")
    found = learn_reference(*problem.set, np.inf, problem.X, n_classes=n_classes)
    assert found["value"] == pytest.approx(entr(problem.label_probabilities).sum(), abs=1e-8)
    free = make_problem(n_classes, "none")
    assert learn_reference(*free.set, np.inf, free.X, n_classes=n_classes)["value"] == pytest.approx(np.log(n_classes))


def test_under_a_huge_penalty_the_adversary_moves_labels_only() -> None:
    # θ = 0: the worst case is the largest entropy H(p) over |p − p̂| κ ≤ ε − W_d, two classes, one cost κ either way.
    base = make_problem(2, "none", n=9, seed=3)
    kappa = 0.8
    problem = replace(base, label_cost=kappa * (1 - np.eye(2)))
    moved = ot.emd2(problem.row_weights, problem.anchor_weights, problem.distances)
    observed = float(problem.labels[problem.anchors].mean())
    budget = 0.5 * abs(observed - 0.5)
    p = observed + np.sign(0.5 - observed) * budget
    found = learn_reference(*problem.set, moved + kappa * budget, problem.X, 1e7, n_classes=2)
    assert budget > 0
    assert found["value"] == pytest.approx(entr([p, 1 - p]).sum(), abs=1e-6)


def test_at_the_minimal_radius_of_the_truth_alone_learning_is_logistic_regression() -> None:
    # N = n, ε = 0: the set holds the labeled distribution alone, and the penalised problem is a smooth one.
    problem = make_problem(2, "none", N=30, n=30, weighted=False)
    found = learn_reference(*problem.set, 0.0, problem.X, 0.05, n_classes=2)

    def objective(v: Array) -> float:
        losses = log_losses(problem.X, v[None, :-1], v[-1:])
        return float(losses[np.arange(30), problem.labels].mean()) + penalty(v[None, :-1], 0.05)

    assert found["value"] == pytest.approx(minimize(objective, np.zeros(4), tol=1e-12).fun, abs=1e-7)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_minimal_radius_is_the_smallest_feasible_one(n_classes: int, prior: str) -> None:
    problem = make_problem(n_classes, prior, weighted=True)
    radius = minimal_radius_reference(*problem.set)
    losses = np.random.default_rng(2).uniform(size=(len(problem.X), n_classes))
    assert inner_reference(losses, *problem.set, radius + 1e-7)["value"] <= 1
    with pytest.raises(ValueError, match="must not be empty"):
        inner_reference(losses, *problem.set, radius - 1e-7)
    with pytest.raises(ValueError, match="must not be empty"):
        learn_reference(*problem.set, radius - 1e-2, problem.X, n_classes=n_classes)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_minimal_radius_is_transport_of_features_without_a_prior_and_at_most_the_true_radius(n_classes: int) -> None:
    problem = make_problem(n_classes, "none", weighted=True)
    features_only = ot.emd2(problem.row_weights, problem.anchor_weights, problem.distances)
    assert minimal_radius_reference(*problem.set) == pytest.approx(features_only, abs=1e-10)
    exact = make_problem(n_classes, "exact", weighted=True)
    assert features_only <= minimal_radius_reference(*exact.set) <= exact.true_radius() + 1e-12


@pytest.mark.parametrize("prior", PRIORS)
def test_at_the_true_radius_the_set_contains_the_truth(prior: str) -> None:
    problem = make_problem(3, prior, weighted=True)
    losses = np.random.default_rng(4).exponential(size=(len(problem.X), 3))
    worst = inner_reference(losses, *problem.set, problem.true_radius() * (1 + 1e-9))
    truth = problem.row_weights @ losses[np.arange(len(losses)), problem.labels]
    assert worst["value"] >= truth - 1e-9
    # A reward of 1 for each true label is met in full by the truth, and just not below its radius.
    rewards = np.eye(3)[problem.labels]
    best = inner_reference(rewards, *problem.set, problem.true_radius() * (1 + 1e-9))["value"]
    assert best == pytest.approx(1, abs=1e-7)
    assert inner_reference(rewards, *problem.set, problem.true_radius() - 1e-4)["value"] < 1 - 1e-5


def test_both_methods_of_highs_agree_and_the_plan_is_feasible() -> None:
    problem = make_problem(3, "interval", weighted=True)
    distances, row_weights, anchor_weights, anchor_labels, label_cost, intervals = problem.set
    radius = problem.true_radius()
    losses = np.random.default_rng(5).exponential(size=(len(problem.X), 3))
    simplex, interior = (inner_reference(losses, *problem.set, radius, method=m) for m in ("highs-ds", "highs-ipm"))
    assert simplex["value"] == pytest.approx(interior["value"], abs=1e-8)
    for plan in (simplex["plan"], interior["plan"]):
        np.testing.assert_allclose(plan.sum(axis=(1, 2)), row_weights, atol=1e-10)
        np.testing.assert_allclose(plan.sum(axis=(0, 1)), anchor_weights, atol=1e-10)
        assert np.einsum("jki,jki->", plan, distances[:, None] + label_cost[:, anchor_labels]) <= radius + 1e-9
        assert np.all(plan.sum(axis=(0, 2)) >= intervals[:, 0] - 1e-10)
        assert np.all(plan.sum(axis=(0, 2)) <= intervals[:, 1] + 1e-10)
    np.testing.assert_allclose(simplex["label_proba"].sum(axis=1), 1, atol=1e-8)
