"""`surefoot predict` and `surefoot certify`: a stored model at work, ours or any other."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot._files import whole_file
from surefoot._outputs import OutputFile
from surefoot._printing import visible
from surefoot._types import FloatArray
from surefoot.cli.learn_pool import Choices, Start, certify_losses
from surefoot.cli.output import NOT_REACHED, OK, Output, count
from surefoot.cli.words import certificate_data, say_certificate
from surefoot.losses import LOG_LOSS, ZERO_ONE
from surefoot.model_file import ModelFile
from surefoot.tabular import FileError, Format, Pool, Table, TableError, clean, clean_with, read_table
from surefoot.tabular.asked import picked_rows
from surefoot.tabular.columns import as_numbers, as_text, as_texts, check_plain
from surefoot.tabular.reading import SUFFIXES, read_names

_CLIP = 1e-12
PREDICTED = "predicted_"


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
        return self._checked(found, (len(inputs), len(self.classes)))

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
                f"the model does not take this table: {(str(error).splitlines() or [''])[0]}. Pass a table with the "
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
            f"{(str(error).splitlines() or [''])[0]}. Store it again."
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


def predict_table(output: Output, classifier: Classifier, path: Path, how: Format, out: Path | None) -> int:
    """Predict every row of a table: to a file with all columns, or to standard output."""
    import pandas as pd

    cells = read_table(path, how)
    label = None if classifier.stored is None else classifier.stored.label
    with output.working("predicting"):
        inputs = classifier.inputs(cells, label)
        predicted = classifier.predict(inputs)
        has_proba = hasattr(classifier.model, "predict_proba")
        proba = classifier.proba(inputs) if has_proba else np.empty((len(cells), 0))
    name = label or "class"
    added: dict[str, Any] = {f"{PREDICTED}{name}": predicted}
    if has_proba:
        added |= {f"p({known})": proba[:, k].round(6) for k, known in enumerate(classifier.classes)}
    counts = {known: int((predicted == known).sum()) for known in classifier.classes}
    data: dict[str, Any] = {"rows": len(cells), "predicted": counts}
    if out is not None:
        whole = cells.drop(columns=[key for key in added if key in cells.columns])
        write_table(out, pd.concat([whole, pd.DataFrame(added, index=cells.index)], axis=1))
        shares = ", ".join(f"{known} {n}" for known, n in counts.items())
        output.say(f"{count(len(cells), 'row')} predicted: {shares}")
        output.rows([("written", str(out))])
        return output.finish({**data, "out": str(out)})
    if output.json:
        data["predictions"] = predicted.tolist()
        data["probabilities"] = proba.round(6).tolist() if has_proba else None
        data["classes"] = classifier.classes
        return output.finish(data)
    listed = pd.DataFrame({"row": np.arange(1, len(cells) + 1), **added})
    text = io.StringIO()
    listed.to_csv(text, index=False, lineterminator="\n")
    # for another program every byte as it is; a terminal would act on some
    sys.stdout.write(visible(text.getvalue(), lines=True) if sys.stdout.isatty() else text.getvalue())
    return output.finish(data)


def predictions_file(path: Path) -> OutputFile:
    """The table that `predict` writes; an older one is known by its last columns."""
    if path.suffix.lower() not in SUFFIXES:
        raise FileError(f"{path} must end in one of {', '.join(SUFFIXES)}. Pass such a name as --out.")
    return OutputFile(path, "table of predictions", "--out", is_predictions)


def is_predictions(path: Path) -> bool:
    """Whether a table ends in the columns that `predict` adds: predicted_NAME, then p(CLASS) for each class."""
    names = list(read_names(path))
    while names and names[-1].startswith("p(") and names[-1].endswith(")"):
        names.pop()
    return bool(names) and names[-1].startswith(PREDICTED)


def write_table(path: Path, frame: Any) -> None:
    """Write a table, whole or not at all, in the form that the name says."""
    suffix = path.suffix.lower()
    with whole_file(path) as part:
        if suffix == ".parquet":
            frame.to_parquet(part, index=False)
        else:
            frame.to_csv(part, index=False, sep="\t" if suffix == ".tsv" else ",")


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
    """Certify a stored classifier over a pool."""
    classes = sorted({*table.classes, *classifier.classes})
    unknown = [name for name in table.classes if name not in classifier.classes]
    if unknown:
        output.note(f"the model does not know the class {', '.join(unknown)}: it never predicts it.")
    pool = _cleaned(classifier, table, classes, columns)
    for note in pool.notes:
        output.note(note)
    order = np.concatenate([np.flatnonzero(pool.labeled), np.flatnonzero(~pool.labeled)])
    with output.working("certifying"):
        inputs = classifier.inputs(table.cells, table.label)
        losses = classifier.losses(inputs, classes, loss)[order]
        start = Start.of(pool, picked_rows(table))
        found, kind, notes = certify_losses(start, choices, losses, loss)
    for note in notes:
        output.note(note)
    output.say(f"{classifier.name} over {table.path.name}", "bold")
    say_certificate(output, found, classes)
    reached = target_risk is None or found.risk <= target_risk
    if not reached:
        output.note(f"the certified risk {found.risk:.4f} is above the target {target_risk:g}.")
    data = {"rows": len(pool.rows), "certificate": certificate_data(found, classes, radius_kind=kind)}
    return output.finish(data, OK if reached else NOT_REACHED)


def _cleaned(classifier: Classifier, table: Table, classes: list[str], columns: dict[str, Any]) -> Pool:
    """The rows between which distances are measured: as the model cleans them, or as `fit` would."""
    from dataclasses import replace

    table = replace(table, classes=classes)
    if classifier.stored is not None:
        return clean_with(table, classifier.stored.cleaner)
    return clean(table, **columns)


LOSSES = {"log": LOG_LOSS, "error": ZERO_ONE}
