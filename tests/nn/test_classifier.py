"""The robust network of scikit-learn users: its certificate, its plumbing, and what it refuses."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from skorch.callbacks import Callback
from torch import nn

import surefoot as sf
from nn.networks import moons, two_layers
from refusals import refuses
from surefoot.nn import DualLoss, RobustNetClassifier
from surefoot.nn.classifier import EmbeddingMetric

torch.set_num_threads(1)

QUICK: dict[str, Any] = {"max_epochs": 2, "label_prior": [0.5, 0.5]}


class TwoLayers(nn.Module):
    """A class, which skorch builds itself: its weights depend on the seed."""

    def __init__(self, width: int = 8, n_outputs: int = 2) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, n_outputs))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layers(rows)


def small(M: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return moons(10, M)[:3]


def circle(rows: np.ndarray) -> np.ndarray:
    return np.column_stack([rows, np.linalg.norm(rows, axis=1)])


class TestCertificate:
    def test_a_network_beats_the_linear_model_on_two_moons(self) -> None:
        # 20 labels, 2,000 unlabeled rows, the true label probabilities, the distance to the truth as radius
        X, y, U, hidden = moons()
        rows, truth = np.vstack([X, U]), np.append(y, hidden)
        known: dict[str, Any] = {
            "radius": sf.transport_distance(X, y, rows, truth),
            "label_prior": np.bincount(truth) / len(truth),
        }
        linear = sf.RobustLogisticRegression(**known).fit(X, y, X_unlabeled=U)
        net = RobustNetClassifier(two_layers(), max_epochs=12, lr=0.02, **known).fit(X, y, X_unlabeled=U)
        assert net.certificate_.gap <= 1e-5
        assert net.certificate_.likelihood > linear.certificate_.likelihood + 0.1
        assert net.certificate_.risk >= log_loss(truth, net.predict_proba(rows))
        assert net.history[-1, "train_loss"] < net.history[0, "train_loss"]

    def test_is_that_of_certify(self) -> None:
        X, y, U = small()
        net = RobustNetClassifier(TwoLayers, radius=1.5, **QUICK).fit(X, y, X_unlabeled=U)
        found = sf.certify(net, X, y, X_unlabeled=U, radius=1.5, label_prior=[0.5, 0.5])
        assert net.certificate_.risk == pytest.approx(found.risk, abs=1e-6)
        assert net.worst_case_ is net.certificate_.worst_case
        assert net.radius_ == 1.5
        worst = net.worst_case_
        loss = -worst.row_weights @ (worst.label_proba * np.log(net.predict_proba(np.vstack([X, U])))).sum(axis=1)
        assert loss == pytest.approx(net.certificate_.lower, abs=1e-6)

    def test_speaks_of_the_network_at_that_time(self) -> None:
        X, y, U = small()
        net = RobustNetClassifier(TwoLayers, radius=1.5, warm_start=True, **QUICK).fit(X, y, X_unlabeled=U)
        first, fresh = net.certificate_, moons(5, 80)[2] + 0.01
        before = first.on_fresh_rows(fresh).mean
        weights = net.module_.layers[0].weight.detach().clone()
        net.fit(X, y, X_unlabeled=U)
        assert not torch.equal(weights, net.module_.layers[0].weight)  # warm: it went on from there
        assert first.on_fresh_rows(fresh).mean == before != net.certificate_.on_fresh_rows(fresh).mean

    @pytest.mark.parametrize("prior", ["clopper-pearson", [0.5, 0.5]], ids=["union", "one set"])
    def test_calibrated_radius(self, prior: Any) -> None:
        X, y, U = small()
        net = RobustNetClassifier(TwoLayers, label_prior=prior, max_epochs=2).fit(X, y, X_unlabeled=U)
        estimate = net.certificate_.estimate
        assert estimate is not None
        same = sf.calibrate_radius(X, y, X_unlabeled=U, label_prior=prior, metric="euclidean", label_cost=1.0)
        assert estimate.excess == pytest.approx(same.excess)
        assert len(net.criterion_.losses) == (2 if isinstance(prior, str) else 1)

    def test_three_classes_with_weights_in_another_metric(self) -> None:
        rng = np.random.default_rng(0)
        y = np.append(np.arange(12) % 3, rng.integers(3, size=80))
        X = rng.normal(size=(92, 2)) + 2 * np.array([[0, 0], [1, 0], [0, 1]])[y]
        names, weights = np.array(["a", "b", "c"])[y], rng.uniform(0.5, 2.0, size=12)
        keywords: dict[str, Any] = {"radius": 3.0, "metric": sf.costs.Mahalanobis(np.diag([1.0, 2.0]))}
        net = RobustNetClassifier(TwoLayers, module__n_outputs=3, max_epochs=2, **keywords)
        net.fit(X[:12], names[:12], weights, X_unlabeled=X[12:])
        found = sf.certify(net, X[:12], names[:12], X_unlabeled=X[12:], sample_weight=weights, **keywords)
        assert net.certificate_.risk == pytest.approx(found.risk, abs=1e-6)
        assert net.predict_proba(X).shape == (92, 3)
        assert set(net.predict(X)) <= {"a", "b", "c"}

    def test_embedding(self) -> None:
        X, y, U = small()
        features = nn.Linear(2, 3)
        keywords: dict[str, Any] = {"radius": 2.0, **QUICK}
        for embedding in (circle, features):
            net = RobustNetClassifier(TwoLayers, embedding=embedding, **keywords).fit(X, y, X_unlabeled=U)
            with torch.no_grad():
                A, B = (
                    embedding(rows) if embedding is circle else features(torch.as_tensor(rows).float()).double().numpy()
                    for rows in (X, U)
                )
            minimal = sf.minimal_radius(A, y, X_unlabeled=B, label_prior=[0.5, 0.5])
            assert net.certificate_.minimal_radius == pytest.approx(minimal, rel=1e-6)
            losses = -np.log(net.predict_proba(np.vstack([X, U])))
            found = sf.certify(None, A, y, X_unlabeled=B, radius=2.0, label_prior=[0.5, 0.5], losses=losses)
            assert net.certificate_.risk == pytest.approx(found.risk, abs=1e-6)
            assert np.isfinite(net.certificate_.on_fresh_rows(U + 0.01).mean)

    def test_an_embedding_is_held_fixed(self) -> None:
        module = nn.Linear(2, 2)
        metric, rows = EmbeddingMetric(module), np.eye(2)
        before = metric.distances(rows, rows)
        with torch.no_grad():
            module.weight.mul_(3.0)
        np.testing.assert_array_equal(metric.distances(rows, rows), before)


class Interrupt(Callback):
    """Ctrl-C in the third epoch."""

    def on_epoch_begin(self, net: Any, **keywords: Any) -> None:
        if len(net.history) == 3:
            raise KeyboardInterrupt


class TestPlumbing:
    def test_an_interrupted_training_is_certified(self) -> None:
        X, y, U = small()
        net = RobustNetClassifier(
            TwoLayers, radius=1.5, max_epochs=50, label_prior=[0.5, 0.5], callbacks=[Interrupt()]
        ).fit(X, y, X_unlabeled=U)
        assert len(net.history) == 3
        found = sf.certify(net, X, y, X_unlabeled=U, radius=1.5, label_prior=[0.5, 0.5])
        assert net.certificate_.risk == pytest.approx(found.risk, abs=1e-6)

    def test_pickling_and_clone(self) -> None:
        X, y, U = small()
        net = RobustNetClassifier(two_layers(), radius=1.5, **QUICK).fit(X, y, X_unlabeled=U)
        copy = pickle.loads(pickle.dumps(net))
        np.testing.assert_array_equal(copy.predict_proba(U), net.predict_proba(U))
        assert copy.certificate_.risk == net.certificate_.risk
        bare = clone(net)
        assert not hasattr(bare, "certificate_")
        assert (bare.radius, bare.max_epochs, bare.label_prior) == (1.5, 2, [0.5, 0.5])
        again = bare.fit(X, y, X_unlabeled=U)  # from the weights given, not from those learned
        np.testing.assert_array_equal(again.predict_proba(U), net.predict_proba(U))

    def test_a_seed_settles_the_result_and_leaves_torch_alone(self) -> None:
        X, y, U = small()
        state = torch.get_rng_state()
        nets = [
            RobustNetClassifier(TwoLayers, radius=1.5, random_state=seed, **QUICK).fit(X, y, X_unlabeled=U)
            for seed in (1, 1, 2)
        ]
        assert torch.equal(torch.get_rng_state(), state)
        first, again, other = (net.predict_proba(U) for net in nets)
        np.testing.assert_array_equal(first, again)
        assert np.abs(first - other).max() > 1e-3

    def test_frames_and_wrapped_rows(self) -> None:
        X, y, U = small()
        frames = [pd.DataFrame(rows, columns=["a", "b"]) for rows in (X, U)]
        net = RobustNetClassifier(TwoLayers, radius=1.5, **QUICK).fit(frames[0], y, X_unlabeled=sf.Unlabeled(frames[1]))
        plain = RobustNetClassifier(TwoLayers, radius=1.5, **QUICK).fit(X, y, X_unlabeled=U)
        np.testing.assert_array_equal(net.predict_proba(frames[1]), plain.predict_proba(U))
        assert net.feature_names_in_.tolist() == ["a", "b"]

    def test_progress_is_printed_when_asked(self, capsys: pytest.CaptureFixture[str]) -> None:
        X, y, U = small()
        RobustNetClassifier(TwoLayers, radius=1.5, verbose=1, **QUICK).fit(X, y, X_unlabeled=U)
        assert "train_loss" in capsys.readouterr().out
        RobustNetClassifier(TwoLayers, radius=1.5, **QUICK).fit(X, y)
        assert capsys.readouterr().out == ""

    def test_rows_of_zero_weight_are_not_drawn(self) -> None:
        X, y, U = small()
        weights = np.append(np.ones(9), 0.0)
        net = RobustNetClassifier(TwoLayers, radius=1.5, batch_size=16, **QUICK)
        seen: list[torch.Tensor] = []

        class Record(Callback):
            def on_batch_end(self, net: Any, batch: Any = None, training: bool = False, **keywords: Any) -> None:
                if training:
                    seen.append(batch[0])

        net.set_params(callbacks=[Record()]).fit(X, y, weights, X_unlabeled=U)
        left_out = torch.as_tensor(X[9], dtype=torch.float32)
        assert not (torch.cat(seen) == left_out).all(dim=1).any()
        assert len(torch.cat(seen)) == 2 * 70


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestCuda:
    def test_training_there_certificate_here(self) -> None:
        X, y, U = small()
        keywords: dict[str, Any] = {"radius": 1.5, **QUICK}
        net = RobustNetClassifier(two_layers(), device="cuda", **keywords).fit(X, y, X_unlabeled=U)
        assert next(net.module_.parameters()).is_cuda
        assert net.criterion_.losses[0].beta.is_cuda
        found = sf.certify(net, X, y, X_unlabeled=U, radius=1.5, label_prior=[0.5, 0.5])
        assert net.certificate_.risk == pytest.approx(found.risk, abs=1e-5)
        copy = pickle.loads(pickle.dumps(net))
        np.testing.assert_array_equal(copy.predict_proba(U), net.predict_proba(U))

    def test_objective_is_the_same(self) -> None:
        X, y, U = small()
        loss, network = DualLoss.from_labeled(X, y, X_unlabeled=U, radius=1.5), two_layers()
        rows = torch.as_tensor(U, dtype=torch.float32)
        here = loss(rows, network(rows)).item()
        rows = rows.cuda()
        assert loss.cuda()(rows, network.cuda()(rows)).item() == pytest.approx(here, abs=1e-5)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert loss(rows, network(rows)).dtype == torch.float32


class TestRefusals:
    def test_radii(self) -> None:
        X, y, U = small()
        with refuses("radius", 0):
            RobustNetClassifier(TwoLayers, radius="auto").fit(X, y, X_unlabeled=U)
        with pytest.raises(sf.InfeasibleRadiusError):
            RobustNetClassifier(TwoLayers, radius=1e-3).fit(X, y, X_unlabeled=U)

    def test_labels_and_outputs(self) -> None:
        X, y, U = small()
        with refuses("y", 2):
            RobustNetClassifier(TwoLayers, radius=2.0).fit(X, np.zeros(10), X_unlabeled=U)
        with refuses("logits", 2):
            RobustNetClassifier(TwoLayers, radius=2.0, module__n_outputs=3, **QUICK).fit(X, y, X_unlabeled=U)
        with refuses("embedding", "'pca'"):
            RobustNetClassifier(TwoLayers, radius=2.0, embedding="pca").fit(X, y, X_unlabeled=U)
        with refuses("embedding", 3):
            RobustNetClassifier(TwoLayers, radius=2.0, embedding=lambda rows: rows[:3]).fit(X, y, X_unlabeled=U)

    def test_a_criterion(self) -> None:
        X, y, U = small()
        net = RobustNetClassifier(TwoLayers, radius=2.0, criterion=nn.CrossEntropyLoss, **QUICK)
        with refuses("criterion"):
            net.fit(X, y, X_unlabeled=U)

    def test_before_a_fit(self) -> None:
        net = RobustNetClassifier(TwoLayers)
        with pytest.raises(NotFittedError):
            net.predict_proba([[0.0, 0.0]])
        with refuses("y"):
            net.initialize()

    def test_partial_fit(self) -> None:
        X, y, U = small()
        net = RobustNetClassifier(TwoLayers, radius=2.0, **QUICK).fit(X, y, X_unlabeled=U)
        with refuses("y"):
            net.partial_fit(X.astype(np.float32), y.astype(np.float32))
        assert isinstance(net.criterion_.losses[0], DualLoss)
