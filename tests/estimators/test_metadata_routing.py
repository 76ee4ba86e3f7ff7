from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import surefoot as sf
from refusals import warns
from surefoot.active import NearestCertifier, label_flexibility


@pytest.fixture(autouse=True)
def routing() -> Iterator[None]:
    before = sklearn.get_config()
    sklearn.set_config(enable_metadata_routing=True)
    yield
    sklearn.set_config(**before)


class Recording(sf.RobustLogisticRegression):
    """Keeps what each fit received, over clones too."""

    received: list[tuple[np.ndarray, Any, np.ndarray | None]] = []  # noqa: RUF012 - one list for all clones, on purpose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, X_unlabeled: Any = None) -> Recording:
        self.received.append((X, X_unlabeled, sample_weight))
        return super().fit(X, y, sample_weight, X_unlabeled=X_unlabeled)


@pytest.fixture(autouse=True)
def received() -> list[tuple[np.ndarray, Any, np.ndarray | None]]:
    Recording.received.clear()
    return Recording.received


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features far from 0 and 1: unscaled rows cannot be taken for scaled ones."""
    rng = np.random.default_rng(0)
    y = np.arange(24) % 2
    X = 100.0 + 20.0 * (rng.normal(size=(24, 2)) + 1.5 * y[:, None])
    U = 100.0 + 20.0 * (rng.normal(size=(60, 2)) + 1.5 * (np.arange(60) % 2)[:, None])
    return X, y, U


def pipeline(transform_input: list[str] | None) -> Pipeline:
    clf = sf.RobustLogisticRegression(radius=1.5).set_fit_request(X_unlabeled=True)
    return Pipeline([("scale", StandardScaler()), ("clf", clf)], transform_input=transform_input)


class TestPipeline:
    def test_transform_input_scales_both(self, rows: tuple[np.ndarray, ...]) -> None:
        X, y, U = rows
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pipe = pipeline(["X_unlabeled"]).fit(X, y, X_unlabeled=U)
        scaler = StandardScaler().fit(X)
        by_hand = sf.RobustLogisticRegression(radius=1.5)
        by_hand.fit(scaler.transform(X), y, X_unlabeled=scaler.transform(U))
        np.testing.assert_array_equal(pipe["clf"].coef_, by_hand.coef_)
        np.testing.assert_array_equal(pipe["clf"].worst_case_.label_proba, by_hand.worst_case_.label_proba)
        np.testing.assert_array_equal(pipe.predict_proba(U), by_hand.predict_proba(scaler.transform(U)))
        assert len(pipe["clf"].worst_case_.row_weights) == len(X) + len(U)

    @pytest.mark.parametrize(
        ("centre", "unit", "code"),
        [(100.0, 20.0, "moved_features"), (0.0, 1e3, "moved_features"), (0.0, 1e-3, "stretched_features")],
    )
    def test_without_it_a_warning_names_the_fix(
        self, rows: tuple[np.ndarray, ...], centre: float, unit: float, code: str
    ) -> None:
        X, y, U = (rows[0] - 115.0) / 20.0, rows[1], (rows[2] - 115.0) / 20.0  # both centred, of unit size
        pipe = pipeline(None).set_params(clf__radius=1e5)
        with warns(code, sf.UnlabeledRowsWarning) as record:
            pipe.fit(centre + unit * X, y, X_unlabeled=centre + unit * U)
        assert 'transform_input=["X_unlabeled"]' in record[0].message.fix

    def test_the_warning_needs_rows_that_lie_apart(self, rows: tuple[np.ndarray, ...]) -> None:
        X, y, U = rows
        clf = sf.RobustLogisticRegression(radius=100.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error", sf.UnlabeledRowsWarning)
            clf.fit(X, y, X_unlabeled=U)
            clf.fit(X, y, X_unlabeled=U[:0])
        with warns("moved_features", sf.UnlabeledRowsWarning):
            clf.set_params(radius=1e4).fit(X, y, X_unlabeled=U + 1000.0)

    @pytest.mark.parametrize("factor", [0.3, 1.0, 3.0])
    def test_the_warning_needs_spreads_that_differ_by_far(self, factor: float) -> None:
        rng = np.random.default_rng(1)
        y = np.arange(10) % 2
        X, U = rng.normal(size=(10, 6)), factor * rng.normal(size=(200, 6))
        X[:, 0] = 3.0  # a constant feature has no spread to compare, nor has a rare one
        X[:, 1], U[:, 1] = 0.0, 0.0
        X[0, 1] = 1.0
        U[:, 2] *= 100.0  # one feature of six may differ
        with warnings.catch_warnings():
            warnings.simplefilter("error", sf.UnlabeledRowsWarning)
            sf.RobustLogisticRegression(radius=1e4).fit(X, y, X_unlabeled=U)

    def test_the_warning_points_at_the_line_that_called_the_pipeline(self, rows: tuple[np.ndarray, ...]) -> None:
        X, y, U = rows
        with pytest.warns(sf.UnlabeledRowsWarning) as record:
            pipeline(None).set_params(clf__radius=1e5).fit(X, y, X_unlabeled=U)
        assert [warning.filename for warning in record] == [__file__]

    def test_sample_weight_is_routed_beside(self, rows: tuple[np.ndarray, ...], received: list[Any]) -> None:
        X, y, U = rows
        clf = Recording(radius=1.5).set_fit_request(X_unlabeled=True, sample_weight=True)
        scale = StandardScaler().set_fit_request(sample_weight=True)
        pipe = Pipeline([("scale", scale), ("clf", clf)], transform_input=["X_unlabeled"])
        weights = 1.0 + np.arange(24) % 2
        pipe.fit(X, y, sample_weight=weights, X_unlabeled=U)
        scaler = StandardScaler().fit(X, sample_weight=weights)
        np.testing.assert_array_equal(received[0][1], scaler.transform(U))
        np.testing.assert_array_equal(received[0][2], weights)


def doors(X: np.ndarray, y: np.ndarray, U: np.ndarray, how: Any) -> dict[str, Callable[[], object]]:
    """Everything that takes unlabeled rows, in memory or (with `compute`) over blocks of them."""
    clf, radius = LogisticRegression().fit(X, y), {"radius": 1e5}
    compute = {} if how is None else {"compute": how}
    return {
        "fit": lambda: sf.RobustLogisticRegression(**radius, **compute).fit(X, y, X_unlabeled=U),
        "certify": lambda: sf.certify(clf, X, y, X_unlabeled=U, **radius, **compute),
        "radius_curve, judged": lambda: sf.radius_curve(clf, X, y, X_unlabeled=U, radii=[1e5], **compute),
        "radius_curve": lambda: sf.radius_curve(
            sf.RobustLogisticRegression(**compute), X, y, X_unlabeled=U, radii=[1e5]
        ),
        "minimal_radius": lambda: sf.minimal_radius(X, y, X_unlabeled=U, **compute),
        "calibrate_radius": lambda: sf.calibrate_radius(X, y, X_unlabeled=U, n_splits=10, **compute),
        "error_bound": lambda: sf.error_bound(
            clf, X, y, X_unlabeled=U, method="transport", radius=1e5, certify_options=compute
        ),
        "label_flexibility": lambda: label_flexibility(X, y, X_unlabeled=U, **radius, **compute),
        "NearestCertifier": lambda: NearestCertifier(excess=0.1)(clf, X, y, X_unlabeled=U),
    }


@pytest.mark.parametrize("door", list(doors(np.eye(2), np.arange(2), np.eye(2), None)))
@pytest.mark.parametrize("how", [None, sf.Compute(block_rows=7)], ids=["memory", "blocks"])
def test_every_door_says_that_rows_lie_apart(rows: tuple[np.ndarray, ...], door: str, how: Any) -> None:
    X, y, U = rows
    with warns("moved_features", sf.UnlabeledRowsWarning):
        doors(X, y, U + 1000.0, how)[door]()


class TestCrossValidation:
    @pytest.fixture
    def clf(self, routing: None) -> Recording:
        return Recording(radius=100.0).set_fit_request(X_unlabeled=True)

    def test_rows_as_many_as_x_are_cut_and_a_warning_says_so(
        self, clf: Recording, rows: tuple[np.ndarray, ...], received: list[Any]
    ) -> None:
        X, y, U = rows
        with warns("cut_by_folds", sf.UnlabeledRowsWarning, n_rows=16) as record:
            cross_validate(clf, X, y, cv=3, params={"X_unlabeled": U[:24]}, error_score="raise")
        assert [len(passed) for _, passed, _ in received] == [16, 16, 16]  # the trap itself
        ours = [warning for warning in record if issubclass(warning.category, sf.UnlabeledRowsWarning)]
        assert [warning.filename for warning in ours] == [__file__] * 3

    def test_unlabeled_is_passed_whole(self, clf: Recording, rows: tuple[np.ndarray, ...], received: list[Any]) -> None:
        X, y, U = rows
        with warnings.catch_warnings():
            warnings.simplefilter("error", sf.UnlabeledRowsWarning)
            scores = cross_validate(
                clf, X, y, cv=3, params={"X_unlabeled": sf.Unlabeled(U[:24])}, return_estimator=True
            )
        assert len(received) == 3
        for X_fold, passed, _ in received:
            assert len(X_fold) == 16
            assert isinstance(passed, sf.Unlabeled)
            np.testing.assert_array_equal(passed.rows, U[:24])
        for fitted in scores["estimator"]:
            assert len(fitted.worst_case_.row_weights) == 16 + 24
        assert np.isfinite(scores["test_score"]).all()

    def test_unlabeled_equals_the_bare_rows(self, clf: Recording, rows: tuple[np.ndarray, ...]) -> None:
        X, y, U = rows
        bare, wrapped = (clone(clf).fit(X, y, X_unlabeled=passed) for passed in (U, sf.Unlabeled(U)))
        np.testing.assert_array_equal(bare.coef_, wrapped.coef_)
        assert repr(sf.Unlabeled(U)) == "Unlabeled(<60 rows>)"

    def test_grid_search(self, clf: Recording, rows: tuple[np.ndarray, ...], received: list[Any]) -> None:
        X, y, U = rows
        search = GridSearchCV(clf, {"radius": [30.0, 1000.0]}, cv=3, scoring="neg_log_loss", error_score="raise")
        search.fit(X, y, X_unlabeled=sf.Unlabeled(U[:24]))
        assert len(received) == 2 * 3 + 1
        assert all(len(passed.rows) == 24 for _, passed, _ in received)
        assert search.best_params_ == {"radius": 30.0}  # at 1000 nothing is learned
        assert search.best_score_ > -np.log(2)

    def test_both_traps_at_once(self, rows: tuple[np.ndarray, ...], received: list[Any]) -> None:
        X, y, U = rows
        clf = Recording(radius=2.0).set_fit_request(X_unlabeled=True)
        pipe = Pipeline([("scale", StandardScaler()), ("clf", clf)], transform_input=["X_unlabeled"])
        with warnings.catch_warnings():
            warnings.simplefilter("error", sf.UnlabeledRowsWarning)
            scores = cross_validate(
                pipe,
                X,
                y,
                cv=3,
                params={"X_unlabeled": sf.Unlabeled(U[:24])},
                return_estimator=True,
                return_indices=True,
                error_score="raise",
            )
        for fitted, train in zip(scores["estimator"], scores["indices"]["train"], strict=True):
            scaler = StandardScaler().fit(X[train])
            by_hand = clone(clf).fit(
                scaler.transform(X[train]), y[train], X_unlabeled=sf.Unlabeled(scaler.transform(U[:24]))
            )
            np.testing.assert_array_equal(fitted["clf"].coef_, by_hand.coef_)
        assert len(received) == 6


class TestUnlabeled:
    @pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda rows: pickle.loads(pickle.dumps(rows))])
    def test_survives_copies_and_pickles(self, duplicate: Any) -> None:
        rows = np.arange(6.0).reshape(3, 2)
        again = duplicate(sf.Unlabeled(rows))
        assert type(again) is sf.Unlabeled
        assert len(again) == 1
        np.testing.assert_array_equal(again.rows, rows)

    def test_reaches_the_folds_in_other_processes(self, rows: tuple[np.ndarray, ...]) -> None:
        X, y, U = rows
        pipe = pipeline(["X_unlabeled"]).set_params(clf__radius=2.0)
        results = [
            cross_validate(
                pipe, X, y, cv=2, n_jobs=n_jobs, params={"X_unlabeled": sf.Unlabeled(U[:24])}, error_score="raise"
            )
            for n_jobs in (1, 2)
        ]
        np.testing.assert_allclose(results[0]["test_score"], results[1]["test_score"])
