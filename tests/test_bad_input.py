"""Each bad input raises a ValueError that names the argument, the rule and, where it is ours, the value and the fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import surefoot as sf

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
    if name.startswith("y") and np.isnan(value):
        rule = "must hold a label for each row"  # what scikit-learn marks as unlabeled belongs elsewhere
    with pytest.raises(ValueError, match=rf"\b{name}\b.*{rule}"):
        call(**{name: array})


@pytest.mark.parametrize(
    ("call", "name", "bad", "match"),
    [
        *per_call(
            ALL,
            ("X", X[:, 0], r"Expected 2D array, got 1D array"),
            ("X", X[:, :, None], r"Found array with dim 3|Expected 2D array, got 3D|expected <= 2"),
            ("X", X[:0], r"0 sample\(s\)|inconsistent numbers of samples"),
            ("X", X[:, :0], r"0 feature\(s\) \(shape=\(12, 0\)\) while a minimum of 1"),
            ("X", X[:-1], r"inconsistent numbers of samples: \[11, 12\]"),
            ("y", Y[:-1], r"inconsistent numbers of samples: \[12, 11\]"),
            ("y", np.column_stack([Y, Y]), r"y should be a 1d array, got an array of shape \(12, 2\)"),
            ("sample_weight", np.ones(11), r"sample_weight.*\(11,\).*\(12,\)"),
            ("sample_weight", np.ones((12, 2)), r"(?i)sample.weight.* must be 1D"),
            ("sample_weight", -np.ones(12), r"(?i)negative values.*sample_weight"),
            ("sample_weight", np.zeros(12), r"(?i)sample.weight.* (non-zero|positive)"),
        ),
        *per_call(
            WITH_UNLABELED,
            ("X_unlabeled", U[:, 0], r"Expected 2D array, got 1D array"),
            ("X_unlabeled", U[:, :1], r"X_unlabeled must have as many features as X, 2; got 1\. Pass the same columns"),
            ("X_unlabeled", np.hstack([U, U]), r"X_unlabeled must have as many features as X, 2; got 4\. Pass"),
            (
                "X_unlabeled",
                sf.Unlabeled(np.hstack([U, U])),
                r"X_unlabeled must have as many features as X, 2; got 4\.",
            ),
        ),
        *per_call(
            (distance,),
            ("X_ref", np.hstack([U, U]), r"X_ref must have as many features as X, 2; got 4\. Pass the same columns"),
            ("y_ref", Y_REF[:-1], r"inconsistent numbers of samples: \[20, 19\]"),
            ("ref_weight", np.ones(19), r"(?i)ref_weight"),
            ("ref_weight", np.zeros(20), r"(?i)ref_weight"),
        ),
    ],
)
def test_wrong_shapes_and_weights(call: Call, name: str, bad: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call(**{name: bad})


NOT_NUMBERS = ("a", None, True, [1.0, 2.0])


@pytest.mark.parametrize(
    ("call", "name", "bad", "match"),
    [
        *per_call(
            (robust, ball),
            ("radius", -0.5, r"radius must be a finite number >= 0; got -0\.5\. Pass a non-negative number"),
            ("radius", np.nan, r"radius must be a finite number >= 0; got nan\. Pass"),
            ("radius", np.inf, r"radius must be a finite number >= 0; got inf\. Pass"),
            ("radius", "big", r"radius must be .*number.*; got 'big'.* Pass one"),
            ("radius", None, r"radius must be .*number.*; got None.* Pass one"),
            ("tol", 0.0, r"tol must be a finite number > 0; got 0\.0\. Pass a positive number"),
            ("tol", -1e-4, r"tol must be a finite number > 0; got -0\.0001\. Pass a positive number"),
            ("tol", np.nan, r"tol must be a finite number > 0; got nan\. Pass"),
            *[("tol", bad, r"tol must be a finite number > 0; got .* Pass one number") for bad in NOT_NUMBERS],
            ("max_iter", -1, r"max_iter must be .*; got -1\b"),
            ("max_iter", 2.5, r"max_iter must be .*; got 2\.5\b"),
            ("max_iter", "a", r"max_iter must be .*; got 'a'"),
            ("max_iter", 0, r"max_iter must be an integer >= 1; got 0 \(int\)\. Pass a positive whole number"),
            ("max_iter", True, r"max_iter must be an integer >= 1; got True \(bool\)"),
        ),
        *per_call(
            (robust,),
            ("l2", -1.0, r"l2 must be a finite number >= 0; got -1\.0\. Pass a non-negative number"),
            ("l2", np.nan, r"l2 must be a finite number >= 0; got nan\. Pass"),
            ("confidence", 1.5, r"confidence must be .*; got 1\.5"),
            ("confidence", np.nan, r"confidence must be .*; got nan"),
            ("confidence", "a", r"confidence must be .*; got 'a'"),
            ("n_jobs", 0, r"n_jobs must be None or an integer other than 0; got 0\b.* Pass a number of threads"),
            ("n_jobs", 1.5, r"n_jobs must be None or an integer other than 0; got 1\.5\b"),
            ("n_jobs", "all", r"n_jobs must be None or an integer other than 0; got 'all'"),
        ),
        *per_call(
            ALL,
            ("label_cost", 0.0, r"label_cost must be .*(> 0|positive).*; got 0(\.0)?\b"),
            ("label_cost", -1.0, r"label_cost must be .*(> 0|positive).*; got -1(\.0)?\b"),
            ("label_cost", np.nan, r"label_cost must be .*(> 0|positive).*; got nan"),
            ("label_cost", "a", r"label_cost must be .*; got 'a'"),
            ("label_cost", np.ones((3, 3)), r"label_cost must be .*; got .*"),
        ),
        *per_call(
            WITH_MATRIX,
            ("label_cost", np.ones((3, 3)), r"K = 2 classes; got shape \(3, 3\)\. Pass a matrix of shape \(2, 2\)"),
            ("label_cost", [[0, 1], [-1, 0]], r"label_cost must be > 0 off its diagonal; got -1\.0\. Pass a positive"),
            ("label_cost", [[1, 1], [1, 0]], r"label_cost must have a zero diagonal.*; got \[1\. 0\.\]\. Set"),
        ),
    ],
)
def test_numbers(call: Call, name: str, bad: Any, match: str) -> None:
    extra = {"radius": "auto"} if name == "confidence" else {}
    with pytest.raises(ValueError, match=match):
        call(**{name: bad}, **extra)


@pytest.mark.parametrize(
    ("call", "name", "bad", "match"),
    [
        *per_call(
            ALL,
            ("metric", "euclid", r"metric must be one of 'euclidean', .*; got 'euclid'\. Pass one of these"),
            ("metric", sf.costs.Manhattan, r"metric must be an instance; got the class Manhattan\. Pass Manhattan\("),
            (
                "metric",
                sf.costs.Mahalanobis(np.eye(3)),
                r"as many features as inverse_covariance has rows, 3; got 2\. Pass",
            ),
        ),
        *per_call(
            (ball, minimal, distance),
            ("metric", None, r"metric must be one of 'euclidean', .*; got None\. Pass one of these"),
        ),
        *per_call(
            (robust, minimal),
            ("metric", sf.costs.Precomputed(np.ones((12, 32))), r"\(N, n\) = \(32, 12\).*; got \(12, 32\)\. Pass"),
            ("metric", sf.costs.Precomputed(np.ones((20, 12))), r"\(N, n\) = \(32, 12\).*; got \(20, 12\)\. Pass"),
            (
                "metric",
                lambda a, b: -1.0,
                r"finite and non-negative distances; got values from -1\.0.* correct a function",
            ),
            ("label_prior", "clopper", r"label_prior must be one of .*'clopper-pearson'.*; got 'clopper'\. Pass one"),
            ("label_prior", [0.2, 0.3, 0.5], r"one entry per class; got 3 entries for 2 classes\. Pass 2 entries"),
            ("label_prior", [[0.0, 1.0]] * 3, r"one entry per class; got 3 entries for 2 classes\. Pass 2 entries"),
            ("label_prior", [0.5, 0.6], r"label_prior must sum to 1; got .*sum 1\.1\. Divide by the sum"),
            ("label_prior", [0.5, np.nan], r"label_prior must be finite; got nan at index 1\. Remove"),
            ("label_prior", [[0.1, 0.2], [0.1, 0.3]], r"admit a distribution: the upper .* got 0\.5\. Raise some"),
            ("label_prior", [[0.8, 0.9], [0.7, 0.9]], r"admit a distribution: the lower .* got 1\.5\. Lower some"),
            ("label_prior", [[0.6, 0.5], [0.1, 0.9]], r"lower <= upper; got \[0\.6, 0\.5\] for class 0\. Swap"),
            ("label_prior", [[0.5, 1.5], [0.1, 0.9]], r"must lie in \[0, 1\]; got bounds from 0\.1 to 1\.5\. Pass"),
            (
                "classes",
                [0, 2],
                r"classes must contain every label of y; got classes=\[0, 2\] without \[1\]\. Add them",
            ),
            ("classes", ["a", "b"], r"classes must contain every label of y; got classes=\['a', 'b'\]"),
            ("classes", [0.0, 1.0, np.nan], r"classes must .*nan"),
            ("classes", np.array([0, 1, np.nan], dtype=object), r"classes must not contain NaN; got .*nan\]\. Leave"),
            ("classes", [[0, 1]], r"classes must be a list of labels; got \[\[0, 1\]\].* Pass classes="),
            ("classes", 2, r"classes must be a list of labels; got 2 \(int\)\. Pass classes="),
            ("y", np.zeros(12, dtype=int), r"at least 2 classes.*; got 1 class, \[0\]\. Label a row of another class"),
        ),
        *per_call(
            (distance,),
            ("y_ref", Y_REF.astype(str), r"Mix of label input types"),
            ("metric", sf.costs.Precomputed(np.ones((12, 20))), r"\(N, n\) = \(20, 12\).*; got \(12, 20\)\. Pass"),
        ),
        *per_call(
            (ball,),
            ("y", np.zeros(12, dtype=int), r"at least 2 classes.*; got 1 class, \[0\]\. Label a row of another class"),
            ("y", np.arange(12) % 3, r"Only binary classification.*; got 3 classes\. Pass two"),
        ),
        *per_call((robust, ball), ("y", np.linspace(0.0, 1.0, 12), r"Unknown label type: continuous")),
    ],
)
def test_choices(call: Call, name: str, bad: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call(**{name: bad})


def test_one_class_given_twice_is_one_class() -> None:
    with pytest.raises(ValueError, match=r"at least 2 classes.*got 1 class, \[0\]"):
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
    with pytest.raises(ValueError, match="X_unlabeled must have the columns of X, in the same order"):
        sf.minimal_radius(A, [0, 1], X_unlabeled=B)
    with pytest.raises(ValueError, match="X_ref must have the columns of X, in the same order"):
        sf.transport_distance(A, [0, 1], B, [0, 1])


class TestMarksOfUnlabeledRows:
    """scikit-learn marks rows without a label by -1, tables by None or NaN: here they are X_unlabeled."""

    X = np.array([[0.0], [1.0], [2.0], [3.0]])

    @pytest.mark.parametrize("y", [[0, 1, None, 1], [0.0, 1.0, np.nan, 1.0], ["a", "b", None, "b"]])
    def test_none_and_nan(self, y: list[object]) -> None:
        with pytest.raises(ValueError, match=r"y must hold a label for each row; got .* at index 2.*X_unlabeled"):
            sf.RobustLogisticRegression().fit(self.X, y)
        with pytest.raises(ValueError, match="X_unlabeled"):
            sf.minimal_radius(self.X, y)

    def test_minus_one(self) -> None:
        with pytest.raises(ValueError, match=r"y holds -1, scikit-learn's mark.*X_unlabeled.*classes=\[-1, 0, 1\]"):
            sf.RobustLogisticRegression().fit(self.X, [0, 1, -1, 1])
        fitted = sf.RobustLogisticRegression(radius=5.0, classes=[-1, 0, 1]).fit(self.X, [0, 1, -1, 1])
        assert fitted.classes_.tolist() == [-1, 0, 1]

    def test_minus_one_and_one_are_two_classes(self) -> None:
        assert sf.RobustLogisticRegression(radius=5.0).fit(self.X, [-1, 1, -1, 1]).classes_.tolist() == [-1, 1]
