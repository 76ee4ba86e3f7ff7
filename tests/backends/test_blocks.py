"""Rows in blocks give the certificate of rows in memory, bit for bit the same one wherever they lie."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.naive_bayes import GaussianNB

import surefoot as sf
from generators import SMALL_BLOCKS, BlockPool
from refusals import Refused, refuses, warns
from surefoot.paper import StochasticRobustLogisticRegression
from surefoot.solvers import transport


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("prior", ["clopper-pearson", "exact", None])
def test_the_bounds_hold_the_optimum_of_the_solver_in_memory(K: int, prior: str | None) -> None:
    pool = BlockPool.draw(K)
    label_prior: Any = np.full(K, 1.0 / K) if prior == "exact" else prior
    radius = sf.minimal_radius(pool.X, pool.y, X_unlabeled=pool.U, label_prior=label_prior) + 0.02
    tight = pool.fit(pool.U, None, radius=radius, label_prior=label_prior, tol=1e-7).certificate_
    found = pool.fit(pool.U, radius=radius, label_prior=label_prior).certificate_
    assert found.status == "optimal"
    assert found.lower <= tight.risk + 1e-12
    assert found.risk >= tight.lower - 1e-12
    assert found.gap <= 1e-4
    assert found.minimal_radius == pytest.approx(tight.minimal_radius, rel=2e-5)
    assert found.minimal_radius >= tight.minimal_radius * (1.0 - 1e-12)


def test_every_source_gives_the_same_certificate(tmp_path: Path) -> None:
    pool = BlockPool.draw(M=1300)
    first = pool.fit(pool.U)
    for source in (pool.memmap(tmp_path), pool.parquet(tmp_path), sf.Unlabeled(pool.U)):
        other = pool.fit(source)
        assert other.certificate_.risk == first.certificate_.risk
        assert other.certificate_.lower == first.certificate_.lower
        np.testing.assert_array_equal(other.coef_, first.coef_)
    threads = pool.fit(pool.U, n_jobs=2)
    assert threads.certificate_.risk == first.certificate_.risk
    forgetful = pool.fit(pool.U, sf.Compute(block_rows=256, memory=0)).certificate_
    assert forgetful.risk == pytest.approx(first.certificate_.risk, abs=1e-12)


def test_another_block_length_changes_rounding_alone() -> None:
    pool = BlockPool.draw()
    risks = [pool.fit(pool.U, sf.Compute(block_rows=rows)).certificate_.risk for rows in (64, 256, 1 << 16)]
    assert np.ptp(risks) < 1e-9


def test_the_worst_case_is_feasible_and_forces_the_lower_bound() -> None:
    pool = BlockPool.draw()
    clf = pool.fit(pool.U)
    worst, certificate = clf.worst_case_, clf.certificate_
    assert worst.label_proba.shape == (len(pool.X) + len(pool.U), 2)
    np.testing.assert_allclose(worst.label_proba.sum(axis=1), 1.0, atol=1e-12)
    lo, hi = certificate.label_intervals.T
    assert np.all((worst.label_probabilities >= lo - 1e-9) & (worst.label_probabilities <= hi + 1e-9))
    assert worst.transport_cost <= certificate.radius * (1.0 + 1e-9)
    everything = np.vstack([pool.X, pool.U])
    loss = -(worst.label_proba * clf.predict_log_proba(everything)).sum(axis=1)
    assert certificate.lower <= worst.row_weights @ loss <= certificate.risk + 1e-9


def test_sample_weights_and_a_penalty() -> None:
    pool = BlockPool.draw()
    weights = np.random.default_rng(1).integers(1, 4, len(pool.X)).astype(float)
    fits = []
    for compute in (None, sf.Compute(block_rows=256)):
        clf = sf.RobustLogisticRegression(radius=pool.radius + 0.1, compute=compute, l2=0.01, tol=1e-6)
        fits.append(clf.fit(pool.X, pool.y, weights, X_unlabeled=pool.U))
    assert fits[1].certificate_.risk == pytest.approx(fits[0].certificate_.risk, abs=2e-5)
    np.testing.assert_allclose(fits[1].coef_, fits[0].coef_, atol=1e-2)


def test_auto_and_calibrated_radii() -> None:
    pool = BlockPool.draw()
    auto = pool.fit(pool.U, radius="auto")
    memory = pool.fit(pool.U, None, radius="auto")
    assert auto.radius_ == pytest.approx(memory.radius_, rel=0.02)
    prior = np.array([0.5, 0.5])
    calibrated = pool.fit(pool.U, radius="calibrated", label_prior=prior)
    assert calibrated.certificate_.estimate is not None
    assert calibrated.radius_ == pytest.approx(
        pool.fit(pool.U, None, radius="calibrated", label_prior=prior).radius_, rel=1e-4
    )


@pytest.mark.parametrize("K", [2, 3])
def test_a_calibrated_radius_with_label_intervals_is_a_union_over_blocks_too(K: int) -> None:
    pool = BlockPool.draw(K)
    found, memory = (pool.fit(pool.U, how, radius="calibrated").certificate_ for how in (SMALL_BLOCKS, None))
    assert found.status == "optimal"
    assert found.estimate is not None
    assert found.gap <= 1e-4
    assert found.lower <= memory.risk + 2e-5  # the minimal radii differ by up to 1e-5
    assert found.risk >= memory.lower - 2e-5
    assert found.worst_case.transport_cost == pytest.approx(memory.worst_case.transport_cost, abs=5e-3)


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("loss", ["zero_one", "log_loss"])
def test_fixed_losses_over_blocks_end_at_a_vertex(loss: str) -> None:
    pool = BlockPool.draw()
    bayes = GaussianNB().fit(pool.X, pool.y)
    found = sf.certify(bayes, pool.X, pool.y, X_unlabeled=pool.U, radius=pool.radius, loss=loss, compute=SMALL_BLOCKS)
    exact = sf.certify(bayes, pool.X, pool.y, X_unlabeled=pool.U, radius=pool.radius, loss=loss, tol=1e-8)
    assert found.gap <= 1e-10
    assert found.stages[-1] == "vertex"
    assert found.risk == pytest.approx(exact.risk, abs=1e-8)


def test_an_empty_set_is_refused() -> None:
    pool = BlockPool.draw()
    with pytest.raises(sf.InfeasibleRadiusError):
        pool.fit(pool.U, radius=1e-3)


def test_fresh_rows_are_known_from_used_ones() -> None:
    pool = BlockPool.draw()
    certificate = pool.fit(pool.U).certificate_
    assert certificate.on_fresh_rows(pool.U[:50]).reused_rows == 50
    assert certificate.on_fresh_rows(pool.U[:50] + 1e-3).reused_rows == 0


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("loss", ["zero_one", "log_loss"])
def test_any_classifier_is_certified(tmp_path: Path, loss: str) -> None:
    pool = BlockPool.draw()
    forest = RandomForestClassifier(10, random_state=0).fit(pool.X, pool.y)
    asked = {"radius": pool.radius, "loss": loss}
    exact = sf.certify(forest, pool.X, pool.y, X_unlabeled=pool.U, tol=1e-6, **asked)  # so fine a tol is met in memory
    found = sf.certify(forest, pool.X, pool.y, X_unlabeled=pool.memmap(tmp_path), tol=1e-4, **asked)
    assert found.lower - 1e-9 <= exact.risk <= found.risk + 1e-9
    assert exact.gap <= 1e-6
    assert found.gap <= 1e-4
    assert found.loss == loss
    assert sf.certify(forest, pool.X, pool.y, X_unlabeled=pool.U, **asked).gap <= 1e-5


def test_minimal_radius_from_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = BlockPool.draw(M=1200)
    exact = sf.minimal_radius(pool.X, pool.y, X_unlabeled=pool.U)
    assert sf.minimal_radius(pool.X, pool.y, X_unlabeled=pool.memmap(tmp_path)) == exact
    monkeypatch.setattr("surefoot.problem.placement.MOST_DISTANCES", 0)
    found = sf.minimal_radius(pool.X, pool.y, X_unlabeled=pool.memmap(tmp_path))
    assert exact * (1 - 1e-12) <= found <= exact * (1 + 2e-5)


def test_with_few_rows_per_anchor_the_transport_is_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over few pairs at a time, whatever the source; the bounds are those of the solver in memory."""
    pool = BlockPool.draw(K=3, n=60, M=500)
    radius = pool.radius
    expected = pool.fit(pool.U, compute=None, radius=radius, tol=1e-5).certificate_
    soft = pool.fit(pool.U, radius=radius).certificate_
    monkeypatch.setattr(transport, "_PAIRS_ENTRIES", 0)
    found = [pool.fit(U, radius=radius, tol=1e-5).certificate_ for U in (pool.U, pool.memmap(tmp_path))]
    for one in found:
        assert one.minimal_radius == pytest.approx(expected.minimal_radius, rel=1e-12)
        assert abs(soft.minimal_radius - expected.minimal_radius) > 1e-9  # the other way leaves a gap
        assert one.gap <= 1e-5
        assert one.lower <= expected.risk
        assert expected.lower <= one.risk
    assert found[0].risk == found[1].risk
    assert found[0].lower == found[1].lower


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"precision": "float16"}, ("precision", "'float16'")),
        ({"memory": -1}, ("memory", -1)),
        ({"block_rows": 0}, ("block_rows", 0)),
        ({"precision": "float32"}, "precision"),
    ],
)
def test_bad_options_are_refused(arguments: dict[str, Any], message: Refused) -> None:
    with refuses(message):
        sf.Compute(**arguments)


@pytest.mark.usefixtures("in_blocks")
def test_rows_in_blocks_need_the_exact_solver_and_a_metric(tmp_path: Path) -> None:
    pool = BlockPool.draw()
    with refuses("X_unlabeled"):
        StochasticRobustLogisticRegression(1.0, None).fit(pool.X, pool.y, X_unlabeled=pool.memmap(tmp_path))
    with refuses("metric"):
        pool.fit(pool.U, metric=sf.costs.Precomputed(np.zeros((len(pool.X), len(pool.X)))))


def test_too_few_steps_are_said() -> None:
    pool = BlockPool.draw()
    with warns("gap", ConvergenceWarning):
        certificate = pool.fit(pool.U, max_iter=3).certificate_
    assert certificate.status == "stopped"
    assert certificate.lower <= certificate.risk


MEMORY = """
import resource, sys
import numpy as np, surefoot as sf
rows = np.lib.format.open_memmap(sys.argv[1], mode="r")
n = 100
X, y = np.array(rows[:n]), np.arange(n) % 2
X[:, 0] += y
clf = sf.RobustLogisticRegression(radius=2.0, label_prior=None, tol=0.5, compute=sf.Compute(memory=0))
clf.fit(X, y, X_unlabeled=rows[:3000])  # compiles
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]), used + int(sys.argv[2])))
print(clf.fit(X, y, X_unlabeled=rows).certificate_.gap < 0.5)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS and /proc are Linux's")
def test_the_distances_are_never_held(tmp_path: Path) -> None:
    # the distances are 48 MB; the solver gets two thirds of that beyond what it has after a first small fit
    rows = np.lib.format.open_memmap(tmp_path / "rows.npy", mode="w+", dtype=np.float64, shape=(60_000, 2))
    rows[:] = np.random.default_rng(0).normal(size=rows.shape)
    rows.flush()
    limited = [sys.executable, "-c", MEMORY, str(tmp_path / "rows.npy"), str(8 * 60_000 * 100 * 2 // 3)]
    found = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert found.stdout.strip() == "True", found.stderr[-2000:]
