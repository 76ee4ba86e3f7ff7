"""Where the rows lie makes no difference: few are solved in memory, many over blocks, whoever holds them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from sklearn.naive_bayes import GaussianNB

import surefoot as sf
import surefoot.active as al
from generators import BlockPool, draw_flexibility
from refusals import refuses, warns
from surefoot.backends.dask_rows import DaskRows
from surefoot.costs import Precomputed
from surefoot.problem import placement
from surefoot.solvers import transport


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as found:
        yield found


@pytest.fixture(scope="module")
def pool() -> BlockPool:
    return BlockPool.draw(n=10, M=700)


@pytest.fixture(scope="module")
def sources(pool: BlockPool, client: Client, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The same rows in six forms."""
    folder = tmp_path_factory.mktemp("rows")
    array = da.from_array(pool.U, chunks=(123, -1))
    frame = dd.from_pandas(pd.DataFrame(pool.U, columns=["a", "b", "c"]), npartitions=3)
    wrapped = sf.Unlabeled(pool.memmap(folder))
    return [pool.U, pool.memmap(folder), wrapped, pool.parquet(folder), array, frame, DaskRows(array, client)]


def certified(pool: BlockPool, U: Any) -> tuple[Any, ...]:
    found = pool.fit(U, None).certificate_
    return found.risk, found.lower, found.minimal_radius, found.worst_case.transport_cost


def judged(pool: BlockPool, U: Any) -> tuple[Any, ...]:
    bayes = GaussianNB().fit(pool.X, pool.y)
    found = sf.certify(bayes, pool.X, pool.y, X_unlabeled=U, radius=pool.radius + 0.01, loss="zero_one")
    return found.risk, found.lower


def smallest(pool: BlockPool, U: Any) -> tuple[Any, ...]:
    return (sf.minimal_radius(pool.X, pool.y, X_unlabeled=U, label_prior=[0.4, 0.6]),)


def scored(pool: BlockPool, U: Any) -> tuple[Any, ...]:
    impact = np.random.default_rng(0).random((len(pool.U), 2))
    return tuple(al.robust_model_change(impact, pool.X, pool.y, X_unlabeled=U, label_prior=[0.4, 0.6]))


@pytest.mark.parametrize("work", [certified, judged, smallest, scored])
@pytest.mark.parametrize("most", [1 << 24, 0], ids=["few", "many"])
def test_every_source_gives_the_same_result_with_the_default_solver(
    pool: BlockPool, sources: list[Any], monkeypatch: pytest.MonkeyPatch, work: Callable[..., Any], most: int
) -> None:
    monkeypatch.setattr(placement, "MOST_DISTANCES", most)
    first = work(pool, sources[0])
    for other in sources[1:]:
        assert work(pool, other) == first


def test_every_source_gives_the_same_plan_where_there_are_few_rows_per_anchor(
    pool: BlockPool, sources: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = smallest(pool, sources[0])[0]
    monkeypatch.setattr(placement, "MOST_DISTANCES", 0)
    monkeypatch.setattr(transport, "_PAIRS_ENTRIES", 0)
    monkeypatch.setattr(transport, "_SIMPLEX_ROWS", 1000)
    found = {smallest(pool, source) for source in sources}
    assert len(found) == 1
    assert found.pop()[0] == pytest.approx(exact, rel=1e-12)


@pytest.mark.usefixtures("client")
def test_few_rows_of_a_cluster_are_fetched_and_counted(pool: BlockPool) -> None:
    rows = DaskRows(da.from_array(pool.U, chunks=(123, -1)))
    pool.fit(rows, None)
    assert rows.traffic.received == pool.U.nbytes
    assert rows.traffic.passes == 1


@pytest.mark.usefixtures("client", "in_blocks")
def test_only_the_rows_of_a_sample_leave_their_workers(pool: BlockPool) -> None:
    rows = DaskRows(da.from_array(pool.U, chunks=(123, -1)))
    chosen = np.array([0, 5, 122, 123, 699])
    np.testing.assert_array_equal(rows.take(chosen), pool.U[chosen])
    assert rows.traffic.received == 5 * 3 * 8


def test_what_blocks_cannot_do_is_done_in_memory(
    pool: BlockPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(placement, "MOST_DISTANCES", 0)
    fine = pool.fit(pool.U, None, tol=1e-7)
    assert fine.certificate_.gap <= 1e-7
    assert pool.fit(pool.U, None, radius="calibrated").certificate_.estimate is not None
    distances = np.linalg.norm(np.vstack([pool.X, pool.U])[:, None] - pool.X, axis=2)
    assert pool.fit(pool.U, None, metric=Precomputed(distances)).certificate_.status == "optimal"
    losses = np.random.default_rng(0).random((len(distances), 2))
    own = sf.certify(None, pool.X, pool.y, X_unlabeled=pool.U, radius=pool.radius + 0.1, losses=losses)
    assert own.gap <= 1e-6
    with refuses("losses"):
        sf.certify(None, pool.X, pool.y, X_unlabeled=pool.memmap(tmp_path), radius=1.0, losses=losses, tol=1e-4)


def test_paths_curves_and_estimates_over_blocks(
    pool: BlockPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clf, radii = sf.RobustLogisticRegression(tol=1e-3), [pool.radius, pool.radius + 0.1]
    bayes = GaussianNB().fit(pool.X, pool.y)
    asked = {"label_prior": [0.5, 0.5], "tol": 1e-3}

    def everything(rows: Any) -> tuple[Any, ...]:
        path = sf.radius_curve(clf, pool.X, pool.y, X_unlabeled=rows, radii=radii)
        curve = sf.radius_curve(bayes, pool.X, pool.y, X_unlabeled=rows, radii=np.array(radii) + 0.1, **asked)
        return path, curve, sf.calibrate_radius(pool.X, pool.y, X_unlabeled=rows)

    here = everything(pool.U)
    monkeypatch.setattr(placement, "MOST_DISTANCES", 0)
    for rows in (pool.U, pool.parquet(tmp_path)):
        path, curve, estimate = everything(rows)
        np.testing.assert_allclose(path.risk, here[0].risk, atol=2e-3)
        np.testing.assert_allclose(path.median_confidence, here[0].median_confidence, atol=2e-2)
        np.testing.assert_allclose(curve.risk, here[1].risk, atol=2e-3)
        assert estimate.radius == pytest.approx(here[2].radius, rel=2e-5)


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("most", [1 << 24, 0], ids=["few", "many"])
def test_columns_must_be_those_of_the_labeled_rows(
    pool: BlockPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(placement, "MOST_DISTANCES", most)
    pool.parquet(tmp_path)
    X = pd.DataFrame(pool.X, columns=["x0", "x1", "x2"])
    turned = ["x2", "x1", "x0"]
    clf = sf.RobustLogisticRegression(pool.radius)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of scikit-learn, about names
        clf.fit(X, pool.y, X_unlabeled=sf.ParquetRows(tmp_path / "parts"))
    if most:  # a classifier sees stored rows with their names
        judge = GaussianNB().fit(X, pool.y)
        stored, held = sf.ParquetRows(tmp_path / "parts"), pd.DataFrame(pool.U, columns=list(X))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            both = [sf.certify(judge, X, pool.y, X_unlabeled=U, radius=pool.radius).risk for U in (stored, held)]
        assert both[0] == both[1]
    frame = pd.DataFrame(pool.U[:, ::-1], columns=turned)
    stored = sf.ParquetRows(tmp_path / "parts", columns=turned)
    for U in (stored, dd.from_pandas(frame, npartitions=2), frame):
        with refuses("X_unlabeled"):
            clf.fit(X, pool.y, X_unlabeled=U)
        with refuses("X_unlabeled"):
            sf.minimal_radius(X, pool.y, X_unlabeled=U)


@pytest.mark.parametrize("grid", [False, True], ids=["", "ties"])
@pytest.mark.parametrize("prior", ["strong", "weak", "none"])
@pytest.mark.parametrize("K", [2, 3])
def test_scores_over_blocks_are_those_in_memory(
    monkeypatch: pytest.MonkeyPatch, K: int, prior: str, grid: bool
) -> None:
    problem = draw_flexibility(3, K, prior, N=400, weighted=prior == "weak", grid=grid)
    impact = np.random.default_rng(1).random((len(problem.U), K))
    candidates = np.random.default_rng(2).permutation(len(problem.U))[:120]
    keywords: dict[str, Any] = {"classes": np.arange(K), "radius": "minimal", "X_unlabeled": problem.U}
    for margin in (0.0, 0.05, 0.3, 1.0):
        asked = problem.keywords | keywords | {"margin": margin * problem.kappa * problem.unit}
        asked |= {"candidates": candidates}
        here = al.label_flexibility(problem.X, problem.y, **asked)
        with monkeypatch.context() as patch:
            patch.setattr(placement, "MOST_DISTANCES", 0)
            patch.setattr("surefoot.active.flexibility._ENTRIES", 100)  # several batches of programs
            there = al.label_flexibility(problem.X, problem.y, **asked)
            scores = there.least_expectation(impact[candidates])
        assert there.features is not None
        assert there.minimal_radius == pytest.approx(here.minimal_radius, rel=1e-10)
        np.testing.assert_allclose(scores, here.least_expectation(impact[candidates]), atol=1e-8)


class TestEqualRows:
    """Unlabeled rows that coincide are one row of the problem; everything that is returned speaks of all rows."""

    @pytest.fixture
    def grid(self) -> tuple[Any, Any, Any]:
        rng = np.random.default_rng(7)
        rows = rng.integers(0, 4, (1100, 3)).astype(float)
        y = (rows[:60].sum(axis=1) + rng.normal(size=60) > 4.5).astype(int)
        return rows[:60], y, rows[60:]

    @pytest.fixture
    def unmerged(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
        """What a call gives when no rows are merged."""

        def run(call: Callable[[], Any]) -> Any:
            with monkeypatch.context() as patch:
                patch.setattr(placement, "_equal_rows", lambda data, placed: None)
                return call()

        return run

    def test_the_problem_has_the_distinct_rows(self, grid: Any) -> None:
        X, y, U = grid
        problem = placement.check_problem(X, y, X_unlabeled=U, merge=True)
        assert problem.n_rows == 60 + len(np.unique(U, axis=0))
        values, weights = problem.over_all_rows(problem.data.everything)
        assert np.array_equal(values, np.vstack([X, U]))
        assert weights == pytest.approx(np.full(1100, 1 / 1100))
        assert placement.check_problem(X, y, X_unlabeled=U).n_rows == 1100

    @pytest.mark.parametrize(
        ("radius", "prior"),
        [
            ("predictive", "auto"),
            ("predictive", "assisted"),
            ("auto", None),
            ("calibrated", "auto"),
            (1.2, "hypergeometric"),
        ],
    )
    def test_a_fit_is_the_same(self, grid: Any, unmerged: Any, radius: Any, prior: Any) -> None:
        X, y, U = grid
        weights = np.random.default_rng(1).integers(1, 4, 60)

        def fit() -> Any:
            model = sf.RobustLogisticRegression(radius=radius, label_prior=prior, tol=1e-6)
            return model.fit(X, y, sample_weight=weights, X_unlabeled=U)

        merged, each = fit(), unmerged(fit)
        found, expected = merged.certificate_, each.certificate_
        if radius == "auto":  # the search for the radius ends within 5 % of its excess
            excess = expected.radius - expected.minimal_radius
            assert found.radius - found.minimal_radius == pytest.approx(excess, rel=0.11)
        else:
            assert found.radius == pytest.approx(expected.radius, rel=1e-6)
            assert found.risk == pytest.approx(expected.risk, abs=3e-6)
            assert np.allclose(merged.predict_proba(U), each.predict_proba(U), atol=5e-3)
        worst = merged.worst_case_
        assert worst.label_proba.shape == (1100, 2)
        assert worst.row_weights == pytest.approx(each.worst_case_.row_weights)
        losses = -np.log(merged.predict_proba(np.vstack([X, U])))
        attained = float(worst.row_weights @ (worst.label_proba * losses).sum(axis=1))
        assert attained == pytest.approx(merged.certificate_.lower, abs=1e-9)

    @pytest.mark.parametrize("target", [False, True])
    @pytest.mark.parametrize("loss", ["log_loss", "zero_one"])
    def test_a_certificate_is_the_same(self, grid: Any, unmerged: Any, loss: str, target: bool) -> None:
        X, y, U = grid
        bayes = GaussianNB().fit(X, y)
        rows = {"X_target" if target else "X_unlabeled": U}

        def certify() -> Any:
            return sf.certify(bayes, X, y, radius=1.0, loss=loss, **rows)

        merged, each = certify(), unmerged(certify)
        assert merged.risk == pytest.approx(each.risk, abs=2e-6)
        assert merged.minimal_radius == pytest.approx(each.minimal_radius, rel=1e-9)
        assert merged.worst_case.label_proba.shape == each.worst_case.label_proba.shape == (1040 + 60 * (not target), 2)
        assert merged.on_fresh_rows(U[:500]).risk == pytest.approx(each.on_fresh_rows(U[:500]).risk, abs=1e-5)

    def test_a_curve_is_the_same(self, grid: Any, unmerged: Any) -> None:
        X, y, U = grid
        bayes = GaussianNB().fit(X, y)
        for classifier in (sf.RobustLogisticRegression(), bayes):

            def curve(classifier: Any = classifier) -> Any:
                return sf.radius_curve(classifier, X, y, X_unlabeled=pd.DataFrame(U).to_numpy(), n_radii=5)

            merged, each = curve(), unmerged(curve)
            assert merged.risk == pytest.approx(each.risk, abs=2e-4)
            assert merged.radii == pytest.approx(each.radii)

    def test_too_many_distances_of_few_distinct_rows_need_no_blocks(
        self, grid: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        X, y, U = grid
        monkeypatch.setattr(placement, "MOST_DISTANCES", 60 * 200)
        blocks = placement.check_problem(X, y, X_unlabeled=U)
        memory = placement.check_problem(X, y, X_unlabeled=U, merge=True)
        assert (type(blocks).__name__, type(memory).__name__) == ("BlockedProblem", "InMemoryProblem")
        assert memory.minimal.value == pytest.approx(blocks.minimal.value, rel=1e-6)

    def test_groups_and_own_losses_keep_every_row(self, grid: Any) -> None:
        X, y, U = grid
        everything = np.vstack([X, U])
        bayes = GaussianNB().fit(X, y)
        groups = np.arange(len(everything)) % 2  # equal rows in both groups
        found = sf.certify(bayes, X, y, X_unlabeled=U, radius=1.0, groups=groups, tol=1e-4)
        losses = -np.log(np.maximum(bayes.predict_proba(everything), 1e-12))
        own = sf.certify(None, X, y, X_unlabeled=U, radius=1.0, losses=losses, tol=1e-4)
        assert own.risk == pytest.approx(found.risk, abs=1e-4)
        assert max(one.risk for one in found.groups.values()) >= found.risk - 1e-4

    def test_a_sample_is_drawn_from_all_rows(self, grid: Any) -> None:
        X, y, U = grid
        problem = placement.check_problem(X, y, X_unlabeled=U, merge=True)
        few = problem.sample(20, 3)
        chosen = np.sort(np.random.default_rng(3).choice(len(U), 20, replace=False))
        assert np.array_equal(few.data.everything, np.vstack([X, U[chosen]]))
        assert few.over_all_rows(few.data.everything)[1] == pytest.approx(np.full(80, 1 / 80))


class TestLongSolves:
    """A default fit of 100,000 rows and 2,000 labels ran for many minutes without a word."""

    def test_the_time_is_said_before_the_solve(self, monkeypatch: pytest.MonkeyPatch) -> None:
        X, y, U = np.eye(6), [0, 1, 0, 1, 0, 1], np.zeros((5, 6))

        def not_yet(*_: Any, **__: Any) -> None:
            raise AssertionError("solved before the warning")

        monkeypatch.setattr(placement, "_LONG", 1e-12)
        monkeypatch.setattr(placement.InMemoryProblem, "fixed", not_yet)
        monkeypatch.setattr(placement.InMemoryProblem, "linear", not_yet)
        for solve in (
            lambda: sf.RobustLogisticRegression().fit(X, y, X_unlabeled=U),
            lambda: sf.certify(None, X, y, X_unlabeled=U, radius=2.0, losses=np.ones((11, 2))),
        ):
            with warns("long solve"), pytest.raises(AssertionError, match="before the warning"):
                solve()

    def test_the_time_of_a_cross_validation_is_that_of_all_folds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        g = np.random.default_rng(0)
        X, y, U = g.normal(size=(20, 2)), np.arange(20) % 2, g.normal(size=(5, 2))
        monkeypatch.setattr(placement, "_LONG", 1e-12)
        with warns("long solve") as one:
            sf.RobustLogisticRegression().fit(X[:16], y[:16], X_unlabeled=np.vstack([U, X[16:]]))
        with warns("long solve") as folds:
            sf.error_bound(sf.RobustLogisticRegression(), X, y, X_unlabeled=U, n_folds=5)
        assert folds[0].message.seconds == pytest.approx(5 * one[0].message.seconds)

    def test_a_sample_that_takes_a_minute_is_advised(self) -> None:
        g = np.random.default_rng(0)
        X, y = g.normal(size=(2000, 2)), g.integers(0, 2, 2000)
        for n_rows, expected in ((98_000, 1), (1000, 0)):
            problem = placement.check_problem(X, y, X_unlabeled=g.normal(size=(n_rows, 2)))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                placement.announce_long_solve(problem, None)
                placement.announce_long_solve(problem, sf.Compute("cuda"))
            assert [("random sample" in str(one.message)) for one in caught] == [True] * expected

    def test_more_labels_rows_and_classes_take_longer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(placement, "_LONG", 0.0)
        g, seconds = np.random.default_rng(0), []
        for n, M, K in ((20, 30, 2), (20, 60, 2), (40, 60, 2), (40, 60, 4)):
            y = np.arange(n) % K
            problem = placement.check_problem(g.normal(size=(n, 2)), y, X_unlabeled=g.normal(size=(M, 2)))
            with warns("long solve") as caught:
                placement.announce_long_solve(problem, None)
            seconds.append(caught[0].message.seconds)
        assert (np.diff(seconds) > 0).all()
