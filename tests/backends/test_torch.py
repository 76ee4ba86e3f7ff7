"""The passes of torch are those of the compiled loops, on the CPU and, where there is one, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import surefoot as sf
from generators import BlockPool
from refusals import refuses
from surefoot.backends.block_rows import BlockStore
from surefoot.backends.blocks import BlockedProblem
from surefoot.backends.sources import ArrayRows
from surefoot.costs.metrics import CallableMetric
from surefoot.dual.adversary import mixture
from surefoot.dual.block import Block, DualProblem
from surefoot.dual.row_sums import RowSums
from surefoot.kernels.arrays import arrays_of
from surefoot.problem.rows import LabeledData
from surefoot.solvers.search.solution import Solution

DEVICES = [
    "torch",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")),
]


@pytest.fixture(scope="module", params=[2, 3])
def solved(request: pytest.FixtureRequest) -> tuple[dict[str, BlockStore], DualProblem, Solution]:
    """The sweeps of each device over one problem, and its solution."""
    pool = BlockPool.draw(request.param, M=500)
    data = LabeledData.check(pool.X, pool.y, sample_weight=None, classes=None, metric="euclidean")
    ds = data.decision_set("clopper-pearson", 1.0)
    problems = {
        device: BlockedProblem.from_labeled_set(data, ds, ArrayRows(pool.U), how)
        for device, how in {
            "cpu": sf.Compute(),
            "torch": sf.Compute("torch"),
            "cuda": sf.Compute("cuda", "float64"),
        }.items()
        if device != "cuda" or torch.cuda.is_available()
    }
    game = problems["cpu"].linear(0.0, True)
    solution = game.solve(problems["cpu"].at_excess(0.02), tol=1e-3)
    coordinates = game.coordinates
    assert coordinates is not None
    sweeps = {device: one.sweeps[-1].in_coordinates(coordinates) for device, one in problems.items()}
    return sweeps, DualProblem.from_decision_set(solution.decision_set, game.model), solution


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("tau", [0.3, 1e-2, 1e-3])
def test_sums_of_the_solver(solved: Any, device: str, tau: float) -> None:
    sweeps, problem, solution = solved
    ours, theirs = (
        vars(sweeps[who].row_sums(problem, solution.point, tau, second_order=True, exact=True))
        for who in ("cpu", device)
    )
    assert list(ours) == list(RowSums.__dataclass_fields__)
    for name, mine in ours.items():
        lower = np.tril if name == "beta_beta" else np.asarray
        found = arrays_of(theirs[name]).fetch(theirs[name])
        # the Hessian of the fused kernels consists of products of weights with about 22 bits
        rough = device == "cuda" and name in ("beta_beta", "theta_beta")
        np.testing.assert_allclose(lower(found), lower(mine), atol=1e-6 if rough else 1e-10, err_msg=name)


@pytest.mark.parametrize("device", DEVICES)
def test_newton_systems_are_solved_on_the_device(solved: Any, device: str) -> None:
    sweep = solved[0][device]
    rng = np.random.default_rng(0)
    root, right = rng.normal(size=(30, 30)), rng.normal(size=30)
    matrix = root @ root.T + np.eye(30)
    found = sweep.factorized(np.tril(matrix))(right)  # of the upper triangle nothing is read
    np.testing.assert_allclose(matrix @ found, right, atol=1e-10)
    with pytest.raises(np.linalg.LinAlgError):
        sweep.factorized(-matrix)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("away", [0.0, 0.4, 1.0])
def test_sums_of_the_bounds(solved: Any, device: str, away: float) -> None:
    sweeps, problem, solution = solved
    point, tau = solution.point, solution.path.tau
    here, there = sweeps["cpu"], sweeps[device]
    nearest = solution.minimal_radius.adversary
    adversary = mixture([solution.adversary, nearest], np.array([1.0 - away, away]))
    repair = here.anchor_repair(problem, point, tau)
    passes: list[tuple[Any, ...]] = [
        (Block.dual_rows, point),
        (Block.plan_mass, point, tau),
        (Block.plan_cost, point, tau, repair),
        (Block.label_shares, adversary),
        (Block.logistic_start, adversary, point.theta),
        (Block.logistic_local, adversary, point.theta),
        (Block.logistic_moved, adversary, point.theta, 0.1 * point.theta),
    ]
    for work, *parameters in passes:
        mine, theirs = (sweep.total(problem, work, *parameters) for sweep in (here, there))
        for a, b in zip(mine.sums, theirs.sums, strict=True):
            np.testing.assert_allclose(b, a, atol=1e-12, err_msg=work.__name__)
        np.testing.assert_allclose(theirs.largest, mine.largest, atol=1e-10)
    q = [sweep.gather(problem, Block.labels, adversary) for sweep in (here, there)]
    np.testing.assert_allclose(q[1], q[0], atol=1e-12)
    triples = [sweep.gather(problem, Block.near_triples, point, 0.01) for sweep in (here, there)]
    np.testing.assert_allclose(triples[1], triples[0], atol=1e-12)
    np.testing.assert_array_equal(*(sweep.fingerprints() for sweep in (here, there)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("metric", ["manhattan", "chebyshev", sf.costs.Mahalanobis(np.diag([1.0, 2.0, 3.0]))])
def test_a_fit_and_its_metric(device: str, metric: Any) -> None:
    pool = BlockPool.draw(M=400)
    radius = sf.minimal_radius(pool.X, pool.y, X_unlabeled=pool.U, metric=metric) + 0.05
    ours, theirs = (pool.fit(pool.U, sf.Compute(who), metric=metric, radius=radius) for who in ("cpu", device))
    assert theirs.certificate_.risk == pytest.approx(ours.certificate_.risk, abs=1e-6)
    assert theirs.certificate_.lower == pytest.approx(ours.certificate_.lower, abs=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_float32_ends_in_a_certificate_of_float64(device: str) -> None:
    pool = BlockPool.draw(M=1500)
    exact = pool.fit(pool.U, None, tol=1e-7).certificate_
    found = pool.fit(pool.U, sf.Compute(device, precision="float32")).certificate_
    assert found.gap <= 1e-4
    assert found.lower - 1e-12 <= exact.risk
    assert found.risk >= exact.lower - 1e-12


def test_a_metric_that_torch_does_not_know() -> None:
    pool = BlockPool.draw(M=300)

    def squared(rows: Any, anchors: Any) -> Any:
        return np.square(rows[:, None, :] - anchors[None, :, :]).sum(axis=2)

    metric = CallableMetric(squared, vectorized=True)
    radius = sf.minimal_radius(pool.X, pool.y, X_unlabeled=pool.U, metric=metric) + 0.05
    ours, theirs = (pool.fit(pool.U, sf.Compute(who), metric=metric, radius=radius) for who in ("cpu", "torch"))
    assert theirs.certificate_.risk == pytest.approx(ours.certificate_.risk, abs=1e-6)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_gpu_is_said() -> None:
    pool = BlockPool.draw(M=300)
    with refuses("device", "'cuda'"):
        pool.fit(pool.U, sf.Compute("cuda"))
