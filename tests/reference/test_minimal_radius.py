"""The closed form of the minimal radius against the linear program, to 1e-9; transport distances against POT."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import ot
import pytest
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.spatial.distance import cdist

import surefoot as sf
from reference.inner import minimal_radius_reference
from surefoot.problem.sets import DecisionSet, build_decision_set
from surefoot.solvers import transport
from surefoot.solvers.minimal_radius import solve_minimal_radius

Array = NDArray[np.float64]
PRIORS = ["exact", "intervals", "clopper-pearson", "none"]


@dataclass(frozen=True)
class Sample:
    """Labeled rows, unlabeled rows, and the keywords of `surefoot.minimal_radius`."""

    X: Array
    y: NDArray[np.intp]
    U: Array
    keywords: dict[str, object]

    def decision_set(self, K: int) -> DecisionSet:
        return build_decision_set(self.X, self.y, K, X_unlabeled=self.U, **self.keywords)  # type: ignore[arg-type]


def draw(K: int, prior: str, cost: str, *, weighted: bool, seed: int = 0) -> Sample:
    """A prior away from the labeled frequencies, so that labels must move as well as features."""
    rng = np.random.default_rng(seed)
    n, M = 9, 25
    y = np.sort(rng.permutation(np.arange(n) % K))
    p = rng.dirichlet(np.ones(K))
    priors = {"exact": p, "intervals": np.column_stack([0.95 * p, np.minimum(1.05 * p, 1.0)]), "none": None}
    matrix = rng.uniform(0.2, 2.0, size=(K, K)) * (1 - np.eye(K))
    keywords: dict[str, object] = {
        "label_prior": priors.get(prior, prior),
        "label_cost": matrix if cost == "matrix" else 0.6,
        "sample_weight": rng.uniform(0.1, 2.0, size=n) if weighted else None,
    }
    order = rng.permutation(n)
    return Sample(rng.normal(size=(n, 2))[order], y[order], rng.normal(size=(M, 2)) + 0.3, keywords)


def linear_program(ds: DecisionSet) -> float:
    return minimal_radius_reference(
        ds.distances, ds.row_weights, ds.anchor_weights, ds.anchor_labels, ds.label_cost, ds.intervals
    )  # fmt: skip


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("cost", ["scalar", "matrix"])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("K", [2, 3])
def test_the_closed_form_is_the_linear_program(K: int, prior: str, cost: str, weighted: bool) -> None:
    sample = draw(K, prior, cost, weighted=weighted, seed=K)
    ds = sample.decision_set(K)
    solved = solve_minimal_radius(ds)
    assert solved.value == pytest.approx(linear_program(ds), abs=1e-9)
    assert solved.value == solved.feature_part + solved.label_part
    public = sf.minimal_radius(sample.X, sample.y, X_unlabeled=sample.U, **sample.keywords)  # type: ignore[arg-type]
    assert public == pytest.approx(solved.value, abs=1e-12)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("K", [2, 3])
def test_its_adversary_attains_it(K: int, prior: str) -> None:
    ds = draw(K, prior, "matrix", weighted=True, seed=20 + K).decision_set(K)
    solved = solve_minimal_radius(ds)
    q = solved.adversary.label_proba
    np.testing.assert_allclose(q.sum(axis=1), 1.0, atol=1e-12)
    p = ds.row_weights @ q
    assert np.all((p >= ds.intervals[:, 0] - 1e-12) & (p <= ds.intervals[:, 1] + 1e-12))
    mass = (ds.row_weights[:, None] * q).ravel()
    costs = (ds.distances[:, None, :] + ds.label_cost[:, ds.anchor_labels]).reshape(len(mass), -1)
    distance = ot.emd2(mass, ds.anchor_weights * mass.sum(), costs)
    assert distance == pytest.approx(solved.value, abs=1e-9)
    assert solved.adversary.transport_cost == pytest.approx(solved.value, abs=1e-12)


def test_with_a_scalar_cost_the_label_part_is_total_variation() -> None:
    sample = draw(3, "exact", "scalar", weighted=False, seed=7)
    ds = sample.decision_set(3)
    frequencies = np.bincount(sample.y, minlength=3) / len(sample.y)
    variation = 0.5 * np.abs(ds.intervals[:, 0] - frequencies).sum()
    assert solve_minimal_radius(ds).label_part == pytest.approx(0.6 * variation, abs=1e-14)
    assert variation > 0.05


def test_labels_move_along_a_chain_where_that_is_cheaper() -> None:
    # Class 2 is to gain what class 0 loses: 0 into 1 and 1 into 2 cost 0.1 each, 0 into 2 directly 5.
    cost = np.array([[0.0, 1.0, 1.0], [0.1, 0.0, 1.0], [5.0, 0.1, 0.0]])
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([0, 1, 2])
    ds = build_decision_set(X, y, 3, label_prior=np.array([0.0, 1 / 3, 2 / 3]), label_cost=cost)
    assert solve_minimal_radius(ds).value == pytest.approx(0.2 / 3, abs=1e-12)
    assert linear_program(ds) == pytest.approx(0.2 / 3, abs=1e-9)


@pytest.mark.parametrize("cost", ["scalar", "matrix"])
@pytest.mark.parametrize("K", [2, 3])
def test_transport_distance_is_emd_on_the_full_cost(K: int, cost: str) -> None:
    rng = np.random.default_rng(K)
    n, N = 12, 50
    X, X_ref = rng.normal(size=(n, 3)), rng.normal(size=(N, 3)) + 0.2
    y, y_ref = rng.permutation(np.arange(n) % K), rng.permutation(np.arange(N) % K)
    kappa = rng.uniform(0.2, 2.0, size=(K, K)) * (1 - np.eye(K)) if cost == "matrix" else 0.7 * (1 - np.eye(K))
    full = cdist(X_ref, X) + kappa[np.ix_(y_ref, y)]
    found = sf.transport_distance(X, y, X_ref, y_ref, label_cost=kappa if cost == "matrix" else 0.7)
    assert found == pytest.approx(ot.emd2(np.full(N, 1 / N), np.full(n, 1 / n), full), abs=1e-12)
    w, v = rng.uniform(0.1, 1.0, size=n), rng.uniform(0.1, 1.0, size=N)
    weighted = sf.transport_distance(X, y, X_ref, y_ref, label_cost=kappa, sample_weight=w, ref_weight=v)
    assert weighted == pytest.approx(ot.emd2(v / v.sum(), w / w.sum(), full), abs=1e-12)


def test_transport_distance_to_itself_is_zero_and_to_flipped_labels_the_label_cost() -> None:
    rng = np.random.default_rng(3)
    X, y = 10 * rng.normal(size=(20, 2)), np.arange(20) % 2
    assert sf.transport_distance(X, y, X, y, label_cost=0.3) == 0
    assert sf.transport_distance(X, y, X, 1 - y, label_cost=0.3) == pytest.approx(0.3, abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(("N", "n"), [(40, 7), (300, 20), (2000, 40), (30, 30), (50, 1)])
def test_the_branch_for_large_problems_is_the_network_simplex(
    monkeypatch: pytest.MonkeyPatch, N: int, n: int, weighted: bool
) -> None:
    rng = np.random.default_rng(N + n)
    distances = cdist(rng.normal(size=(N, 3)), rng.normal(size=(n, 3)) + 0.5)
    rows, anchors = (rng.uniform(0.1, 1, N), rng.uniform(0.1, 1, n)) if weighted else (np.ones(N), np.ones(n))
    rows, anchors = rows / rows.sum(), anchors / anchors.sum()
    simplex = ot.emd2(rows, anchors, distances, numItermax=1_000_000)
    monkeypatch.setattr(transport, "_SIMPLEX_ENTRIES", 0)
    monkeypatch.setattr(transport, "_SIMPLEX_ROWS", 0)
    solved = transport.solve_transport(distances, rows, anchors)
    assert solved.cost == pytest.approx(simplex, abs=1e-10)
    assert solved.lower == pytest.approx(solved.cost, abs=1e-10)
    np.testing.assert_allclose(solved.plan.sum(axis=1), rows, atol=1e-12)
    np.testing.assert_allclose(solved.plan.sum(axis=0), anchors, atol=1e-12)


def test_the_branch_for_large_problems_stands_ties_and_empty_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    points = rng.integers(0, 3, size=(400, 2)).astype(float)  # many rows at distance zero, many ties
    distances = cdist(points, points[:15])
    rows = np.where(rng.random(400) < 0.1, 0.0, 1.0)
    rows, anchors = rows / rows.sum(), np.full(15, 1 / 15)
    simplex = ot.emd2(rows, anchors, distances, numItermax=1_000_000)
    monkeypatch.setattr(transport, "_SIMPLEX_ENTRIES", 0)
    monkeypatch.setattr(transport, "_SIMPLEX_ROWS", 0)
    solved = transport.solve_transport(distances, rows, anchors)
    assert solved.cost == pytest.approx(simplex, abs=1e-10)
    assert solved.lower == pytest.approx(solved.cost, abs=1e-10)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(("N", "n"), [(300, 20), (400, 350), (60, 60), (50, 1), (3, 40)])
def test_the_simplex_over_few_pairs_is_that_over_all(
    monkeypatch: pytest.MonkeyPatch, N: int, n: int, weighted: bool, scale: float
) -> None:
    rng = np.random.default_rng(N + n)
    distances = cdist(rng.normal(size=(N, 3)), rng.normal(size=(n, 3)) + 2.0)  # near pairs alone do not suffice
    rows, anchors = (rng.uniform(0.1, 1, N), rng.uniform(0.1, 1, n)) if weighted else (np.ones(N), np.ones(n))
    rows, anchors = rows / rows.sum(), anchors / anchors.sum()
    expected = ot.emd2(rows, anchors, distances, numItermax=1_000_000)
    monkeypatch.setattr(transport, "_PAIRS_ENTRIES", 0)
    monkeypatch.setattr(transport, "_SIMPLEX_ROWS", N)
    monkeypatch.setattr(transport, "_simplex", None)  # is not asked
    solved = transport.solve_transport(scale * distances, rows, anchors)
    assert solved.cost / scale == pytest.approx(expected, rel=1e-10)
    assert solved.lower == pytest.approx(solved.cost, rel=1e-11)
    np.testing.assert_allclose(solved.plan.sum(axis=1), rows, atol=1e-12)
    np.testing.assert_allclose(solved.plan.sum(axis=0), anchors, atol=1e-12)


def test_the_simplex_over_few_pairs_stands_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows on a grid: of each there are many, so that the nearest of all are the same few; and rows all alike."""
    rng = np.random.default_rng(0)
    points = rng.integers(0, 3, size=(500, 2)).astype(float)
    monkeypatch.setattr(transport, "_PAIRS_ENTRIES", 0)
    monkeypatch.setattr(transport, "_simplex", None)
    for distances in (cdist(points, points[:60] + 1.0), np.zeros((30, 20)), np.ones((30, 20))):
        rows, anchors = (np.full(size, 1 / size) for size in distances.shape)
        solved = transport.solve_transport(distances, rows, anchors)
        assert solved.cost == pytest.approx(ot.emd2(rows, anchors, distances, numItermax=1_000_000), abs=1e-12)
        assert solved.lower == pytest.approx(solved.cost, abs=1e-12)


def test_where_the_simplex_over_few_pairs_fails_all_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    distances, rows, anchors = rng.random((40, 30)), rng.dirichlet(np.ones(40)), rng.dirichlet(np.ones(30))
    expected = transport.solve_transport(distances, rows, anchors)
    monkeypatch.setattr(transport, "_PAIRS_ENTRIES", 0)
    found = transport.solve_transport(distances, np.append(rows[:-2], [0.0, rows[-2:].sum()]), anchors)  # an empty row
    assert found.lower == pytest.approx(found.cost, rel=1e-11)
    plain = ot.emd

    def only_dense(rows: object, anchors: object, cost: object, **keywords: object) -> object:
        return (None, {"warning": "too long"}) if issparse(cost) else plain(rows, anchors, cost, **keywords)

    monkeypatch.setattr(transport, "network_simplex", lambda: only_dense)
    assert transport.solve_transport(distances, rows, anchors).cost == pytest.approx(expected.cost, rel=1e-12)


def test_a_simplex_that_goes_round_in_circles_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    distances, rows, anchors = rng.random((40, 6)), rng.dirichlet(np.ones(40)), rng.dirichlet(np.ones(6))
    expected = transport.solve_transport(distances, rows, anchors)
    plain, calls = ot.emd, []

    def stubborn(*arguments: object, **keywords: object) -> object:
        calls.append(keywords["numItermax"])
        plan, log = plain(*arguments, **keywords)
        return plan, log | {"warning": "numItermax reached" if len(calls) < 3 else None}

    def hopeless(*arguments: object, **keywords: object) -> object:
        return plain(*arguments, **keywords)[0], {"warning": "numItermax reached"}

    monkeypatch.setattr(transport, "network_simplex", lambda: stubborn)
    found = transport.solve_transport(distances, rows, anchors)
    assert len(calls) == 3
    assert found.cost == pytest.approx(expected.cost, rel=1e-12)
    np.testing.assert_allclose(found.plan.sum(axis=1), rows, atol=1e-12)
    monkeypatch.setattr(transport, "network_simplex", lambda: hopeless)
    with pytest.raises(RuntimeError, match="network simplex failed"):
        transport.solve_transport(distances, rows, anchors)
