"""A stored model at work, ours or any other: what it needs of a table, and its answers as texts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._errors import first_line
from surefoot._types import FloatArray
from surefoot.losses import ZERO_ONE
from surefoot.pool.model_file import ModelFile, load_model
from surefoot.pool.table import FileError, TableError
from surefoot.pool.table.cells import as_numbers, as_text, as_texts, check_plain

_CLIP = 1e-12


class Classifier:
    """A model from a file: what it needs of a table, and its answers as texts."""

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
        """The classifier of a file."""
        return cls(load_model(path, trust=trust), path)

    def options(self, table: Path) -> dict[str, Any]:
        """Options of the fit that a table of the same kind needs as well."""
        known = {} if self.stored is None else self.stored.options
        same = known.get("suffix") == table.suffix
        return {name: known[name] for name in ("delimiter", "encoding", "missing") if same and known.get(name)}

    def label_or(self, given: str | None) -> str:
        """The label column: as given, or that of the fit."""
        name = given or (None if self.stored is None else self.stored.label)
        if name is None:
            raise FileError(f"{self.path} does not say which column holds the labels. Pass --label.")
        return name

    def unread(self, cells: Any) -> list[str]:
        """A sentence for each column with cells that the model cannot read."""
        return [] if self._columns is None else self._columns.unread(cells)

    @property
    def name(self) -> str:
        """What kind of classifier it is."""
        steps = getattr(self.model, "steps", None)
        return type(steps[-1][1] if steps else self.model).__name__

    def inputs(self, cells: Any, label: str | None) -> Any:
        """The columns that the model takes, in its order: numbers where a column holds numbers, else texts."""
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

    def proba(self, inputs: Any) -> FloatArray:
        """(N, K)."""
        if not hasattr(self.model, "predict_proba"):
            raise FileError(
                f"the log loss needs probabilities, which {type(self.model).__name__} has not. Pass --loss error."
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
        """(N,) texts."""
        answers = self._checked(np.asarray(self._called(self.model.predict, inputs)), (len(inputs),))
        return np.array([as_text(value) for value in answers.tolist()], dtype=object)

    def losses(self, inputs: Any, classes: list[str], loss: str) -> FloatArray:
        """(N, K) the loss at each row if its label were each of `classes`."""
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
                f"the model does not take this table: {first_line(error)}. Pass a table with the "
                "columns, and the kinds of cells, that it was fitted to."
            ) from error
        except MemoryError:
            raise
        except Exception as error:
            raise self._unusable(error) from error

    def _checked(self, answers: Any, shape: tuple[int, ...]) -> Any:
        """Answers of one form per row, as a classifier gives them."""
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


def _class_names(model: Any) -> list[str]:
    """Classes as texts, in the order of the model's; none where it has none."""
    return [as_text(value) for value in np.asarray(getattr(model, "classes_", [])).ravel().tolist()]


def _typed(frame: Any) -> Any:
    import pandas as pd

    columns = {}
    for name in frame.columns:
        check_plain(name, frame[name])
        values, wrong = as_numbers(frame[name])
        columns[name] = as_texts(frame[name]) if wrong.any() else values
    return pd.DataFrame(columns, index=frame.index)
