"""Impact functions: closed forms against numerical gradients, and torch against closed forms."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import surefoot as sf
from refusals import refuses
from surefoot.active.impact import (
    expected_model_change,
    gradient_impact,
    logistic_impact,
    max_model_change,
    min_model_change,
    torch_impact,
)
from surefoot.problem.losses import log_loss_matrix


def data(K: int, N: int = 40, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(K)
    y = rng.permutation(np.arange(N) % K)
    return rng.normal(size=(N, d)) + 0.8 * y[:, None], y


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("K", [2, 3, 4])
def test_the_closed_form_is_the_norm_of_the_gradient(K: int, intercept: bool) -> None:
    X, y = data(K)
    clf = LogisticRegression(fit_intercept=intercept).fit(X, y)
    impact = logistic_impact(clf, X[:5])
    theta = np.hstack([clf.coef_, clf.intercept_[:, None]]) if intercept else clf.coef_
    for j in range(5):
        x = np.append(X[j], 1.0) if intercept else X[j]
        for k in range(K):

            def loss(flat: np.ndarray, x: np.ndarray = x, k: int = k) -> float:
                scores = flat.reshape(theta.shape) @ x
                return float(log_loss_matrix(scores[None] if K > 2 else scores)[0, k])

            gradient = approx_fprime(theta.ravel(), loss, 1e-7)
            assert impact[j, k] == pytest.approx(np.linalg.norm(gradient), abs=1e-6)


def test_the_paper_s_forms() -> None:
    X, y = data(2)
    clf = LogisticRegression().fit(X, y)
    p, length = clf.predict_proba(X)[:, 1], np.sqrt(1 + np.square(X).sum(axis=1))  # the constant feature counts
    impact = logistic_impact(clf, X)
    emc = expected_model_change(impact, clf.predict_proba(X))
    np.testing.assert_allclose(emc, 2 * length * p * (1 - p), rtol=1e-12)
    np.testing.assert_allclose(min_model_change(impact), length * np.minimum(p, 1 - p), rtol=1e-12)
    printed = logistic_impact(clf, X, feature_norm=False)
    np.testing.assert_allclose(min_model_change(printed), np.minimum(p, 1 - p), rtol=1e-12)
    np.testing.assert_allclose(max_model_change(printed), np.maximum(p, 1 - p), rtol=1e-12)


def test_a_pipeline_s_last_step_is_what_changes() -> None:
    X, y = data(3)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    scaled = pipeline[0].transform(X)
    np.testing.assert_allclose(logistic_impact(pipeline, X), logistic_impact(pipeline[-1], scaled))


def test_the_estimators_of_this_package() -> None:
    X, y = data(2)
    clf = sf.RobustLogisticRegression(radius=2.0).fit(X[:15], y[:15], X_unlabeled=X[15:])
    p = clf.predict_proba(X)
    length = np.sqrt(1 + np.square(X).sum(axis=1))
    np.testing.assert_allclose(logistic_impact(clf, X), (1 - p) * length[:, None])


def test_classes_not_seen_yet_have_probability_zero() -> None:
    X, y = data(2)
    clf = LogisticRegression().fit(X, 2 * y)  # classes 0 and 2
    impact = logistic_impact(clf, X, classes=[0, 1, 2])
    p = np.insert(clf.predict_proba(X), 1, 0.0, axis=1)
    length = np.sqrt(1 + np.square(X).sum(axis=1))
    for k in range(3):
        np.testing.assert_allclose(impact[:, k], np.linalg.norm(p - np.eye(3)[k], axis=1) * length)
    with pytest.raises(ValueError, match=r"without \[2\]"):
        logistic_impact(clf, X, classes=[0, 1, 3])


def test_what_is_not_logistic_is_refused() -> None:
    X, y = data(3)
    with refuses("clf", "DecisionTreeClassifier"):
        logistic_impact(DecisionTreeClassifier().fit(X, y), X)
    one_vs_rest = SGDClassifier(loss="log_loss", random_state=0).fit(X, y)
    with refuses("clf", "SGDClassifier"):
        logistic_impact(one_vs_rest, X)
    with pytest.raises(ValueError, match="one shape"):
        expected_model_change(np.ones((3, 2)), np.ones((2, 2)))


@pytest.fixture
def torch() -> ModuleType:
    return pytest.importorskip("torch", reason="torch is not installed")


class TestTorch:
    """Per-sample gradients."""

    @pytest.mark.parametrize("K", [2, 3])
    def test_a_linear_module_has_the_closed_form(self, torch: ModuleType, K: int) -> None:
        X, y = data(K)
        clf = LogisticRegression().fit(X, y)
        module = torch.nn.Linear(3, len(clf.coef_), dtype=torch.float64)
        with torch.no_grad():
            module.weight.copy_(torch.as_tensor(clf.coef_))
            module.bias.copy_(torch.as_tensor(clf.intercept_))
        np.testing.assert_allclose(torch_impact(module, X, batch_size=7), logistic_impact(clf, X), rtol=1e-10)
        np.testing.assert_allclose(gradient_impact(module, X), logistic_impact(clf, X), rtol=1e-10)

    def test_a_deep_module_has_autograd_s_gradients_one_by_one(self, torch: ModuleType) -> None:
        torch.manual_seed(0)
        module = torch.nn.Sequential(
            torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.Tanh(), torch.nn.Linear(5, 3)
        ).double()
        module.train()
        X, _ = data(3, N=6)
        impact = torch_impact(module, X)
        last = torch_impact(module, X, parameters=lambda name: name.startswith("3."))
        assert module.training
        module.eval()
        for j in range(6):
            for k in range(3):
                module.zero_grad()
                torch.nn.functional.cross_entropy(module(torch.as_tensor(X[j : j + 1])), torch.tensor([k])).backward()
                squares = {name: float(p.grad.square().sum()) for name, p in module.named_parameters()}
                assert impact[j, k] == pytest.approx(np.sqrt(sum(squares.values())), rel=1e-10)
                of_last = sum(value for name, value in squares.items() if name.startswith("3."))
                assert last[j, k] == pytest.approx(np.sqrt(of_last), rel=1e-10)

    def test_no_parameters_are_refused(self, torch: ModuleType) -> None:
        with pytest.raises(ValueError, match="got none"):
            torch_impact(torch.nn.Linear(2, 2), np.ones((1, 2)), parameters=lambda _: False)
