"""`certify` against the plain linear program over all plans (HiGHS): both bounds to 1e-6, and a feasible adversary."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.stats import binomtest
from sklearn.base import clone
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier

import surefoot as sf
from generators import transport_by_pot
from reference.inner import inner_reference, minimal_radius_reference

Array = NDArray[np.float64]
PRIORS = ["exact", "intervals", "clopper-pearson", "none"]
LOSSES = ["log_loss", "zero_one", "cost", "own"]
CLASSIFIERS = {
    "forest": RandomForestClassifier(12, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=8, random_state=0),
    "neighbours": KNeighborsClassifier(3),
}
COST = np.array([[0.0, 1.0, 4.0], [0.5, -0.2, 2.0], [3.0, 0.1, 0.3]])  # truth by prediction


@cache
def trained(name: str, K: int) -> Any:
    """A classifier trained on rows of its own, so that it errs on labeled rows too."""
    rng = np.random.default_rng(50 + K)
    labels = np.arange(36) % K
    return clone(CLASSIFIERS[name]).fit(0.7 * rng.normal(size=(36, 2)) + np.eye(K, 2)[labels], labels)


@dataclass(frozen=True)
class Problem:
    """Labeled rows, unlabeled rows and what is known of the labels; every quantity by other means than the package."""

    X: Array
    y: NDArray[np.intp]
    U: Array
    K: int
    prior: str
    label_cost: Array
    weights: Array
    metric: str = "euclidean"

    @classmethod
    def draw(cls, K: int, prior: str, *, plain: bool = True, seed: int = 0) -> Problem:
        rng, N, n = np.random.default_rng(seed), 30, 8
        labels = np.concatenate([np.arange(n) % K, rng.integers(K, size=N - n)])
        rows = 0.6 * rng.normal(size=(N, 2)) + 0.8 * np.eye(K, 2)[labels]
        cost = np.full((K, K), 0.8) if plain else rng.uniform(0.4, 1.4, size=(K, K))
        weights = np.ones(n) if plain else rng.uniform(0.2, 2.0, size=n)
        return cls(
            rows[:n], labels[:n], rows[n:], K, prior, cost * (1 - np.eye(K)), weights,
            "euclidean" if plain else "manhattan",
        )  # fmt: skip

    @property
    def rows(self) -> Array:
        return np.vstack([self.X, self.U])

    @property
    def label_prior(self) -> Any:
        p = np.array([0.3, 0.45, 0.25])[: self.K]
        p = p / p.sum()
        return {"exact": p, "intervals": np.column_stack([0.8 * p, 1.2 * p]), "none": None}.get(self.prior, self.prior)

    @property
    def intervals(self) -> Array | None:
        if self.prior == "clopper-pearson":
            counts = np.bincount(self.y, minlength=self.K)
            return np.array([binomtest(m, len(self.y)).proportion_ci(0.95, "exact") for m in counts])
        given = self.label_prior
        return np.column_stack([given, given]) if self.prior == "exact" else given

    @property
    def set_without_radius(self) -> tuple[Any, ...]:
        row_weights = np.append(self.weights, np.ones(len(self.U)))
        distances = cdist(self.rows, self.X, {"manhattan": "cityblock"}.get(self.metric, self.metric))
        return (
            distances, row_weights / row_weights.sum(), self.weights / self.weights.sum(), self.y, self.label_cost,
            self.intervals,
        )  # fmt: skip

    @property
    def minimal_radius(self) -> float:
        return minimal_radius_reference(*self.set_without_radius)

    def worst(self, losses: Array, radius: float) -> float:
        return inner_reference(losses, *self.set_without_radius, radius)["value"]

    def losses(self, clf: Any, kind: str) -> Array:
        """(N, K) by hand."""
        if kind == "log_loss":
            return -np.log(np.maximum(clf.predict_proba(self.rows), 1e-12))
        if kind == "zero_one":
            return (clf.predict(self.rows)[:, None] != np.arange(self.K)).astype(float)
        if kind == "cost":
            return np.array([[COST[k, c] for k in range(self.K)] for c in clf.predict(self.rows)])
        return np.random.default_rng(9).normal(size=(len(self.rows), self.K))

    def certify(self, clf: Any, kind: str, radius: float, **keywords: Any) -> sf.Certificate:
        what: dict[str, Any] = {"loss": kind}
        if kind == "cost":
            what = {"loss": COST[: self.K, : self.K]}
        elif kind == "own":
            what, clf = {"losses": self.losses(clf, kind)}, None
        keywords = {"classes": range(self.K), "label_cost": self.label_cost, "metric": self.metric} | keywords
        return sf.certify(
            clf, self.X, self.y, X_unlabeled=self.U, radius=radius, label_prior=self.label_prior,
            sample_weight=self.weights, **what, **keywords,
        )  # fmt: skip

    def loss_of_the_adversary(self, certificate: sf.Certificate, losses: Array, radius: float) -> float:
        """Check that the adversary returned is in the set, and return what it forces."""
        worst = certificate.worst_case
        assert worst is not None
        q = worst.label_proba
        assert q.min() >= 0
        np.testing.assert_allclose(q.sum(axis=1), 1.0, atol=1e-12)
        distances, row_weights, _, codes, label_cost, intervals = self.set_without_radius
        np.testing.assert_allclose(worst.row_weights, row_weights, rtol=1e-12)
        if intervals is not None:
            assert (row_weights @ q >= intervals[:, 0] - 1e-9).all()
            assert (row_weights @ q <= intervals[:, 1] + 1e-9).all()
        distance = transport_by_pot(worst, distances, codes, label_cost, self.weights)
        assert distance <= radius * (1 + 1e-6)
        assert distance <= worst.transport_cost * (1 + 1e-9)
        return float(row_weights @ (q * losses).sum(axis=1))


def agree(problem: Problem, name: str, kind: str, radius: float) -> None:
    clf = trained(name, problem.K)
    losses = problem.losses(clf, kind)
    certificate = problem.certify(clf, kind, radius)
    value = problem.worst(losses, radius)
    assert certificate.risk == pytest.approx(value, abs=1e-6)
    assert certificate.lower == pytest.approx(value, abs=1e-6)
    assert certificate.gap <= 1e-6
    assert certificate.status == "optimal"
    assert certificate.radius == radius
    assert certificate.loss == ("loss" if kind == "own" else kind)
    assert certificate.lower == pytest.approx(problem.loss_of_the_adversary(certificate, losses, radius), abs=1e-9)


@pytest.mark.parametrize("kind", ["log_loss", "zero_one"])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_both_bounds_are_the_value_of_the_linear_program(name: str, K: int, prior: str, kind: str) -> None:
    problem = Problem.draw(K, prior, seed=K)
    agree(problem, name, kind, problem.minimal_radius + 0.08)


@pytest.mark.parametrize("kind", ["cost", "own"])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("K", [2, 3])
def test_cost_matrices_and_own_losses(K: int, prior: str, kind: str) -> None:
    problem = Problem.draw(K, prior, seed=10 + K)
    agree(problem, "forest", kind, problem.minimal_radius + 0.08)


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("prior", ["exact", "none"])
@pytest.mark.parametrize("K", [2, 3])
def test_with_weights_a_label_cost_matrix_and_another_metric(K: int, prior: str, kind: str) -> None:
    problem = Problem.draw(K, prior, plain=False, seed=20 + K)
    agree(problem, "neighbours", kind, problem.minimal_radius + 0.08)


@pytest.mark.parametrize(("K", "kind"), [(2, "log_loss"), (3, "zero_one")])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("excess", [1e-6, 1e-4, 1e-2, 1.0, 100.0])
def test_from_a_tight_radius_to_a_vast_one(excess: float, prior: str, K: int, kind: str) -> None:
    problem = Problem.draw(K, prior, seed=30 + K)
    agree(problem, "boosting", kind, problem.minimal_radius + excess)


@pytest.mark.parametrize(("K", "kind"), [(2, "zero_one"), (3, "log_loss")])
@pytest.mark.parametrize("prior", PRIORS)
def test_at_the_minimal_radius_both_bounds_enclose_the_linear_program(prior: str, K: int, kind: str) -> None:
    problem = Problem.draw(K, prior, seed=40 + K)
    clf, radius = trained("boosting", K), problem.minimal_radius
    losses, certificate = problem.losses(clf, kind), problem.certify(clf, kind, radius)
    # the adversary may exceed the radius by a share of 1e-6, and no more: so much may its loss be off
    nearly = problem.worst(losses, radius * (1 + 1e-6))
    assert certificate.risk >= problem.worst(losses, radius * (1 + 1e-12)) - 1e-7
    assert certificate.lower <= nearly + 1e-7
    assert certificate.gap <= 1e-6
    assert certificate.minimal_radius == pytest.approx(radius, rel=1e-9)
    forced = problem.loss_of_the_adversary(certificate, losses, radius)
    assert certificate.lower - 1e-9 <= forced <= nearly + 1e-7


@pytest.mark.parametrize("K", [2, 3])
def test_the_losses_of_this_file_are_not_all_alike(K: int) -> None:
    problem = Problem.draw(K, "exact", seed=K)
    radius = problem.minimal_radius + 0.08
    values = [problem.worst(problem.losses(trained(name, K), kind), radius) for name in CLASSIFIERS for kind in LOSSES]
    assert len(np.unique(np.round(values, 3))) >= 8
