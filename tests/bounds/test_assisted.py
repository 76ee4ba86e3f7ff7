"""Label intervals helped by the unlabeled rows: shorter where rows tell the class, no worse where they do not."""

from __future__ import annotations

import numpy as np
import pytest

import surefoot as sf
from refusals import refuses
from surefoot.priors import AssistedPrior, ClopperPearson, HypergeometricPrior
from surefoot.priors.clopper_pearson import difference_estimate


def pool(seed: int, signal: float, N: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = (rng.random(N) < 0.3).astype(np.intp)
    return signal * y[:, None] + rng.normal(size=(N, 2)), y


def found(X: np.ndarray, y: np.ndarray, n: int) -> np.ndarray:
    return AssistedPrior().for_rows(X[:n], y[:n], 2, X[n:]).intervals(np.bincount(y[:n], minlength=2))


def test_rows_that_tell_the_class_shorten_the_intervals() -> None:
    X, y = pool(0, 4.0)
    helped, plain = found(X, y, 60), ClopperPearson().intervals(np.bincount(y[:60], minlength=2))
    assert np.ptp(helped[1]) < 0.7 * np.ptp(plain[1])
    np.testing.assert_allclose(helped[0], 1 - helped[1][::-1], atol=0.02)  # two classes: one is the other's mirror


def test_rows_that_say_nothing_leave_them_about_as_they_are() -> None:
    X, y = pool(1, 0.0)
    helped, plain = found(X, y, 60), ClopperPearson().intervals(np.bincount(y[:60], minlength=2))
    assert np.ptp(helped[1]) == pytest.approx(np.ptp(plain[1]), rel=0.15)


@pytest.mark.parametrize("signal", [0.0, 1.5, 4.0])
def test_coverage(signal: float) -> None:
    held = 0
    for seed in range(60):
        X, y = pool(100 + seed, signal)
        lo, hi = found(X, y, 40)[1]
        held += bool(lo <= y.mean() <= hi)
    assert held >= 54  # 57 are meant; seeded


def test_the_difference_estimate() -> None:
    rng = np.random.default_rng(0)
    guess = rng.random(200)
    hit = (rng.random(200) < guess).astype(float)
    share, counted = difference_estimate(hit, guess, 0.9)
    slope = np.clip(np.cov(hit, guess)[0, 1] / guess.var(ddof=1), 0, 1)
    assert share == pytest.approx(np.clip(hit.mean() + slope * (0.9 - guess.mean()), 0, 1))
    gain = hit.var(ddof=1) / (hit - slope * guess).var(ddof=1)
    assert counted == pytest.approx(200 + (gain - 1) * 190)
    assert difference_estimate(np.zeros(5), rng.random(5), 0.5) == (0.0, 5.0)
    assert difference_estimate(hit, hit, hit.mean())[1] == pytest.approx(200 + 3 * 190)  # four times, at most


def test_by_name_in_certify_and_in_a_fit() -> None:
    X, y = pool(3, 3.0, 160)
    clf = sf.RobustLogisticRegression(radius="calibrated", label_prior="assisted").fit(
        X[:30], y[:30], X_unlabeled=X[30:]
    )
    plain = sf.RobustLogisticRegression(radius="calibrated").fit(X[:30], y[:30], X_unlabeled=X[30:])
    width = np.ptp(clf.certificate_.label_intervals, axis=1)
    assert np.all(width < np.ptp(plain.certificate_.label_intervals, axis=1))
    exact = sf.certify(
        clf, X[:30], y[:30], X_unlabeled=X[30:], radius=9.0, label_prior="hypergeometric", loss="zero_one"
    )
    np.testing.assert_allclose(
        exact.label_intervals, HypergeometricPrior(160).intervals(np.bincount(y[:30])), atol=1e-12
    )


def test_three_classes_and_a_class_not_seen() -> None:
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, size=300)
    X = np.eye(3)[y] * 2 + rng.normal(size=(300, 3))
    intervals = AssistedPrior().for_rows(X[:50], y[:50], 4, X[50:]).intervals(np.ones(4))
    shares = np.bincount(y, minlength=4) / 300
    assert np.all((intervals[:, 0] <= shares) & (shares <= intervals[:, 1]))


def test_refusals() -> None:
    X, y = pool(0, 1.0)
    with refuses("X_unlabeled"):
        sf.RobustLogisticRegression(label_prior="assisted").fit(X[:30], y[:30])
    with refuses("label_prior"):
        AssistedPrior().intervals([3, 4])
    with refuses("level", 1.5):
        AssistedPrior(level=1.5)
