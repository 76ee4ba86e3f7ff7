"""`surefoot certify`: bounds for a stored classifier, ours or any other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from surefoot._errors import first_line
from surefoot._printing import rounded_up
from surefoot.bounds.menu import error_bound
from surefoot.bounds.result import ErrorBound
from surefoot.cli.output import NOT_REACHED, OK, Output
from surefoot.cli.words import bounds_data, say_judged, worst_data
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.losses import ZERO_ONE
from surefoot.pool.appraisal import LEVEL, Appraisal, cross_fitted, worst_case
from surefoot.pool.choices import Choices
from surefoot.pool.clock import Clock
from surefoot.pool.learn_pool import Start
from surefoot.pool.model import TrainedModel
from surefoot.pool.stored import Classifier
from surefoot.pool.table import Pool, Table, TableError, clean, clean_with
from surefoot.pool.table.asked import picked_rows
from surefoot.pool.table.pool import as_targets, in_order

_FEWEST_FOR_CROSSFIT = 20


def certify_table(
    output: Output,
    classifier: Classifier,
    table: Table,
    choices: Choices,
    *,
    loss: str,
    target_risk: float | None,
    **columns: Any,
) -> int:
    """Bound the loss of a stored classifier over a pool."""
    classes = in_order({*table.classes, *classifier.classes})
    unknown = [name for name in table.classes if name not in classifier.classes]
    if unknown:
        output.note(f"the model does not know the class {', '.join(unknown)}: it never predicts it.")
    pool = _cleaned(classifier, table, classes, columns)
    for note in pool.notes:
        output.note(note)
    order = np.concatenate([np.flatnonzero(pool.labeled), np.flatnonzero(~pool.labeled)])
    missing: list[str] = []
    with output.working("certifying") as say:
        inputs = classifier.inputs(table.cells, table.label)
        losses = classifier.losses(inputs, classes, loss)[order]
        start = Start.of(pool, picked_rows(table))
        bound = (
            _cross_fitted(classifier, start, inputs, choices, Clock(None, say), missing) if loss == ZERO_ONE else None
        )
        say("finding the worst case")
        worst = worst_case(start, choices, {loss: losses}, missing, auto=_auto_radius(classifier))
    judged = Appraisal(bound, worst, tuple(missing))
    if worst is None:
        raise TableError(f"{' '.join(missing)} Pass --radius with a number.")
    output.say(f"{classifier.name} over {table.path.name}", "bold")
    say_judged(output, judged, classes)
    risk = worst.first.risk
    reached = target_risk is None or risk <= target_risk
    if not reached:
        word = "certified" if worst.promise else "worst-case"
        output.note(f"the {word} risk {rounded_up(risk, 4)} is above the target {target_risk:g}.")
    data = {
        "rows": len(pool.rows),
        "bounds": bounds_data(judged),
        "accuracy": None if judged.accuracy is None else {"cross_validated": judged.accuracy},
        "certificate": worst_data(worst, classes),
    }
    return output.finish(data, OK if reached else NOT_REACHED)


def _auto_radius(classifier: Classifier) -> float | None:
    """The radius of the rule of thumb that a model of ours was trained at."""
    known = {} if classifier.stored is None else classifier.stored.certificate.get("certificate", {})
    return known.get("radius") if known.get("radius_from") == "auto" else None


def _cross_fitted(
    classifier: Classifier, start: Start, inputs: Any, choices: Choices, clock: Clock, missing: list[str]
) -> ErrorBound | None:
    """The cross-fitted bound of the classifier's recipe on these labels; ours is trained as `fit` does."""
    last = classifier.model[-1] if classifier.stored is not None else None
    if isinstance(last, RobustLogisticRegression):
        return cross_fitted(TrainedModel(start, last, 0.0), choices, clock, missing)
    if not start.all_random or len(start.y) < _FEWEST_FOR_CROSSFIT:
        missing.append(f"no cross-fitted bound: it needs {_FEWEST_FOR_CROSSFIT} labels or more, all of them random.")
        return None
    try:
        recipe = clone(classifier.model)
        # the same folds as for our own model: none of its unlabeled rows is used
        rows, own = np.flatnonzero(start.pool.labeled), as_targets(classifier.classes)
        y = as_targets(start.pool.labels[start.pool.labeled], start.pool.classes)
        if own.dtype.kind != y.dtype.kind:
            y = np.array([str(value) for value in y], dtype=object)
        some = inputs.iloc[rows] if hasattr(inputs, "iloc") else inputs[rows]
        return error_bound(recipe, some, y, level=LEVEL, classes=np.unique(y), random_state=choices.seed)
    except (ValueError, TypeError) as error:
        reason = first_line(error)
        missing.append(f"no cross-fitted bound: the classifier could not be fitted again ({reason}).")
        return None


def _cleaned(classifier: Classifier, table: Table, classes: list[str], columns: dict[str, Any]) -> Pool:
    """The rows between which distances are measured: as the model cleans them, or as `fit` would."""
    table = replace(table, classes=classes)
    if classifier.stored is not None:
        return clean_with(table, classifier.stored.cleaner, classifier.stored.columns)
    return clean(table, **columns)
