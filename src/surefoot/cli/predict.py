"""`surefoot predict`: the answers of a stored model for each row of a table."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._files import whole_file
from surefoot._outputs import OutputFile
from surefoot._printing import count, visible
from surefoot.cli.output import Output
from surefoot.pool.stored import Classifier
from surefoot.pool.table import FileError, Format, read_table
from surefoot.pool.table.reading import SUFFIXES, read_names
from surefoot.pool.taught import were_taught

PREDICTED = "predicted_"


def predict_table(output: Output, classifier: Classifier, path: Path, how: Format, out: Path | None) -> int:
    """Predict every row of a table: to a file with all columns, or to standard output."""
    import pandas as pd

    cells = read_table(path, how)
    label = None if classifier.stored is None else classifier.stored.label
    with output.working("predicting"):
        inputs = classifier.inputs(cells, label)
        for note in classifier.unread(cells):
            output.note(note)
        predicted = classifier.predict(inputs)
        has_proba = hasattr(classifier.model, "predict_proba")
        proba = classifier.proba(inputs) if has_proba else np.empty((len(cells), 0))
    name = label or "class"
    added: dict[str, Any] = {f"{PREDICTED}{name}": predicted}
    if has_proba:
        added |= {f"p({known})": proba[:, k].round(6) for k, known in enumerate(classifier.classes)}
    known = cells[label].notna().to_numpy() if label in cells.columns else np.zeros(len(cells), dtype=bool)
    n_known = int((known & ~were_taught(classifier.stored, cells)).sum())
    if n_known:
        output.note(
            f"{label!r} is filled in {count(n_known, 'new row')}: surefoot score {classifier.path} {path} compares the "
            "answers with it."
        )
    counts = {known: int((predicted == known).sum()) for known in classifier.classes}
    data: dict[str, Any] = {"rows": len(cells), "predicted": counts}
    if out is not None:
        whole = cells.drop(columns=[key for key in added if key in cells.columns])
        write_table(out, pd.concat([whole, pd.DataFrame(added, index=cells.index)], axis=1))
        shares = ", ".join(f"{known}: {n}" for known, n in counts.items())
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
