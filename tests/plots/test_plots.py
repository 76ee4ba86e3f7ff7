"""Displays: what they draw is compared with stored images; `from_estimator` draws what the estimator says.

To draw the stored images again after a deliberate change: SUREFOOT_NEW_BASELINE=1 pytest tests/plots; then look at
them.
"""

from __future__ import annotations

import builtins
import os
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.testing.compare import compare_images
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.preprocessing import scale

import surefoot as sf
from refusals import refuses
from surefoot.estimators.curves import RadiusCurve
from surefoot.plots import CertificateDisplay, RadiusCurveDisplay, WorstCaseDisplay

BASELINE = Path(__file__).parent / "baseline"
# root-mean-square difference of pixels, of 255: fonts and line caps may differ a little between versions
TOLERANCE = 6.0


@pytest.fixture(autouse=True)
def plain_style() -> Any:
    with mpl.rc_context():
        mpl.rcdefaults()
        yield
    plt.close("all")


def assert_looks_like(figure: Any, name: str, tmp_path: Path) -> None:
    expected, drawn = BASELINE / f"{name}.png", tmp_path / f"{name}.png"
    if os.environ.get("SUREFOOT_NEW_BASELINE"):
        figure.savefig(expected, dpi=80)
        pytest.skip(f"{expected.name} was drawn anew: look at it")
    figure.savefig(drawn, dpi=80)
    difference = compare_images(str(expected), str(drawn), tol=TOLERANCE)
    assert difference is None, difference


def a_path(*, tested: bool = True) -> RadiusCurve:
    excess = np.geomspace(1e-3, 1.0, 12)
    share = 1.0 / (1.0 + 30.0 * excess)
    return RadiusCurve(
        radii=0.3 + excess,
        minimal_radius=0.3,
        risk=0.69 - 0.4 * share,
        lower=0.69 - 0.4 * share - 1e-5,
        median_confidence=0.5 + 0.4 * share,
        max_confidence=0.5 + 0.49 * share**0.5,
        coef=np.zeros((12, 1, 2)),
        intercept=np.zeros((12, 1)),
        status=["optimal"] * 12,
        test_score=0.9 * np.ones(12) if tested else None,
        test_likelihood=0.5 + 0.35 * share if tested else None,
    )


def a_certificate() -> sf.Certificate:
    return sf.Certificate(0.52, 0.50, 0.4, 0.3, np.array([[0.4, 0.6], [0.4, 0.6]]), "log_loss", "stopped")


def a_fresh_one(*, error: float = 0.08, reused: int = 0) -> sf.FreshCertificate:
    return sf.FreshCertificate(0.49 + error, 0.49, error, 0.95, "normal", 800, reused, reused == 0, "log_loss", 0.4)


class TestImages:
    def test_radius_path(self, tmp_path: Path) -> None:
        assert_looks_like(RadiusCurveDisplay.from_curve(a_path(), chosen=0.32).figure_, "radius_path", tmp_path)

    def test_radius_path_on_a_plain_axis(self, tmp_path: Path) -> None:
        display = RadiusCurveDisplay(a_path(tested=False)).plot(excess=False, threshold=None)
        assert_looks_like(display.figure_, "radius_path_plain", tmp_path)

    def test_worst_case(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        model = rng.uniform(size=200)
        adversary = np.clip(model + 0.4 * rng.normal(size=200), 0.0, 1.0)
        display = WorstCaseDisplay(model, adversary, n_labeled=20, class_name="benign").plot()
        assert_looks_like(display.figure_, "worst_case", tmp_path)

    def test_certificate(self, tmp_path: Path) -> None:
        display = CertificateDisplay.from_certificate(a_certificate(), training=0.21, fresh=a_fresh_one())
        assert_looks_like(display.figure_, "certificate", tmp_path)

    def test_certificate_alone(self, tmp_path: Path) -> None:
        assert_looks_like(CertificateDisplay.from_certificate(a_certificate()).figure_, "certificate_alone", tmp_path)

    def test_an_image_that_differs_is_noticed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SUREFOOT_NEW_BASELINE", raising=False)
        display = CertificateDisplay.from_certificate(a_certificate(), training=0.45)
        with pytest.raises(AssertionError, match="RMS"):
            assert_looks_like(display.figure_, "certificate_alone", tmp_path)


@pytest.fixture(scope="module")
def fitted() -> tuple[sf.RobustLogisticRegression, Any, Any, Any]:
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))[:200]
    X, y = scale(X)[order] / 10.0, y[order]
    clf = sf.RobustLogisticRegression(radius=0.6, label_prior=[0.4, 0.6]).fit(X[:30], y[:30], X_unlabeled=X[30:200])
    return clf, X[:30], y[:30], X[30:200]


class TestFromEstimator:
    def test_radius_path_draws_the_path_and_marks_the_radius(self, fitted: Any) -> None:
        clf, X, y, U = fitted
        radii = [0.6, 0.7, 1.2]
        _, ax = plt.subplots()
        display = RadiusCurveDisplay.from_estimator(clf, X, y, X_unlabeled=U, radii=radii, ax=ax)
        assert display.ax_ is ax
        assert display.figure_ is ax.figure
        path = sf.radius_curve(clf, X, y, X_unlabeled=U, radii=radii)
        np.testing.assert_array_equal(display.lines_["certified likelihood"].get_ydata(), path.likelihood)
        assert "test likelihood" not in display.lines_
        assert display.chosen == clf.radius_

    def test_worst_case_shows_both_probabilities(self, fitted: Any) -> None:
        clf, X, _, U = fitted
        display = WorstCaseDisplay.from_estimator(clf, X, X_unlabeled=U, label=0)
        np.testing.assert_allclose(display.model_proba, clf.predict_proba(np.vstack([X, U]))[:, 0])
        np.testing.assert_array_equal(display.adversary_proba, clf.worst_case_.label_proba[:, 0])
        assert display.class_name == "0"

    def test_worst_case_of_any_classifier(self, fitted: Any) -> None:
        _, X, y, U = fitted
        forest = RandomForestClassifier(10, random_state=0).fit(X, y)
        certificate = sf.certify(forest, X, y, X_unlabeled=U, radius=0.6, loss="zero_one")
        display = WorstCaseDisplay.from_estimator(forest, X, X_unlabeled=U, certificate=certificate)
        np.testing.assert_array_equal(display.adversary_proba, certificate.worst_case.label_proba[:, 1])

    def test_certificate_starts_at_the_training_loss(self, fitted: Any) -> None:
        clf, X, y, _ = fitted
        display = CertificateDisplay.from_estimator(clf, X, y)
        rows = np.arange(len(y))
        assert display.training == pytest.approx(-np.log(clf.predict_proba(X)[rows, y]).mean())
        widths = [patch.get_width() for patch in display.ax_.patches]
        assert sum(widths) == pytest.approx(clf.certificate_.risk)


class TestMessages:
    def test_rows_other_than_those_of_the_certificate(self, fitted: Any) -> None:
        clf, X, _, _ = fitted
        with refuses("X", 200, 30):
            WorstCaseDisplay.from_estimator(clf, X)

    def test_no_adversary(self) -> None:
        ball = sf.WassersteinLogisticRegression().fit([[0.0], [1.0]], [0, 1])
        with refuses("certificate"):
            WorstCaseDisplay.from_estimator(ball, [[0.0]])

    def test_probabilities_of_different_rows(self) -> None:
        with refuses("model_proba"):
            WorstCaseDisplay([0.1, 0.2], [0.3])

    def test_too_few_fresh_rows_and_reused_ones_are_said(self) -> None:
        for fresh, text in ((a_fresh_one(error=np.inf), "infinite"), (a_fresh_one(reused=3), "rows reused")):
            display = CertificateDisplay.from_certificate(a_certificate(), fresh=fresh)
            assert any(text in note.get_text() for note in display.ax_.texts)

    def test_without_matplotlib(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = builtins.__import__

        def no_matplotlib(name: str, *args: Any, **keywords: Any) -> Any:
            if name.startswith("matplotlib"):
                raise ImportError(name)
            return real(name, *args, **keywords)

        monkeypatch.setattr(builtins, "__import__", no_matplotlib)
        with pytest.raises(ImportError, match=r'pip install "surefoot\[plots\]"'):
            RadiusCurveDisplay.from_curve(a_path())
