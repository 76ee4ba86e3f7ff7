"""The dual objective in torch: its value, gradients and precision, and the ways in which torch runs it."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import surefoot as sf
from nn.networks import Robust, moons, run, small_robust, train_together, two_layers
from refusals import refuses
from surefoot.costs.learned import resolve_metric
from surefoot.dual.bounds import dual_value
from surefoot.dual.models import DualPoint, FixedLosses, LinearModel
from surefoot.nn import DualLoss
from surefoot.nn.classifier import FrozenNet, WorstOf
from surefoot.paper.stochastic_gradient import dual_subgradient
from surefoot.problem.sets import DecisionSet, build_decision_set

torch.set_num_threads(1)


def drawn(seed: int = 0, K: int = 3, N: int = 50, n: int = 9) -> tuple[np.ndarray, DecisionSet, np.ndarray]:
    """Rows, a decision set over them with intervals and weights, and its anchors; the last class shows no label."""
    rng = np.random.default_rng(seed)
    codes = np.append(np.arange(K - 1), rng.integers(K - 1, size=n - K + 1))
    X, p = rng.normal(size=(N, 2)), rng.dirichlet(np.full(K, 4.0))
    ds = build_decision_set(
        X[:n],
        codes,
        K,
        X_unlabeled=X[n:],
        radius=3.0,
        label_prior=np.column_stack([0.8 * p, np.minimum(1.2 * p, 1.0)]),
        label_cost=rng.uniform(0.3, 1.5, size=(K, K)) * (1 - np.eye(K)),
        sample_weight=rng.uniform(0.3, 2.0, size=n),
    )
    assert ds.anchor_rows is not None
    return X, ds, X[:n][ds.anchor_rows]


def at_random(loss: DualLoss, seed: int = 1) -> DualLoss:
    rng = np.random.default_rng(seed)
    point = DualPoint(
        np.zeros((0, 0)), 0.7, rng.normal(size=loss.n_classes), rng.normal(size=len(loss.beta.detach()))
    )  # fmt: skip
    return loss.set_duals_from(point)


class TestObjective:
    @pytest.mark.parametrize("seed", range(3))
    def test_value_and_gradients_are_those_of_the_exact_dual(self, seed: int) -> None:
        X, ds, anchors = drawn(seed)
        model = LinearModel(np.hstack([X, np.ones((50, 1))]), np.zeros(3), 3)
        theta = torch.tensor(np.random.default_rng(seed).normal(size=(2, 3)), requires_grad=True)
        loss = at_random(DualLoss(ds, anchors).double(), seed)
        loss.anchors = torch.as_tensor(anchors)  # without the rounding of single precision
        loss.anchor_weights, loss.label_cost = (
            torch.as_tensor(ds.anchor_weights),
            torch.as_tensor(ds.present_label_cost),
        )
        loss.intervals = torch.as_tensor(ds.intervals)
        rows, weights = torch.as_tensor(X), torch.as_tensor(ds.row_weights)
        logits = torch.cat([torch.zeros(50, 1), torch.as_tensor(model.X) @ theta.T], dim=1)
        value = loss(rows, logits, weights)
        value.backward()
        point = DualPoint(theta.detach().numpy(), loss.point.alpha, loss.point.lam, loss.point.beta)
        assert value.item() == pytest.approx(dual_value(ds, model, point), rel=1e-12)
        lam = point.lam
        _, expected = dual_subgradient(
            ds, model, point.theta, point.alpha, point.beta, np.maximum(lam, 0), np.maximum(-lam, 0)
        )
        for found, name in [(theta, "theta"), (loss.alpha, "alpha"), (loss.beta, "beta")]:
            np.testing.assert_allclose(found.grad, expected[name].reshape(found.shape), atol=1e-12)
        net = np.where(lam >= 0, expected["lam_hi"], -expected["lam_lo"])
        np.testing.assert_allclose(loss.lam.grad, net, atol=1e-12)

    def test_no_array_of_rows_by_anchors_by_classes(self) -> None:
        X, ds, anchors = drawn(K=6, N=400, n=60)
        loss, sizes = DualLoss(ds, anchors), []
        rows, logits = torch.as_tensor(X, dtype=torch.float32), torch.zeros(400, 6, requires_grad=True)
        note = torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t)
        with note:
            loss(rows, logits).backward()
        assert max(sizes) <= 400 * 60

    @pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev"])
    def test_metrics(self, metric: str) -> None:
        X, ds, anchors = drawn()
        rows = torch.as_tensor(X, dtype=torch.float32)
        expected = resolve_metric(metric).distances(X, anchors)
        named = DualLoss(ds, anchors, metric)
        np.testing.assert_allclose(named.distances(rows), expected, atol=1e-6)
        own = DualLoss(ds, anchors, lambda a, b: named.distances(a))
        given = DualLoss(ds, None, "precomputed")
        logits = torch.zeros(50, 3)
        values = [at_random(named)(rows, logits), at_random(own)(rows, logits)]
        values.append(at_random(given)(torch.as_tensor(expected, dtype=torch.float32), logits))
        np.testing.assert_allclose(torch.stack(values).detach(), values[0].item(), rtol=1e-6)

    def test_one_logit_stands_for_two_classes(self) -> None:
        X, y, U, _ = moons(10, 30)
        loss = DualLoss.from_labeled(X, y, X_unlabeled=U, radius=2.0)
        rows, s = torch.as_tensor(U, dtype=torch.float32), torch.linspace(-2, 2, 30)
        pair = torch.stack([torch.zeros(30), s], dim=1)
        for logits in (s, s[:, None]):
            assert torch.equal(loss(rows, logits), loss(rows, pair))

    def test_projection(self) -> None:
        loss = at_random(DualLoss(*drawn()[1:]))
        beta, lam = loss.beta.clone(), loss.lam.clone()
        with torch.no_grad():
            loss.alpha.fill_(-0.5)
        assert loss.project_() is loss
        assert loss.alpha.item() == 0.0
        assert torch.equal(loss.beta, beta)
        assert torch.equal(loss.lam, lam)

    def test_the_worst_of_two_sets(self) -> None:
        X, ds, anchors = drawn()
        parts = [at_random(DualLoss(ds.with_radius(radius), anchors), seed=3) for radius in (2.0, 3.0)]
        union, rows = WorstOf(parts), torch.as_tensor(X, dtype=torch.float32)
        logits = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
        values = [part(rows, logits) for part in parts]
        worst = int(torch.stack(values).argmax())
        expected = torch.autograd.grad(values[worst], logits, retain_graph=True)[0]
        own = [torch.autograd.grad(v, part.beta)[0] for v, part in zip(values, parts, strict=True)]
        value = union(rows, logits)
        value.backward()
        assert value.item() == pytest.approx(values[worst].item(), rel=1e-6)
        np.testing.assert_allclose(logits.grad, expected, atol=1e-8)
        for part, beta in zip(parts, own, strict=True):
            np.testing.assert_allclose(part.beta.grad, beta, atol=1e-7)
        with torch.no_grad():
            parts[0].alpha.fill_(-1.0)
        union.project_()
        assert parts[0].alpha.item() == 0.0


class TestDuals:
    def test_those_of_a_certificate_are_optimal(self) -> None:
        X, y, U, _ = moons(12, 200)
        network, radius = two_layers(), sf.minimal_radius(X, y, X_unlabeled=U, label_prior="clopper-pearson") + 0.1
        rows = torch.as_tensor(np.vstack([X, U]), dtype=torch.float32)
        loss = DualLoss.from_labeled(X, y, X_unlabeled=U, radius=radius, start=False)
        assert not loss.beta.any()
        before = loss(rows, network(rows)).item()
        found = sf.certify(FrozenNet(network, np.array([0, 1])), X, y, X_unlabeled=U, radius=radius)
        after = loss.set_duals_from(found)(rows, network(rows)).item()
        assert after == pytest.approx(found.risk, abs=1e-5)
        assert before > after + 1e-2

    def test_start_is_that_of_a_linear_classifier(self) -> None:
        X, y, U, _ = moons(12, 200)
        radius = sf.minimal_radius(X, y, X_unlabeled=U, label_prior="clopper-pearson") + 0.1
        clf = sf.RobustLogisticRegression(radius=radius).fit(X, y, X_unlabeled=U)
        loss = DualLoss.from_labeled(X, y, X_unlabeled=U, radius=radius)
        rows = np.vstack([X, U])
        scores = torch.as_tensor(clf.decision_function(rows), dtype=torch.float32)
        value = loss(torch.as_tensor(rows, dtype=torch.float32), scores).item()
        assert clf.certificate_.lower - 1e-4 <= value <= clf.certificate_.risk + 5e-2

    def test_a_point_bounds_any_network(self) -> None:
        X, ds, anchors = drawn()
        loss = at_random(DualLoss(ds, anchors))
        network = two_layers(K=3)
        rows = torch.as_tensor(X, dtype=torch.float32)
        logits = network(rows)
        losses = loss.losses(logits).detach().double().numpy()
        value = loss(rows, logits, torch.as_tensor(ds.row_weights, dtype=torch.float32)).item()
        assert value == pytest.approx(dual_value(ds, FixedLosses(losses), loss.point), abs=1e-5)


OPTIMIZERS: list[tuple[Any, dict[str, float]]] = [
    (torch.optim.SGD, {"lr": 0.05}),
    (torch.optim.Adam, {"lr": 0.02}),
    (torch.optim.AdamW, {"lr": 0.02}),
    (torch.optim.RMSprop, {"lr": 0.01}),
    (torch.optim.Adagrad, {"lr": 0.1}),
]


class TestTorch:
    @pytest.mark.parametrize(("optimizer", "keywords"), OPTIMIZERS, ids=lambda o: getattr(o, "__name__", ""))
    def test_any_optimizer(self, optimizer: Any, keywords: dict[str, float]) -> None:
        robust, rows = small_robust()
        optim, first = optimizer(robust.parameters(), **keywords), robust(rows).item()
        for _ in range(60):
            optim.zero_grad()
            robust(rows).backward()
            optim.step()
            robust.loss.project_()
        assert robust(rows).item() < first - 0.02
        assert robust.loss.alpha.item() >= 0

    @pytest.mark.parametrize("backend", ["eager", "aot_eager"])
    def test_compile(self, backend: str) -> None:
        self._compiled_as_plain(backend)

    @pytest.mark.slow
    @pytest.mark.skipif(shutil.which("g++") is None, reason="torch's inductor needs a C++ compiler, g++")
    def test_compile_with_inductor(self) -> None:
        self._compiled_as_plain("inductor")

    def _compiled_as_plain(self, backend: str) -> None:
        torch._dynamo.reset()
        plain, rows = small_robust()
        fast, _ = small_robust()
        compiled = torch.compile(fast, backend=backend, fullgraph=True)
        run(plain, plain.loss, rows, 5)
        run(compiled, fast.loss, rows, 5)
        for ours, theirs in zip(plain.parameters(), fast.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)

    def test_mixed_precision(self) -> None:
        X, y, U, _ = moons(10, 90)
        robust = Robust(two_layers(), DualLoss.from_labeled(X, y, X_unlabeled=U, radius=1.5))
        rows = torch.as_tensor(np.vstack([X, U]), dtype=torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = robust.network(rows)
            value = robust.loss(rows, logits)
        assert logits.dtype == torch.bfloat16
        assert value.dtype == torch.float32
        assert torch.equal(value, robust.loss(rows, logits.float()))  # nothing but the logits was rounded
        value.backward()
        assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in robust.parameters())

    @pytest.mark.parametrize("cast", [nn.Module.bfloat16, nn.Module.half])
    def test_duals_stay_in_single_precision(self, cast: Any) -> None:
        X, y, U, _ = moons(10, 90)
        robust = Robust(two_layers(), DualLoss.from_labeled(X, y, X_unlabeled=U, radius=1.5))
        before = {name: p.clone() for name, p in robust.loss.state_dict().items()}
        cast(robust)
        assert robust.network[0].weight.dtype in (torch.bfloat16, torch.float16)
        for name, value in robust.loss.state_dict().items():
            assert value.dtype == torch.float32
            assert torch.equal(value, before[name])
        rows = torch.as_tensor(U).to(robust.network[0].weight.dtype)
        assert robust(rows).dtype == torch.float32
        assert robust.double().loss.beta.dtype == torch.float64
        assert cast(robust).loss.beta.dtype == torch.float32

    def test_two_processes_do_what_one_does(self, tmp_path: Path) -> None:
        out = tmp_path / "parameters.pt"
        torch.multiprocessing.spawn(train_together, args=(2, str(tmp_path / "store"), str(out)), nprocs=2)
        alone, rows = small_robust()
        start = alone.loss.beta.detach().clone()
        run(alone, alone.loss, rows, 30)
        for name, value in torch.load(out).items():
            torch.testing.assert_close(value, alone.state_dict()[name], rtol=0, atol=1e-6)
        assert (alone.loss.beta - start).abs().max() > 1e-2

    def test_state_dict_round_trip(self) -> None:
        first, second = at_random(DualLoss(*drawn()[1:])), DualLoss(*drawn()[1:])
        second.load_state_dict(first.state_dict())
        assert torch.equal(first.beta, second.beta)
        assert first.point.alpha == second.point.alpha


class TestRefusals:
    def test_an_empty_set(self) -> None:
        X, y, U, _ = moons(10, 90)
        with pytest.raises(sf.InfeasibleRadiusError):
            DualLoss.from_labeled(X, y, X_unlabeled=U, radius=1e-3)

    def test_shapes_and_metrics(self) -> None:
        X, ds, anchors = drawn()
        loss, rows = DualLoss(ds, anchors), torch.as_tensor(X, dtype=torch.float32)
        with refuses("logits", 3, "(50, 4)"):
            loss(rows, torch.zeros(50, 4))
        with refuses("distances", "(50, 9)"):
            DualLoss(ds, None, "precomputed")(rows, torch.zeros(50, 3))
        with refuses("anchors"):
            DualLoss(ds, None)
        with refuses("anchors", 9):
            DualLoss(ds, anchors[:4])
        with refuses("metric", "'precomputed'"):
            DualLoss(ds, anchors, sf.costs.Mahalanobis(np.eye(2)))
        for metric in (sf.costs.Mahalanobis(np.eye(2)), lambda a, b: 0.0):
            with refuses("metric"):
                DualLoss.from_labeled(X[:4], [0, 1, 0, 1], radius=3.0, metric=metric)
        with refuses("losses"):
            WorstOf([])

    def test_certificates_of_other_problems(self) -> None:
        X, y, U, _ = moons(10, 90)
        loss = DualLoss.from_labeled(X, y, X_unlabeled=U, radius=1.5, start=False)
        other = sf.RobustLogisticRegression(radius=1.5).fit(X[:8], y[:8], X_unlabeled=U)
        with refuses("certificate", "(8, 2)"):
            loss.set_duals_from(other.certificate_)
        ball = sf.WassersteinLogisticRegression().fit(X, y)
        with refuses("certificate"):
            loss.set_duals_from(ball.certificate_)


class TestWithoutPackages:
    @staticmethod
    def _fresh(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
        """As if a package were not installed, and surefoot.nn not imported yet."""
        for name in [name for name in sys.modules if name.startswith("surefoot.nn")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, missing, None)

    def test_torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._fresh(monkeypatch, "torch")
        with pytest.raises(ImportError, match=r'needs PyTorch.*pip install "surefoot\[torch\]"'):
            importlib.import_module("surefoot.nn")

    def test_skorch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._fresh(monkeypatch, "skorch")
        package = importlib.import_module("surefoot.nn")
        assert package.DualLoss.__name__ == "DualLoss"
        with pytest.raises(ImportError, match=r'needs skorch.*pip install "surefoot\[torch\]"'):
            package.RobustNetClassifier  # noqa: B018 - the import happens on access
        with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
            package.Nothing  # noqa: B018
