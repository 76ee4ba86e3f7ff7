"""Predictions for the rows of a table, from a stored model or from a column, and their accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, confusion_matrix

from surefoot._errors import first_line
from surefoot._files import whole_file
from surefoot._printing import cell_text, cut
from surefoot._validation import FloatArray
from surefoot.bounds._arguments import NO_PREDICTION
from surefoot.estimators.base import LinearClassifier
from surefoot.pool.model_file import TYPICAL, ModelFile, load_model, typical_cells, were_taught
from surefoot.pool.notes import ClassResult, Note
from surefoot.pool.table import FileError, Format, Pool, Table, TableError, clean, clean_with, read_table
from surefoot.pool.table.cells import as_numbers, as_text, as_texts, check_plain, number_style
from surefoot.pool.table.pool import as_class, in_order, read_labels
from surefoot.pool.table.reading import check_label_column, listed, near, read_names
from surefoot.problem.losses import LOG_LOSS, ZERO_ONE

_CLIP = 1e-12
# A column with more distinct predictions than this does not contain classes, if most of its cells differ.
_MOST_PREDICTED = 20
PREDICTED = "predicted_"
_BINS = 5


class Classifier:
    """A model from a file: the columns it requires, and its predictions as texts."""

    def __init__(self, model: ModelFile | Any, path: Path) -> None:
        self.stored = model if isinstance(model, ModelFile) else None
        self.model = model.pipeline if isinstance(model, ModelFile) else model
        self.path = path
        try:
            can_predict, self.classes = hasattr(self.model, "predict"), _class_names(self.model)
            self._columns = None if self.stored is None else self.stored.columns
        except Exception as error:
            raise self._unusable(error) from error
        if not can_predict or not self.classes:
            raise FileError(
                f"{path} must hold a fitted classifier, with predict and classes_; it holds a "
                f"{type(self.model).__name__}. Store the fitted classifier, or a pipeline that ends in one."
            )

    @classmethod
    def load(cls, path: Path, trust: Iterable[str] = ()) -> Classifier:
        return cls(load_model(path, trust=trust), path)

    def options(self, table: Path) -> dict[str, Any]:
        """Return the options of the fit that also apply to a table of the same format."""
        known = {} if self.stored is None else self.stored.options
        same = known.get("suffix") == table.suffix
        return {name: known[name] for name in ("delimiter", "encoding", "missing") if same and known.get(name)}

    def label_or(self, given: str | None) -> str:
        """Return the given label column, or the label column of the fit."""
        name = given or (None if self.stored is None else self.stored.label)
        if name is None:
            raise FileError(f"{self.path} does not name the label column. Pass --label.")
        return name

    @property
    def auto_radius(self) -> float | None:
        """The radius by the rule of thumb at which a model of surefoot was trained, or None."""
        known = {} if self.stored is None else self.stored.certificate.get("certificate") or {}
        return known.get("radius") if known.get("radius_from") == "auto" else None

    def cleaned(self, table: Table, **columns: Any) -> Pool:
        """Return the pool whose rows define the distances, cleaned by the model, or as by `fit` for other models."""
        if self.stored is not None:
            return clean_with(table, self.stored.cleaner, self.stored.columns)
        return clean(table, **columns)

    def unread(self, cells: Any) -> list[Note]:
        """Return a note for each column with cells that the model cannot read."""
        return [] if self._columns is None else self._columns.unread(cells)

    @property
    def name(self) -> str:
        steps = getattr(self.model, "steps", None)
        return type(steps[-1][1] if steps else self.model).__name__

    def inputs(self, cells: Any, label: str | None) -> Any:
        """Return the columns that the model requires, in its order, as numbers if possible, otherwise as texts."""
        if self._columns is not None:
            return self._columns.read(cells)
        features = cells if label is None else cells.drop(columns=[label], errors="ignore")
        known = getattr(self.model, "feature_names_in_", None)
        names = list(features.columns) if known is None else [str(name) for name in known]
        absent = [name for name in names if name not in features.columns]
        if absent:
            raise TableError(
                f"the table must have the columns that the model was fitted to; {', '.join(map(repr, absent[:8]))} "
                "missing. Add them."
            )
        n_features = getattr(self.model, "n_features_in_", len(names))
        if len(names) != n_features:
            raise TableError(
                f"the model was fitted to {n_features} columns without names; the table has {len(names)} besides the "
                "label. Leave the others out of the table."
            )
        frame = _typed(features[names])
        return frame if known is not None else frame.to_numpy()

    @property
    def has_proba(self) -> bool:
        return hasattr(self.model, "predict_proba")

    def proba(self, inputs: Any) -> FloatArray:
        """Return (N, K) probabilities."""
        if not self.has_proba:
            raise FileError(
                f"the log loss requires probabilities, which {type(self.model).__name__} does not have. "
                "Pass --loss error."
            )
        found = np.asarray(self._called(self.model.predict_proba, inputs), dtype=np.float64)
        found = self._checked(found, (len(inputs), len(self.classes)))
        unknown = np.flatnonzero(~np.isfinite(found).all(axis=1))
        if len(unknown):
            raise TableError(
                f"the model gives no probabilities for row {unknown[0] + 1}: its numbers are too large, or it is "
                "broken. Correct the cells, or fit the model again."
            )
        return found

    def predict(self, inputs: Any) -> NDArray[Any]:
        """Return (N,) predictions as texts."""
        answers = self._checked(np.asarray(self._called(self.model.predict, inputs)), (len(inputs),))
        return np.array([as_text(value) for value in answers.tolist()], dtype=object)

    def losses(self, inputs: Any, classes: list[str], loss: str) -> FloatArray:
        """Return (N, K) losses of each row for each possible label in `classes`."""
        if loss == ZERO_ONE:
            predicted = self.predict(inputs)
            return (predicted[:, None] != np.array(classes, dtype=object)[None, :]).astype(np.float64)
        proba = np.zeros((len(inputs), len(classes)))
        own = self.classes
        proba[:, [classes.index(name) for name in own]] = self.proba(inputs)
        return -np.log(np.maximum(proba, _CLIP))

    def _called(self, method: Any, inputs: Any) -> Any:
        try:
            return method(inputs)
        except (ValueError, TypeError) as error:
            raise TableError(
                f"the model cannot read this table: {first_line(error)}. Pass a table with the "
                "columns, and the kinds of cells, that it was fitted to."
            ) from error
        except MemoryError:
            raise
        except Exception as error:
            raise self._unusable(error) from error

    def _checked(self, answers: Any, shape: tuple[int, ...]) -> Any:
        """Raise an error if the predictions do not have the expected shape."""
        if answers.shape != shape:
            raise FileError(
                f"{self.path} must hold a classifier whose answers are of shape {shape}; they are of shape "
                f"{answers.shape}. Store a classifier of one label."
            )
        return answers

    def _unusable(self, error: Exception) -> FileError:
        return FileError(
            f"{self.path} must hold a classifier as a fit leaves it; it fails with {type(error).__name__}: "
            f"{first_line(error)}. Store it again."
        )


@dataclass(frozen=True, eq=False)
class GivenPredictions:
    """Predictions in a column of a table, made by a language model, a vendor, a rule or another program.

    column, score_column : names of the columns of predictions and scores; score_column may be None.
    predicted : (N,) classes as texts, empty if missing; scores : (N,) larger means more certain, or None.
    """

    column: str
    score_column: str | None
    predicted: NDArray[Any]
    scores: FloatArray | None

    @classmethod
    def from_cells(
        cls, cells: Any, label: str, column: str, score_column: str | None = None, classes: Iterable[str] = ()
    ) -> GivenPredictions:
        """Read predictions and their scores from columns of a table. classes : all possible classes, if given."""
        names = [str(name) for name in cells.columns]
        for option, name in (("--predictions", column), ("--score", score_column)):
            if name is not None and (name not in names or name == label):
                wrong = "is the label column" if name == label else f"is no column{near(name, names)}"
                raise TableError(f"{option} must name a column besides --label; {name!r} {wrong}. Pass another name.")
        found = read_labels(cells[column])
        empty = np.array([value is None for value in found])
        if empty.all():
            raise TableError(f"--predictions must name a column with predictions; {column!r} is empty. Fill it.")
        seen, n_filled = len(set(found[~empty])), int((~empty).sum())
        if seen > _MOST_PREDICTED and seen > n_filled / 2:
            raise TableError(
                f"--predictions must name a column of classes; {column!r} holds {seen} different values in {n_filled} "
                "cells. Pass the column that holds the predicted classes."
            )
        scores = None if score_column is None else _scores(cells[score_column], score_column, empty)
        known = [as_class(name) for name in classes]
        other = np.flatnonzero(~empty & ~np.isin(found, known or found[~empty]))
        if len(other):
            raise TableError(
                f"--predictions must name a column of classes, {listed(known)}; row {other[0] + 1} of {column!r} holds "
                f"{cut(found[other[0]])!r}. Correct or empty the cell, or add the class to --classes."
            )
        return cls(column, score_column, np.where(empty, NO_PREDICTION, found), scores)

    @property
    def classes(self) -> list[str]:
        """The predicted classes."""
        return in_order(set(self.predicted) - {NO_PREDICTION})

    def codes(self, classes: list[str]) -> NDArray[np.intp]:
        """Return (N,) class indices of the predictions, -1 for rows without a prediction."""
        place = {NO_PREDICTION: -1} | {name: k for k, name in enumerate(classes)}
        return np.array([place[name] for name in self.predicted], dtype=np.intp)

    @property
    def columns(self) -> list[str]:
        """Columns that annotators must not see."""
        return [self.column, *([] if self.score_column is None else [self.score_column])]

    @property
    def n_empty(self) -> int:
        """Number of rows without a prediction."""
        return int((self.predicted == NO_PREDICTION).sum())


def _scores(column: Any, name: str, empty: NDArray[np.bool_]) -> FloatArray:
    """Return scores (N,). Rows without a prediction get the smallest score."""
    values, _ = as_numbers(column, number_style(column))
    wrong = np.flatnonzero(~np.isfinite(values) & ~empty)
    if len(wrong):
        raise TableError(
            f"--score must name a column with a finite number for each prediction; row {wrong[0] + 1} of {name!r} "
            f"holds {cut(str(column.iloc[wrong[0]]))!r}. Correct the cell, or leave out --score."
        )
    return np.where(empty, values[~empty].min(), values)


def _class_names(model: Any) -> list[str]:
    """Return the classes as texts in the model's order, empty if it has none."""
    return [as_text(value) for value in np.asarray(getattr(model, "classes_", [])).ravel().tolist()]


def _typed(frame: Any) -> Any:
    import pandas as pd

    columns = {}
    for name in frame.columns:
        check_plain(name, frame[name])
        values, wrong = as_numbers(frame[name])
        columns[name] = as_texts(frame[name]) if wrong.any() else values
    return pd.DataFrame(columns, index=frame.index)


# Number of columns that explain a prediction.
_MOST_REASONS = 3
WHY = tuple(f"why_{at + 1}" for at in range(_MOST_REASONS))


def column_effects(score: Callable[[Any], FloatArray], frame: Any, typical: Mapping[str, Any]) -> FloatArray:
    """Return (N, C) how much the score of each row falls if the typical cell of a column replaces the row's cell.

    score : maps a frame of columns to (N,). If the score is a sum over columns, the effect is the term of the cell
    minus the term of the typical cell.
    """
    whole, effects = score(frame), np.empty((len(frame), len(frame.columns)))
    for at, name in enumerate(frame.columns):
        value, other = typical[str(name)], frame.copy()
        other[name] = np.nan if value is None else value
        effects[:, at] = whole - score(other)
    return effects


@dataclass(frozen=True, eq=False)
class Explanation:
    """Explanations of predictions: the columns that most support or oppose the predicted class of each row.

    columns, effects : (N, 3) indices of the columns and their effects, largest first; names : of all columns.
    additive : whether effects are terms of the score of a linear model. Otherwise they are changes of the predicted
        probability.
    """

    names: list[str]
    columns: NDArray[np.intp]
    effects: FloatArray
    additive: bool

    @classmethod
    def of_rows(cls, classifier: Classifier, inputs: Any, proba: FloatArray) -> Explanation:
        """Explain the most probable class of each row."""
        import pandas as pd

        frame = inputs if hasattr(inputs, "columns") else pd.DataFrame(inputs)
        best, at = proba.argmax(axis=1), np.arange(len(proba))
        steps = getattr(classifier.model, "steps", None)
        additive = isinstance(steps[-1][1] if steps else classifier.model, LinearClassifier)

        def score(some: Any) -> FloatArray:
            given = some if hasattr(inputs, "columns") else some.to_numpy()
            if not additive:
                return classifier.proba(given)[at, best]
            scores = np.asarray(classifier.model.decision_function(given))
            if scores.ndim == 1:
                return np.where(best == 1, scores, -scores)
            return scores[at, best] - scores.mean(axis=1)

        known = {} if classifier.stored is None else classifier.stored.certificate.get(TYPICAL, {})
        effects = column_effects(score, frame, known or typical_cells(frame))
        order = np.argsort(-np.abs(effects), axis=1, kind="stable")[:, :_MOST_REASONS]
        return cls([str(name) for name in frame.columns], order, np.take_along_axis(effects, order, axis=1), additive)

    def told(self, cells: Any) -> list[list[str]]:
        """Return (N, 3) texts "column = cell (effect)" for the rows of a table, empty for columns without effect."""
        shown = [cells[name].map(cell_text, na_action=None).tolist() for name in self.names]
        return [
            [
                f"{self.names[at]} = {shown[at][row]} ({effect:+.3f})" if abs(effect) >= _NO_EFFECT else ""
                for at, effect in zip(columns, effects, strict=True)
            ]
            for row, (columns, effects) in enumerate(zip(self.columns.tolist(), self.effects.tolist(), strict=True))
        ]

    def data(self) -> list[list[dict[str, Any]]]:
        return [
            [
                {"column": self.names[at], "effect": effect}
                for at, effect in zip(columns, effects, strict=True)
                if abs(effect) >= _NO_EFFECT
            ]
            for columns, effects in zip(self.columns.tolist(), self.effects.tolist(), strict=True)
        ]


# Smaller effects would be printed as 0.000.
_NO_EFFECT = 5e-4


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of a model for the rows of a table.

    cells : the table; predicted : (N,) classes as texts; proba : (N, K) or None.
    label : the column that the model predicts, None if its file does not name it.
    n_known : number of labeled rows that were not used to train the model.
    """

    cells: Any
    classes: list[str]
    label: str | None
    predicted: NDArray[Any]
    proba: FloatArray | None
    n_known: int
    unread: list[Note]
    why: Explanation | None = None

    @property
    def counts(self) -> dict[str, int]:
        return {name: int((self.predicted == name).sum()) for name in self.classes}

    @property
    def n_abstained(self) -> int:
        """Number of rows without a prediction."""
        return sum(one is None for one in self.predicted)

    @property
    def columns(self) -> Mapping[str, Any]:
        """The columns to add to the table: the class, then the probability of each class, then explanations."""
        added: dict[str, Any] = {f"{PREDICTED}{self.label or 'class'}": self.predicted}
        if self.proba is not None:
            added |= {f"p({name})": self.proba[:, k].round(6) for k, name in enumerate(self.classes)}
        if self.why is not None:
            told = self.why.told(self.cells)
            added |= {name: [row[at] if at < len(row) else "" for row in told] for at, name in enumerate(WHY)}
        return added

    def table(self) -> Any:
        """Return all cells with the added columns, which replace existing columns of the same name."""
        import pandas as pd

        whole = self.cells.drop(columns=[name for name in self.columns if name in self.cells.columns])
        return pd.concat([whole, pd.DataFrame(self.columns, index=self.cells.index)], axis=1)

    def listed(self) -> Any:
        """Return the row numbers, from 1, with the added columns."""
        import pandas as pd

        return pd.DataFrame({"row": np.arange(1, len(self.cells) + 1), **self.columns})


def predict_rows(
    classifier: Classifier, cells: Any, abstain: float | None = None, *, explain: bool = False
) -> Predictions:
    """Predict every row of a table. Rows with a confidence below `abstain` get no prediction.

    explain : whether to find the columns that matter most for each prediction.
    """
    if (abstain is not None or explain) and not classifier.has_proba:
        option = "--explain" if abstain is None else "--abstain"
        raise FileError(
            f"{option} needs a model with probabilities; {classifier.name} has none. Predict without {option}."
        )
    label = None if classifier.stored is None else classifier.stored.label
    inputs = classifier.inputs(cells, label)
    known = np.zeros(len(cells), dtype=bool)
    if label in cells.columns:
        known = np.array([value is not None for value in read_labels(cells[label])])
    predicted = classifier.predict(inputs)
    proba = classifier.proba(inputs) if classifier.has_proba else None
    if abstain is not None and proba is not None:
        predicted[proba.max(axis=1) < abstain] = None
    return Predictions(
        cells,
        classifier.classes,
        label,
        predicted,
        proba,
        int((~were_taught(classifier.stored, cells[known])).sum()) if known.any() else 0,
        classifier.unread(cells),
        Explanation.of_rows(classifier, inputs, proba) if explain and proba is not None else None,
    )


def is_predictions(path: Path) -> bool:
    """Return True if a table ends with the columns of `predict`: predicted_NAME, p(CLASS), and explanations."""
    names = list(read_names(path))
    while names and names[-1] in WHY:
        names.pop()
    while names and names[-1].startswith("p(") and names[-1].endswith(")"):
        names.pop()
    return bool(names) and names[-1].startswith(PREDICTED)


def write_predictions(path: Path, frame: Any) -> None:
    """Write a table in the format of the file name. If writing fails, an existing file is unchanged."""
    suffix = path.suffix.lower()
    with whole_file(path) as part:
        if suffix == ".parquet":
            frame.to_parquet(part, index=False)
        else:
            # with both characters as the line end, to_csv quotes every cell that contains one of them
            frame.to_csv(part, index=False, sep="\t" if suffix == ".tsv" else ",", lineterminator="\r\n")


@dataclass(frozen=True, eq=False)
class Scores:
    """Comparison of a model's predictions with true labels.

    classes : the classes of the model, then the `unknown` classes that only occur in the labels.
    confusion : (K, K) counts, a row per true class; calibration : how often the model is right, by its confidence.
    n_taught : number of training rows of the model among the `n_rows` rows.
    bounds : the bounds stored with the model, each with the true value and whether the bound held.
    """

    label: str
    n_rows: int
    n_taught: int
    classes: list[str]
    unknown: list[str]
    unread: list[Note]
    accuracy: float
    confusion: NDArray[np.intp]
    log_loss: float | None
    calibration: list[dict[str, float]]
    bounds: list[dict[str, Any]]

    @property
    def most_frequent(self) -> tuple[str, float]:
        """The most frequent true class, and the accuracy of always predicting it."""
        counts = self.confusion.sum(axis=1)
        most = int(counts.argmax())
        return self.classes[most], float(counts[most] / self.n_rows)

    @property
    def by_class(self) -> list[ClassResult]:
        """Recall and precision of each class."""
        truths, predicted = self.confusion.sum(axis=1), self.confusion.sum(axis=0)
        return [
            ClassResult(name, int(truths[k]), int(self.confusion[k, k]), int(predicted[k]))
            for k, name in enumerate(self.classes)
        ]

    def data(self) -> dict[str, Any]:
        return {
            "accuracy": self.accuracy,
            "by_class": {one.name: {"recall": one.recall, "precision": one.precision} for one in self.by_class},
            "confusion": {
                name: dict(zip(self.classes, map(int, row), strict=True))
                for name, row in zip(self.classes, self.confusion, strict=True)
            },
            "log_loss": self.log_loss,
            "calibration": self.calibration,
            "rows": self.n_rows,
            "label": self.label,
            "taught": self.n_taught,
            "bounds": self.bounds,
        }


def score_model(classifier: Classifier, path: Path, label: str, how: Format) -> Scores:
    """Compare the predictions of a model with the labels of a table."""
    check_label_column(path, label, how)
    cells = read_table(path, how)
    labels = read_labels(cells[label])
    known = np.array([value is not None for value in labels])
    if not known.any():
        raise TableError(
            f"some cells of {label!r} in {path} must be filled to score a model; all are empty. Fill them."
        )
    truth, some = labels[known], cells[known]
    inputs = classifier.inputs(some, label)
    predicted = classifier.predict(inputs)
    unknown = in_order(set(truth) - set(classifier.classes))
    classes = [*classifier.classes, *unknown]
    log_loss, calibration = None, []
    if classifier.has_proba:
        proba = np.zeros((len(truth), len(classes)))
        proba[:, : len(classifier.classes)] = classifier.proba(inputs)
        codes = np.array([classes.index(value) for value in truth])
        log_loss = float(-np.log(np.maximum(proba[np.arange(len(codes)), codes], _CLIP)).mean())
        calibration = _calibration(truth == predicted, proba.max(axis=1))
    accuracy = float(accuracy_score(truth, predicted))
    n_taught = int(were_taught(classifier.stored, some).sum())
    return Scores(
        label,
        len(truth),
        n_taught,
        classes,
        unknown,
        classifier.unread(some),
        accuracy,
        confusion_matrix(truth, predicted, labels=classes),
        log_loss,
        calibration,
        # a bound does not apply to the training rows of the model
        _held(classifier, 1.0 - accuracy, log_loss) if n_taught < len(some) else [],
    )


def _calibration(right: NDArray[np.bool_], confidence: FloatArray) -> list[dict[str, float]]:
    """Return the share of correct predictions by confidence, in bins of equal width."""
    edges = np.linspace(0, 1, _BINS + 1)
    bins = np.clip(np.digitize(confidence, edges) - 1, 0, _BINS - 1)
    return [
        {
            "from": float(edges[b]),
            "to": float(edges[b + 1]),
            "rows": int((bins == b).sum()),
            "confidence": float(confidence[bins == b].mean()),
            "right": float(right[bins == b].mean()),
        }
        for b in range(_BINS)
        if (bins == b).any()
    ]


def _held(classifier: Classifier, error: float, log_loss: float | None) -> list[dict[str, Any]]:
    """Return each bound stored with the model, with the true value."""
    said = [] if classifier.stored is None else classifier.stored.certificate.get("bounds", [])
    truths = {ZERO_ONE: error, LOG_LOSS: log_loss}
    return [
        {**bound, "truth": truths[bound["loss"]], "held": truths[bound["loss"]] <= bound["value"]}
        for bound in said
        if truths.get(bound["loss"]) is not None
    ]
