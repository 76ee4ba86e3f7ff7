"""Each bad input raises a ValueError that names the argument, the rule and, where it is ours, the value and the fix."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from refusals import Refused, refuses

rng = np.random.default_rng(0)
Y = np.arange(12) % 2
X = rng.normal(size=(12, 2)) + Y[:, None]
U = rng.normal(size=(20, 2))
Y_REF = np.arange(20) % 2

ROBUST = {"radius", "label_prior", "label_cost", "metric", "tol", "classes", "l2", "max_iter", "confidence", "n_jobs"}


def robust(**given: Any) -> Any:
    parameters = {"radius": 2.0} | {name: given.pop(name) for name in ROBUST & set(given)}
    return sf.RobustLogisticRegression(**parameters).fit(**{"X": X, "y": Y, "X_unlabeled": U} | given)


def ball(**given: Any) -> Any:
    parameters = {
        name: given.pop(name) for name in ("radius", "label_cost", "metric", "tol", "max_iter") if name in given
    }
    return sf.WassersteinLogisticRegression(**parameters).fit(**{"X": X, "y": Y} | given)


def minimal(**given: Any) -> Any:
    return sf.minimal_radius(**{"X": X, "y": Y, "X_unlabeled": U} | given)


def distance(**given: Any) -> Any:
    return sf.transport_distance(**{"X": X, "y": Y, "X_ref": U, "y_ref": Y_REF} | given)


Call = Callable[..., Any]
ALL, WITH_UNLABELED, WITH_MATRIX = (robust, ball, minimal, distance), (robust, minimal), (robust, minimal, distance)
DEFAULTS = {
    "X": X,
    "y": Y,
    "X_unlabeled": U,
    "sample_weight": np.ones(12),
    "X_ref": U,
    "y_ref": Y_REF,
    "ref_weight": np.ones(20),
}


def per_call(calls: tuple[Call, ...], *cases: tuple[Any, ...]) -> list[Any]:
    return [pytest.param(call, *case, id=f"{call.__name__}-{case[0]}") for call in calls for case in cases]


@pytest.mark.parametrize("call", ALL)
def test_the_input_that_is_spoiled_below_is_good(call: Call) -> None:
    result = call()
    risk = result if isinstance(result, float) else result.certificate_.risk
    assert 0 < risk < 5


@pytest.mark.parametrize(("value", "rule"), [(np.nan, "contains NaN"), (np.inf, "contains infinity")])
@pytest.mark.parametrize(
    ("call", "name"),
    [
        *per_call(ALL, ("X",), ("y",), ("sample_weight",)),
        *per_call(WITH_UNLABELED, ("X_unlabeled",)),
        *per_call((distance,), ("X_ref",), ("y_ref",), ("ref_weight",)),
    ],
)
def test_not_finite(call: Call, name: str, value: float, rule: str) -> None:
    array = DEFAULTS[name].astype(float)
    array.flat[3] = value
    if call is robust and name == "y" and np.isnan(value):
        return  # a row without a label: TestMarksOfUnlabeledRows
    # elsewhere, NaN marks a row without a label too, but is not accepted
    refused = name if name.startswith("y") and np.isnan(value) else re.compile(rf"\b{name}\b.*{rule}")
    with refuses(refused):
        call(**{name: array})


@pytest.mark.parametrize(
    ("call", "name", "bad", "match"),
    [
        *per_call(
            ALL,
            ("X", X[:, 0], re.compile(r"Expected 2D array, got 1D array")),
            ("X", X[:, :, None], re.compile(r"Found array with dim 3|Expected 2D array, got 3D|expected <= 2")),
            ("X", X[:0], re.compile(r"0 sample\(s\)|inconsistent numbers of samples")),
            ("X", X[:, :0], re.compile(r"0 feature\(s\) \(shape=\(12, 0\)\) while a minimum of 1")),
            ("X", X[:-1], re.compile(r"inconsistent numbers of samples: \[11, 12\]")),
            ("y", Y[:-1], re.compile(r"inconsistent numbers of samples: \[12, 11\]")),
            ("y", np.column_stack([Y, Y]), re.compile(r"y should be a 1d array, got an array of shape \(12, 2\)")),
            ("sample_weight", np.ones(11), ("sample_weight", "(11,)", "(12,)")),
            ("sample_weight", np.ones((12, 2)), ("sample_weight", "shape (12, 2)")),
            ("sample_weight", -np.ones(12), ("sample_weight", "-1.0 at index 0")),
            ("sample_weight", np.zeros(12), "sample_weight"),
        ),
        *per_call(
            WITH_UNLABELED,
            ("X_unlabeled", U[:, 0], re.compile(r"Expected 2D array, got 1D array")),
            ("X_unlabeled", U[:, :1], ("X_unlabeled", 2, 1)),
            ("X_unlabeled", np.hstack([U, U]), ("X_unlabeled", 2, 4)),
            (
                "X_unlabeled",
                sf.Unlabeled(np.hstack([U, U])),
                ("X_unlabeled", 2, 4),
            ),
        ),
        *per_call(
            (distance,),
            ("X_ref", np.hstack([U, U]), ("X_ref", 2, 4)),
            ("y_ref", Y_REF[:-1], re.compile(r"inconsistent numbers of samples: \[20, 19\]")),
            ("ref_weight", np.ones(19), "ref_weight"),
            ("ref_weight", np.zeros(20), "ref_weight"),
        ),
    ],
)
def test_wrong_shapes_and_weights(call: Call, name: str, bad: Any, match: Refused) -> None:
    with refuses(match):
        call(**{name: bad})


NOT_NUMBERS = ("a", None, True, [1.0, 2.0])


@pytest.mark.parametrize(
    ("call", "name", "bad", "match"),
    [
        *per_call(
            (robust, ball),
            ("radius", -0.5, ("radius", 0, -0.5)),
            ("radius", np.nan, ("radius", 0)),
            ("radius", np.inf, ("radius", 0)),
            ("radius", "big", ("radius", "'big'")),
            ("radius", None, ("radius", "None")),
            ("tol", 0.0, ("tol", 0, 0.0)),
            ("tol", -1e-4, ("tol", 0, -0.0001)),
            ("tol", np.nan, ("tol", 0)),
            *[("tol", bad, ("tol", 0)) for bad in NOT_NUMBERS],
            ("max_iter", -1, ("max_iter", -1)),
            ("max_iter", 2.5, ("max_iter", 2.5)),
            ("max_iter", "a", ("max_iter", "'a'")),
            ("max_iter", 0, ("max_iter", 1, 0)),
            ("max_iter", True, ("max_iter", 1, "True")),
        ),
        *per_call(
            (robust,),
            ("l2", -1.0, ("l2", 0, -1.0)),
            ("l2", np.nan, ("l2", 0)),
            ("confidence", 1.5, ("confidence", 1.5)),
            ("confidence", np.nan, ("confidence", "nan")),
            ("confidence", "a", ("confidence", "'a'")),
            ("n_jobs", 0, ("n_jobs", 0)),
            ("n_jobs", 1.5, ("n_jobs", 0, 1.5)),
            ("n_jobs", "all", ("n_jobs", 0, "'all'")),
        ),
        *per_call(
            ALL,
            ("label_cost", 0.0, ("label_cost", 0)),
            ("label_cost", -1.0, ("label_cost", 0, -1.0)),
            ("label_cost", np.nan, ("label_cost", 0)),
            ("label_cost", "a", ("label_cost", "'a'")),
            ("label_cost", np.ones((3, 3)), "label_cost"),
        ),
        *per_call(
            WITH_MATRIX,
            ("label_cost", np.ones((3, 3)), ("label_cost", 2, "(3, 3)", "(2, 2)")),
            ("label_cost", [[0, 1], [-1, 0]], ("label_cost", 0, -1.0)),
            ("label_cost", [[1, 1], [1, 0]], ("label_cost", "[1. 0.]")),
        ),
    ],
)
def test_numbers(call: Call, name: str, bad: Any, match: Refused) -> None:
    extra = {"radius": "auto"} if name == "confidence" else {}
    with refuses(match):
        call(**{name: bad}, **extra)


@pytest.mark.parametrize(
    ("call", "name", "bad", "match"),
    [
        *per_call(
            ALL,
            ("metric", "euclid", ("metric", "'euclidean'", "'euclid'")),
            ("metric", sf.costs.Manhattan, "metric"),
        ),
        *per_call((ball,), ("metric", sf.costs.Mahalanobis(np.eye(3)), ("X", 3, 2))),
        *per_call((robust, minimal, distance), ("metric", sf.costs.Mahalanobis(np.eye(3)), ("rows", 3, 2))),
        *per_call(
            (ball, minimal, distance),
            ("metric", None, ("metric", "'euclidean'", "None")),
        ),
        *per_call(
            (robust, minimal),
            ("metric", sf.costs.Precomputed(np.ones((12, 32))), ("metric", "(32, 12)", "(12, 32)")),
            ("metric", sf.costs.Precomputed(np.ones((20, 12))), ("metric", "(32, 12)", "(20, 12)")),
            (
                "metric",
                lambda a, b: -1.0,
                ("function", -1.0),
            ),
            ("label_prior", "clopper", ("label_prior", "'clopper-pearson'", "'clopper'")),
            ("label_prior", [0.2, 0.3, 0.5], ("label_prior", 3, 2)),
            ("label_prior", [[0.0, 1.0]] * 3, ("label_prior", 3, 2)),
            ("label_prior", [0.5, 0.6], ("label_prior", 1, 1.1)),
            ("label_prior", [0.5, np.nan], ("label_prior", 1)),
            ("label_prior", [[0.1, 0.2], [0.1, 0.3]], ("label_prior", 0.5)),
            ("label_prior", [[0.8, 0.9], [0.7, 0.9]], ("label_prior", 1.5)),
            ("label_prior", [[0.6, 0.5], [0.1, 0.9]], ("label_prior", "[0.6, 0.5]")),
            ("label_prior", [[0.5, 1.5], [0.1, 0.9]], ("label_prior", "[0, 1]", 0.1, 1.5)),
            (
                "classes",
                [0, 2],
                ("classes", "[0, 2]", "[1]"),
            ),
            ("classes", ["a", "b"], ("classes", "['a', 'b']")),
            ("classes", [0.0, 1.0, np.nan], "classes"),
            ("classes", np.array([0, 1, np.nan], dtype=object), "classes"),
            ("classes", [[0, 1]], ("classes", "[[0, 1]")),
            ("classes", 2, ("classes", 2)),
            ("y", np.zeros(12, dtype=int), ("y", 2, 1, "[0]")),
        ),
        *per_call(
            (distance,),
            ("y_ref", Y_REF.astype(str), re.compile(r"Mix of label input types")),
            ("metric", sf.costs.Precomputed(np.ones((12, 20))), ("metric", "(20, 12)", "(12, 20)")),
        ),
        *per_call(
            (ball,),
            ("y", np.zeros(12, dtype=int), ("y", 2, 1, "[0]")),
            ("y", np.arange(12) % 3, ("y", 3)),
        ),
        *per_call((robust, ball), ("y", np.linspace(0.0, 1.0, 12), re.compile(r"Unknown label type: continuous"))),
    ],
)
def test_choices(call: Call, name: str, bad: Any, match: Refused) -> None:
    with refuses(match):
        call(**{name: bad})


def test_one_class_given_twice_is_one_class() -> None:
    with refuses("y", 2, 1, "[0]"):
        robust(y=np.zeros(12, dtype=int), classes=[0, 0])


@pytest.mark.parametrize("call", WITH_UNLABELED)
def test_every_form_of_unlabeled_rows_is_accepted_alike(call: Call) -> None:
    values = [call(X_unlabeled=form) for form in (U, U.tolist(), sf.Unlabeled(U), (U,), (U.tolist(),))]
    risks = [value if isinstance(value, float) else value.certificate_.risk for value in values]
    assert len(set(risks)) == 1
    none, empty = call(X_unlabeled=None), call(X_unlabeled=U[:0])
    if call is minimal:
        assert none == empty == 0.0
    else:
        np.testing.assert_array_equal(none.coef_, empty.coef_)


@pytest.mark.parametrize("call", WITH_UNLABELED)
def test_a_tuple_of_rows_is_an_array_not_a_wrapper(call: Call) -> None:
    for rows in (U[:1], U[:3]):
        bare, nested = (call(X_unlabeled=form) for form in (rows, tuple(rows.tolist())))
        assert (bare if call is minimal else bare.certificate_.risk) == (
            nested if call is minimal else nested.certificate_.risk
        )


@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_columns_in_another_order(frame: str) -> None:
    library = pytest.importorskip(frame)
    A = library.DataFrame({"a": [0.0, 1.0], "b": [5.0, 6.0]})
    B = library.DataFrame({"b": [5.0, 6.0], "a": [0.0, 1.0]})
    with refuses("X_unlabeled", "['b', 'a'] where X has ['a', 'b']"):
        sf.minimal_radius(A, [0, 1], X_unlabeled=B)
    with refuses("X_ref", "['b', 'a'] where X has ['a', 'b']"):
        sf.transport_distance(A, [0, 1], B, [0, 1])


class TestMarksOfUnlabeledRows:
    """scikit-learn marks rows without a label by -1, tables by None or NaN: `fit` takes them as X_unlabeled."""

    X = np.array([[0.0], [1.0], [2.0], [3.0]])

    def same_fit(self, y: list[object]) -> None:
        found = sf.RobustLogisticRegression(radius=5.0).fit(self.X, y)
        apart = sf.RobustLogisticRegression(radius=5.0)
        apart.fit(self.X[[0, 1, 3]], [y[0], y[1], y[3]], X_unlabeled=sf.Unlabeled(self.X[[2]]))
        assert found.classes_.tolist() == apart.classes_.tolist()
        assert found.certificate_.risk == apart.certificate_.risk
        assert (found.coef_ == apart.coef_).all()

    @pytest.mark.parametrize("y", [[0, 1, None, 1], [0.0, 1.0, np.nan, 1.0], ["a", "b", None, "b"]])
    def test_none_and_nan(self, y: list[object]) -> None:
        self.same_fit(y)
        with refuses("y"):
            sf.minimal_radius(self.X, y)

    def test_minus_one(self) -> None:
        self.same_fit([0, 1, -1, 1])
        fitted = sf.RobustLogisticRegression(radius=5.0, classes=[-1, 0, 1]).fit(self.X, [0, 1, -1, 1])
        assert fitted.classes_.tolist() == [-1, 0, 1]

    def test_minus_one_and_one_are_two_classes(self) -> None:
        assert sf.RobustLogisticRegression(radius=5.0).fit(self.X, [-1, 1, -1, 1]).classes_.tolist() == [-1, 1]


@pytest.mark.parametrize("scale", [1e97, 1e-97])
def test_weights_of_any_common_size_are_taken(scale: float) -> None:
    """With 1e300 a fit ended in `label_prior must be finite`, and with 1e160 in NaN."""
    X, y, weights = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [6.0]]), [0, 0, 1, 0, 1, 1], np.arange(1.0, 7.0)
    for radius in ("predictive", "auto", "calibrated"):
        clf = sf.RobustLogisticRegression(radius=radius).fit(X, y, scale * weights, X_unlabeled=X + 0.5)
        assert np.isfinite([clf.certificate_.risk, *clf.coef_[0]]).all()
    ball, same = (sf.WassersteinLogisticRegression().fit(X, y, size * weights) for size in (1.0, scale))
    assert same.certificate_.risk == pytest.approx(ball.certificate_.risk)
    if scale > 1:  # labels are then exact counts, and the labeled rows are all that counts
        assert minimal(sample_weight=scale, label_prior="clopper-pearson") == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("each", [1.7e308, 1e300, 1e160, 1e-160, 5e-324])
def test_weights_whose_squares_are_not_finite_or_zero_are_refused(each: float) -> None:
    with refuses("sample_weight", "1e-100", "1e+100", "mean"):
        minimal(sample_weight=each)
