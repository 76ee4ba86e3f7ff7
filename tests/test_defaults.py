"""One parameter, one default: the public signatures, read by `inspect`, and the exceptions with their reasons."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from public_names import names_by_module

COMMON = {
    "batch_size": 1,
    "clip": 1e-12,
    "l2": "auto",
    "label_cost": 1.0,
    "label_prior": "auto",
    "level": 0.9,
    "loss": "log_loss",
    "max_candidates": None,
    "max_iter": 600,
    "metric": "euclidean",
    "n_folds": 10,
    "random_state": None,
    "radius": None,
    "tol": 1e-4,
}
SEEDED = "a fixed seed, so that the same data give the same number: a bound must not be drawn again until it is small"
FIXED_LOSSES = "the worst case of fixed losses is solved finer, at little cost"
DATA = "'predictive' and 'calibrated' take the scales of the data; with a number 'auto' is the common default"
# (function, parameter) -> its default, and why it differs
EXCEPTIONS: dict[tuple[str, str], tuple[Any, str]] = {
    ("RobustLogisticRegression", "radius"): ("predictive", "a classifier is fitted to predict"),
    ("MinimaxClassifier", "radius"): ("predictive", "a classifier is fitted to predict"),
    ("StochasticRobustLogisticRegression", "radius"): ("auto", "the paper's rule"),
    ("WassersteinLogisticRegression", "radius"): (0.1, "the ball has no minimal radius to start from"),
    ("RobustNetClassifier", "radius"): ("calibrated", "its certificate is about the truth"),
    ("audit_size", "metric"): ("error", "what is to be proved of predictions, not a distance"),
    ("RobustModelChange", "radius"): ("ends", "a rule of active learning, see label_flexibility"),
    ("label_flexibility", "radius"): ("ends", "as RobustModelChange"),
    ("robust_model_change", "radius"): ("ends", "as RobustModelChange"),
    ("StochasticModelChange", "radius"): ("ends", "as RobustModelChange"),
    ("algorithm2", "radius"): ("ends", "as RobustModelChange"),
    ("Certificate", "label_cost"): (None, "a field of a result, which nobody asks for"),
    ("Certificate", "metric"): (None, "a field of a result, which nobody asks for"),
    ("NearestCertifier", "label_prior"): (None, "labels of an active learner say nothing of label probabilities"),
    ("RobustLogisticRegression", "label_cost"): ("auto", DATA),
    ("RobustLogisticRegression", "metric"): ("auto", DATA),
    ("MinimaxClassifier", "label_cost"): ("auto", DATA),
    ("MinimaxClassifier", "metric"): ("auto", DATA),
    ("certify", "label_cost"): ("auto", DATA),
    ("certify", "metric"): ("auto", DATA),
    ("calibrate_radius", "label_cost"): ("auto", "the radius is calibrated"),
    ("calibrate_radius", "metric"): ("auto", "the radius is calibrated"),
    ("StochasticRobustLogisticRegression", "l2"): (0.0, "Algorithm 1 has no penalty"),
    ("WassersteinLogisticRegression", "tol"): (1e-8, "quadratic convergence: the last digits cost a step or two"),
    ("WassersteinLogisticRegression", "max_iter"): (200, "another method, of fewer steps"),
    ("certify", "tol"): (None, FIXED_LOSSES),
    ("RobustNetClassifier", "tol"): (1e-6, FIXED_LOSSES),
    ("error_bound", "clip"): (1e-3, "a bound from a sample grows with the largest loss"),
    ("error_bound", "loss"): ("zero_one", "it bounds errors"),
    ("error_bounds", "loss"): ("zero_one", "it bounds errors"),
    ("Certificate.on_fresh_rows", "level"): (0.95, "that of the paper's label intervals"),
    ("ClopperPearson", "level"): (0.95, "the paper's"),
    ("HypergeometricPrior", "level"): (0.95, "as ClopperPearson"),
    ("AssistedPrior", "level"): (0.95, "as ClopperPearson"),
    ("CombinedClassifier", "n_folds"): (5, "a choice within each fold of a bound costs the product of both numbers"),
    ("StochasticModelChange", "max_candidates"): (100, "the paper's: a candidate costs 50,000 steps"),
    ("StochasticGradient", "batch_size"): (100, "rows of a step, not of a query; the paper's"),
    ("StochasticGradient", "random_state"): (0, SEEDED),
    ("CalibratedRadius", "random_state"): (0, SEEDED),
    ("calibrate_radius", "random_state"): (0, SEEDED),
    ("error_bound", "random_state"): (0, SEEDED),
    ("shift", "random_state"): (0, SEEDED),
    ("simulate", "random_state"): (0, "all strategies start from the same labels"),
    ("load", "random_state"): (0, "a name stands for the same rows"),
    ("RobustNetClassifier", "random_state"): (0, SEEDED),
    ("AssistedPrior", "random_state"): (0, SEEDED),
    ("CombinedClassifier", "random_state"): (0, SEEDED),
}
# Words that mean another thing in each place: no reader takes one for the other.
OTHER_THINGS = {"limit", "max_error", "method", "n_labels", "sampling", "progress", "rule", "target", "training"}


def signatures() -> Iterator[tuple[str, inspect.Signature]]:
    """Public functions, constructors and methods that are ours."""
    for names in names_by_module().values():
        for name, value in names.items():
            if inspect.isclass(value) and issubclass(value, Exception):
                continue
            yield name, inspect.signature(value)
            if inspect.isclass(value):
                for key, method in inspect.getmembers(value, callable):
                    if key[0] != "_" and getattr(method, "__module__", "").startswith("surefoot"):
                        yield f"{name}.{key}", inspect.signature(method)


DEFAULTS = {
    (name, parameter.name): parameter.default
    for name, signature in signatures()
    for parameter in signature.parameters.values()
    if parameter.default is not parameter.empty
}


@pytest.mark.parametrize("parameter", sorted(COMMON))
def test_a_parameter_has_one_default_everywhere(parameter: str) -> None:
    found = {name: default for (name, key), default in DEFAULTS.items() if key == parameter}
    expected = {name: EXCEPTIONS.get((name, parameter), (COMMON[parameter], ""))[0] for name in found}
    assert found == expected


def test_no_other_parameter_has_two_defaults() -> None:
    seen: dict[str, set[str]] = {}
    for (_, key), default in DEFAULTS.items():
        seen.setdefault(key, set()).add(repr(default))
    assert {key for key, values in seen.items() if len(values) > 1} - set(COMMON) == OTHER_THINGS


def test_every_exception_is_one() -> None:
    assert set(EXCEPTIONS) <= set(DEFAULTS)
    assert not [key for key, (value, _) in EXCEPTIONS.items() if value == COMMON[key[1]]]
