"""Algorithm 1: its subgradients against torch and finite differences, its steps against torch.optim, its results."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import surefoot as sf
from generators import just_above, sample, transport_by_pot
from refusals import Refused, refuses
from surefoot import datasets
from surefoot.dual.bounds import dual_value
from surefoot.dual.models import DualPoint, FixedLosses, LinearModel, Model
from surefoot.paper import StochasticGradient, StochasticRobustLogisticRegression, UnboundedDualError
from surefoot.paper.stochastic_gradient import _Steps, dual_subgradient, run_algorithm1
from surefoot.problem.sets import DecisionSet, build_decision_set
from surefoot.solvers.minimal_radius import solve_minimal_radius
from surefoot.solvers.search.solution import solve_certified

Array = np.ndarray
NAMES = ("theta", "alpha", "beta", "lam_hi", "lam_lo")


def problem(
    seed: int = 0, K: int = 2, N: int = 60, n: int = 9, excess: float = 0.05, *, weighted: bool = False, l2: float = 0.0
) -> tuple[DecisionSet, LinearModel]:
    """Overlapping clusters with label intervals; where K > 2 no anchor carries the last class."""
    rng = np.random.default_rng(seed)
    shown = max(2, K - 1)
    codes = np.append(np.arange(shown), rng.integers(shown, size=n - shown))
    X = rng.normal(size=(N, 3))
    X[:n] += 0.8 * np.eye(K, 3)[codes]
    p = rng.dirichlet(np.full(K, 5.0))
    kappa = rng.uniform(0.3, 1.5, size=(K, K)) * (1 - np.eye(K))
    ds = build_decision_set(
        X[:n],
        codes,
        K,
        X_unlabeled=X[n:],
        label_prior=np.column_stack([0.8 * p, np.minimum(1.2 * p, 1.0)]),
        label_cost=kappa,
        sample_weight=rng.uniform(0.2, 3.0, size=n) if weighted else None,
    )
    model = LinearModel(np.hstack([X, np.ones((N, 1))]), np.array([l2, l2, l2, 0.0]), K)
    return ds.with_radius(solve_minimal_radius(ds).value + excess), model


def point(ds: DecisionSet, model: Model, seed: int = 1) -> dict[str, Any]:
    """Some variables, of which no λ̄_k and λ_k are positive at once, so that their difference says all."""
    rng = np.random.default_rng(seed)
    lam = rng.normal(size=ds.n_classes)
    return {
        "theta": rng.normal(size=model.shape),
        "alpha": float(rng.uniform(0.5, 2.0)),
        "beta": rng.normal(size=len(ds.anchor_weights)),
        "lam_hi": np.maximum(lam, 0.0),
        "lam_lo": np.maximum(-lam, 0.0),
    }


def torch_dual(ds: DecisionSet, model: Model, at: dict[str, torch.Tensor], rows: Array, weights: Array) -> torch.Tensor:
    """The dual as printed, over all pairs of a label and an anchor."""
    D, m = torch.as_tensor(ds.distances[rows]), torch.as_tensor(weights)
    cost = D[:, None, :] + torch.as_tensor(ds.label_cost[:, ds.anchor_labels])
    if isinstance(model, LinearModel):
        scores = torch.as_tensor(model.X[rows]) @ at["theta"].T
        losses = -torch.log_softmax(torch.cat([torch.zeros(len(rows), 1, dtype=torch.double), scores], dim=1), dim=1)
        centred = at["theta"] - (at["theta"].sum(0) / model.n_classes if model.n_classes > 2 else 0.0)
        penalty = 0.5 * (torch.as_tensor(model.penalty) * centred * at["theta"]).sum()
    else:
        losses, penalty = torch.as_tensor(model.matrix[rows]), torch.zeros((), dtype=torch.double)
    values = losses[:, :, None] - at["alpha"] * cost - at["beta"] - (at["lam_hi"] - at["lam_lo"])[:, None]
    lo, hi = torch.as_tensor(ds.intervals.T.copy())
    constant = at["alpha"] * ds.radius + torch.as_tensor(ds.anchor_weights) @ at["beta"]
    constant = constant + at["lam_hi"] @ hi - at["lam_lo"] @ lo
    return constant + m @ values.flatten(1).max(dim=1).values + penalty


def tensors(at: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(at[name], dtype=torch.double, requires_grad=True) for name in NAMES}


CASES = [
    pytest.param({"K": 2}, id="two classes"),
    pytest.param({"K": 2, "l2": 0.3, "weighted": True}, id="weights and a penalty"),
    pytest.param({"K": 4, "l2": 0.2}, id="four classes, one without anchors"),
]


class TestSubgradients:
    @pytest.mark.parametrize("case", CASES)
    @pytest.mark.parametrize("fixed", [False, True], ids=["linear", "fixed losses"])
    def test_are_those_of_autograd(self, case: dict[str, Any], fixed: bool) -> None:
        ds, model = problem(**case)
        judged: Model = FixedLosses(np.random.default_rng(0).normal(size=(60, ds.n_classes))) if fixed else model
        at = point(ds, judged)
        leaves = tensors(at)
        expected = torch_dual(ds, judged, leaves, np.arange(60), ds.row_weights)
        expected.backward()
        value, gradient = dual_subgradient(ds, judged, *(at[name] for name in NAMES))
        assert value == pytest.approx(expected.item(), rel=1e-13)
        for name in NAMES:
            if at[name] is not None and np.size(at[name]):
                grad = leaves[name].grad
                assert grad is not None
                np.testing.assert_allclose(gradient[name].reshape(grad.shape), grad.numpy(), atol=1e-13)

    @pytest.mark.parametrize("case", CASES)
    def test_are_those_of_finite_differences(self, case: dict[str, Any]) -> None:
        ds, model = problem(**case)
        at = point(ds, model)
        _, gradient = dual_subgradient(ds, model, *(at[name] for name in NAMES))
        for name in NAMES:
            flat, slope = np.ravel(at[name]).astype(float), np.ravel(gradient[name])
            for i in range(len(flat)):
                ends = []
                for step in (1e-7, -1e-7):  # so small that no row changes its label or its anchor
                    moved = flat.copy()
                    moved[i] += step
                    there = {**at, name: moved.reshape(np.shape(at[name])) if np.ndim(at[name]) else float(moved[0])}
                    ends.append(dual_subgradient(ds, model, *(there[key] for key in NAMES))[0])
                assert (ends[0] - ends[1]) / 2e-7 == pytest.approx(slope[i], abs=1e-7), (name, i)

    @pytest.mark.parametrize("case", CASES)
    def test_value_is_that_of_the_certificate(self, case: dict[str, Any]) -> None:
        ds, model = problem(**case)
        at = point(ds, model)
        value, _ = dual_subgradient(ds, model, *(at[name] for name in NAMES))
        same = DualPoint(at["theta"], at["alpha"], at["lam_hi"] - at["lam_lo"], at["beta"])
        assert value == pytest.approx(dual_value(ds, model, same), rel=1e-12)


class TestSteps:
    @pytest.mark.parametrize("case", CASES)
    @pytest.mark.parametrize("optimizer", ["adam", "sgd"])
    def test_are_those_of_torch(self, case: dict[str, Any], optimizer: str) -> None:
        ds, model = problem(**case)
        how = StochasticGradient(optimizer, 0.3, batch_size=7, n_steps=50, decay=8.0, decay_every=20, random_state=5)
        found = run_algorithm1(ds, model, how)
        leaves = {
            name: torch.zeros(np.shape(value), dtype=torch.double, requires_grad=True)
            for name, value in point(ds, model).items()
        }
        kind = torch.optim.Adam if optimizer == "adam" else torch.optim.SGD
        optim = kind(leaves.values(), lr=0.3)
        schedule = torch.optim.lr_scheduler.StepLR(optim, 20, gamma=1 / 8)
        for rows in _Steps(ds, model, how)._draw(50):
            optim.zero_grad()
            torch_dual(ds, model, leaves, rows, np.full(7, 1 / 7)).backward()
            optim.step()
            schedule.step()
            with torch.no_grad():
                for name in ("alpha", "lam_hi", "lam_lo"):
                    leaves[name].clamp_(min=0.0)
        np.testing.assert_allclose(found.point.theta, leaves["theta"].detach().numpy(), atol=1e-9)
        np.testing.assert_allclose(found.point.beta, leaves["beta"].detach().numpy(), atol=1e-9)
        np.testing.assert_allclose(found.lam_hi, leaves["lam_hi"].detach().numpy(), atol=1e-9)
        np.testing.assert_allclose(found.lam_lo, leaves["lam_lo"].detach().numpy(), atol=1e-9)
        assert found.point.alpha == pytest.approx(leaves["alpha"].item(), abs=1e-9)
        assert max(np.abs(found.point.theta).max(), found.point.alpha) > 0.1

    def test_the_step_size_falls(self) -> None:
        rates = StochasticGradient(learning_rate=0.8).rates(9_999, 20_001)
        np.testing.assert_allclose(rates[[0, 1, 10_000, 10_001]], [0.8, 0.1, 0.1, 0.0125])

    def test_rows_are_drawn_from_the_marginal(self) -> None:
        ds, model = problem(weighted=True)
        weights = ds.row_weights.copy()
        weights[3] = 0.0
        ds = DecisionSet(**{**vars(ds), "row_weights": weights / weights.sum()})
        drawn = _Steps(ds, model, StochasticGradient(batch_size=100))._draw(2000)
        seen = np.bincount(drawn.ravel(), minlength=60) / drawn.size
        assert seen[3] == 0
        np.testing.assert_allclose(seen, ds.row_weights, atol=5 * np.sqrt(0.05 / drawn.size))

    def test_a_seed_settles_the_result(self) -> None:
        ds, model = problem()
        first, again, other, new = (
            run_algorithm1(ds, model, StochasticGradient(n_steps=300, random_state=seed)) for seed in (3, 3, 4, None)
        )
        np.testing.assert_array_equal(first.point.beta, again.point.beta)
        assert first.value == again.value
        assert len({first.value, other.value, new.value}) == 3

    @pytest.mark.parametrize(
        ("keywords", "rule"),
        [
            ({"optimizer": "lbfgs"}, ("optimizer", '"adam"', '"sgd"')),
            ({"learning_rate": -1.0}, ("learning_rate", 0)),
            ({"batch_size": 0}, ("batch_size", 1)),
            ({"n_steps": 1.5}, ("n_steps", 1)),
            ({"decay": 0.5}, ("decay", 1)),
            ({"random_state": -1}, ("random_state", 0)),
        ],
    )
    def test_bad_settings(self, keywords: dict[str, Any], rule: Refused) -> None:
        with refuses(rule):
            StochasticGradient(**keywords)


class TestResult:
    @pytest.mark.parametrize("K", [2, 3])
    @pytest.mark.parametrize("optimizer", ["adam", "sgd"])
    def test_comes_near_the_exact_value_from_above(self, K: int, optimizer: str) -> None:
        ds, model = problem(K=K, N=200, n=12)
        exact = solve_certified(ds, model, tol=1e-6)
        found = run_algorithm1(ds, model, StochasticGradient(optimizer, n_steps=30_000, decay_every=7_500))
        assert exact.lower <= found.value <= exact.risk + 1e-2
        assert found.value == pytest.approx(dual_value(ds, model, found.point), abs=1e-9)
        assert found.values[-1] == found.value < found.values[0]
        assert found.steps[-1] == 30_000

    def test_fixed_losses(self) -> None:
        ds, _ = problem(N=200, n=12)
        losses = FixedLosses(np.random.default_rng(0).normal(size=(200, 2)))
        exact = solve_certified(ds, losses, tol=1e-6)
        found = run_algorithm1(ds, losses, StochasticGradient(n_steps=20_000, decay_every=5_000))
        assert exact.lower <= found.value <= exact.risk + 1e-2

    @pytest.mark.parametrize("fixed", [False, True], ids=["linear", "fixed losses"])
    def test_an_empty_set_shows_in_the_dual_value(self, fixed: bool) -> None:
        ds, model = problem()
        minimal = solve_minimal_radius(ds).value
        losses = FixedLosses(np.random.default_rng(0).normal(size=(60, 2)) - 3.0)
        with pytest.raises(UnboundedDualError, match=r"surefoot\.minimal_radius") as caught:
            run_algorithm1(ds.with_radius(0.9 * minimal), losses if fixed else model)
        error = pickle.loads(pickle.dumps(caught.value))
        assert error.radius == 0.9 * minimal < error.least_radius <= minimal * (1 + 1e-9)
        assert str(error) == str(caught.value)

    @pytest.mark.slow
    @pytest.mark.parametrize(("name", "raw"), [("abalone", "abalone"), ("pulsar", "htru2"), ("magic", "magic")])
    def test_three_datasets_at_the_papers_settings(
        self, name: str, raw: str, dataset_path: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # strong prior, true radius, 100 labels, Adam from zeros, batch 100, 40,000 steps, rate cut by 8 every 10,000
        monkeypatch.setenv("SUREFOOT_DATA", str(dataset_path(raw).parent))
        X, y = datasets.load(name, return_X_y=True, download_if_missing=False)
        order = np.random.default_rng(0).permutation(len(X))
        X, y, n, prior = X[order], y[order], 100, np.bincount(y) / len(y)
        radius = sf.transport_distance(X[:n], y[:n], X, y)
        exact = sf.RobustLogisticRegression(radius=radius, label_prior=prior).fit(X[:n], y[:n], X_unlabeled=X[n:])
        ds = build_decision_set(X[:n], y[:n], 2, X_unlabeled=X[n:], label_prior=prior, radius=radius)
        rows = LinearModel(np.hstack([X, np.ones((len(X), 1))]), np.zeros(X.shape[1] + 1), 2)
        found = run_algorithm1(ds, rows)
        assert exact.certificate_.lower <= found.value <= exact.certificate_.risk + 1e-2


class TestEstimator:
    @pytest.mark.parametrize(("K", "l2"), [(2, 0.0), (2, 0.1), (3, 0.05)])
    def test_gets_the_same_certificate(self, K: int, l2: float) -> None:
        X, y, U = sample(K=K, M=150)
        keywords: dict[str, Any] = {"radius": just_above(X, y, U, 0.2), "l2": l2}
        exact = sf.RobustLogisticRegression(**keywords).fit(X, y, X_unlabeled=U)
        steps = StochasticRobustLogisticRegression(**keywords, tol=2e-2).fit(X, y, X_unlabeled=U)
        found, best = steps.certificate_, exact.certificate_
        assert found.status == "optimal"
        assert found.gap <= 2e-2
        if l2 == 0:  # a penalty is subtracted at each one's own coefficients
            assert best.lower <= found.risk <= best.risk + 1e-2
            assert found.lower <= best.risk
        np.testing.assert_allclose(steps.predict_proba(U), exact.predict_proba(U), atol=0.05)
        judged = sf.certify(steps, X, y, X_unlabeled=U, radius=keywords["radius"])
        assert found.risk == pytest.approx(judged.risk, abs=2e-3)
        assert steps.n_iter_ == 40_000

    def test_worst_case_is_in_the_set(self) -> None:
        X, y, U = sample(M=150)
        clf = StochasticRobustLogisticRegression(radius=just_above(X, y, U, 0.2), tol=2e-2)
        worst = clf.fit(X, y, X_unlabeled=U).worst_case_
        cost = transport_by_pot(worst, cdist(np.vstack([X, U]), X), y, 1.0 - np.eye(2), np.ones(len(X)))
        assert cost <= worst.transport_cost + 1e-9 <= clf.radius_ * (1 + 1e-6)
        lo, hi = clf.certificate_.label_intervals.T
        assert (worst.label_probabilities >= lo - 1e-12).all()
        assert (worst.label_probabilities <= hi + 1e-12).all()

    def test_settings_and_seed(self) -> None:
        X, y, U = sample()
        how = StochasticGradient(n_steps=500, learning_rate=0.05)
        clf = StochasticRobustLogisticRegression(radius=2.0, steps=how, tol=1.0).fit(X, y, X_unlabeled=U)
        copy = clone(clf).fit(X, y, X_unlabeled=U)
        assert copy.steps == how
        assert clf.n_iter_ == 500
        np.testing.assert_array_equal(clf.coef_, copy.coef_)
        assert pickle.loads(pickle.dumps(clf)).certificate_.risk == clf.certificate_.risk

    def test_auto_and_exact_calibrated_radii(self) -> None:
        X, y, U = sample()
        how = StochasticGradient(n_steps=2000, decay_every=500)
        auto = StochasticRobustLogisticRegression("auto", steps=how, tol=0.5).fit(X, y, X_unlabeled=U)
        assert auto.radius_ >= auto.certificate_.minimal_radius
        clf = StochasticRobustLogisticRegression("calibrated", [0.5, 0.5], steps=how, tol=0.5).fit(X, y, X_unlabeled=U)
        assert clf.certificate_.estimate is not None
        assert clf.radius_ == clf.certificate_.estimate.radius

    def test_a_union_is_refused(self) -> None:
        X, y, U = sample()
        with refuses("radius", 2):
            StochasticRobustLogisticRegression("calibrated").fit(X, y, X_unlabeled=U)

    def test_a_wide_gap_is_said(self) -> None:
        X, y, U = sample()
        clf = StochasticRobustLogisticRegression(just_above(X, y, U), steps=StochasticGradient(n_steps=10), tol=1e-6)
        with pytest.warns(ConvergenceWarning, match="raise n_steps"):
            clf.fit(X, y, X_unlabeled=U)
        assert clf.certificate_.status == "stopped"

    def test_an_empty_set_is_refused_before_any_step(self) -> None:
        X, y, U = sample()
        with pytest.raises(sf.InfeasibleRadiusError):
            StochasticRobustLogisticRegression(radius=1e-3).fit(X, y, X_unlabeled=U)

    @pytest.mark.parametrize("steps", ["adam", 3, StochasticGradient], ids=str)
    def test_bad_steps(self, steps: Any) -> None:
        X, y, U = sample()
        with pytest.raises(ValueError, match="steps must be"):
            StochasticRobustLogisticRegression(radius=2.0, steps=steps).fit(X, y, X_unlabeled=U)

    def test_the_predictive_radius_is_not_the_papers(self) -> None:
        X, y, U = sample()
        with pytest.raises(ValueError, match="radius must be"):
            StochasticRobustLogisticRegression("predictive").fit(X, y, X_unlabeled=U)
