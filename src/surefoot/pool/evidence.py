"""Evidence about a table: written with its claims, and checked without the solver (docs/evidence.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._files import OutputFile
from surefoot.bounds.audit import Audit
from surefoot.certificates import verify as v
from surefoot.certificates.evidence import certificate_claim, crossfit_claim, model_data, write_evidence
from surefoot.pool.appraisal import Appraisal
from surefoot.pool.options import AUTO, CALIBRATED, NUMBER
from surefoot.pool.stored import Classifier, GivenPredictions
from surefoot.pool.table import FileError, Format, Pool, Table, TableError, clean, read_content, read_labeled_table
from surefoot.pool.table.cells import as_numbers, as_text, is_nested
from surefoot.pool.worst import PoolWorstCase

_RULES = {AUTO: "rule of thumb", CALIBRATED: "calibrated", NUMBER: "given"}
# Whole numbers beyond this are not told apart as float64: their digits count.
_EXACT = 2.0**53


def evidence_files(path: Path) -> list[OutputFile]:
    """The files that evidence is written to, for `check_outputs`."""
    if path.suffix.lower() != ".json":
        raise FileError(f"--evidence must name a file that ends in .json; got {path}. Pass certificate.json, say.")
    return [
        OutputFile(path, "evidence", "--evidence", is_evidence),
        OutputFile(path.with_suffix(".npz"), "file of arrays", "--evidence", lambda _: is_evidence(path)),
    ]


def is_evidence(path: Path) -> bool:
    """Whether a file is evidence that surefoot wrote."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return isinstance(content, dict) and content.get("format") == v.FORMAT


def cells_digest(cells: Any) -> str:
    """SHA-256 of the cells of a data frame, the same for a text file and for Parquet.

    Of each column: its name; then as a JSON list either all its cells as numbers, if they are numbers, or else as texts
    without white space around them, in NFC; null where a cell is empty. Days are texts such as 2024-01-31.
    """
    columns = [[str(name), _plain_cells(cells[name])] for name in cells.columns]
    return v.sha256(json.dumps(columns, ensure_ascii=False, allow_nan=False))


def _plain_cells(column: Any) -> list[Any]:
    filled = column.notna().to_numpy()
    if column.dtype.kind == "M":
        known = column[filled]
        days = bool((known == known.dt.normalize()).all())
        texts = column.map(lambda cell: cell.strftime("%Y-%m-%d") if days else str(cell), na_action="ignore")
    elif is_nested(column):
        texts = column.map(lambda cell: repr(cell.tolist() if isinstance(cell, np.ndarray) else cell))
    else:
        values, wrong = as_numbers(column)
        texts, values = column, values[filled]
        if column.dtype.kind != "m" and not wrong.any() and bool((np.abs(values) < _EXACT).all()):
            # pandas reads texts to within a unit in the last place; Python reads them exactly
            return [float(cell) + 0.0 if known else None for cell, known in zip(column, filled, strict=True)]
    return [as_text(cell) or None if known else None for cell, known in zip(texts, filled, strict=True)]


def _recipe(table: Table, how: Format, columns: dict[str, Any], cleaning: str) -> dict[str, Any]:
    """How rows follow from the file of a table: how it is read, and what its columns are."""
    return {
        "label": table.label,
        "delimiter": how.delimiter,
        "encoding": how.encoding,
        "missing": list(how.missing),
        "drop": list(columns.get("drop", ())),
        "categories": list(columns.get("categories", ())),
        "texts": list(columns.get("texts", ())),
        "cleaning": cleaning,
    }


def save_appraisal(
    path: Path,
    judged: Appraisal,
    pool: Pool,
    how: Format,
    columns: dict[str, Any],
    *,
    model: Path,
    cleaned_by_model: bool,
    seed: int,
) -> list[Path]:
    """Write the bounds of an appraisal as evidence; no file if there is no bound.

    how, columns : as the table was read, options of `read_table` and `sort_columns`. cleaned_by_model : whether
    distances are between rows as the model file cleans them.
    """
    table = pool.table
    data: dict[str, Any] = {
        "form": "table",
        "rows": len(pool.rows),
        "labeled": int(pool.labeled.sum()),
        "classes": pool.classes,
        "features": cells_digest(table.features),
        "labels": v.labels_digest(table.labels.tolist()),
        "table": _recipe(table, how, columns, "model" if cleaned_by_model else "table"),
    }
    claims = [] if judged.crossfit is None else [crossfit_claim(data, judged.crossfit)]
    if judged.worst is not None:
        claims += _worst_case_claims(data, judged.worst)
    if not claims:
        return []
    return write_evidence(path, data, claims, model=model_data(model.name, v.sha256(model.read_bytes())), seed=seed)


def _worst_case_claims(data: dict[str, Any], worst: PoolWorstCase) -> list[dict[str, Any]]:
    start = worst.start
    codes = np.array([data["classes"].index(label) for label in start.pool.labels[start.pool.labeled]], dtype=np.intp)
    rows = np.vstack([start.rows, start.rest])
    return [
        certificate_claim(
            certificate, start.rows, codes, rows, worst.row_weights, worst.losses[name],
            rule=_RULES[worst.kind], target=False, data=data,
        )
        for name, certificate in worst.certificates.items()
    ]  # fmt: skip


def save_audit(
    path: Path, audit: Audit, table: Table, how: Format, subject: Classifier | GivenPredictions
) -> list[Path]:
    """Write an audit of the rows of a table as evidence."""
    if isinstance(subject, Classifier):
        model = model_data(subject.path.name, v.sha256(subject.path.read_bytes()))
    else:
        model = model_data(f"column {subject.column!r}", column=subject.column)
    data, claim = audit.claim(cells_digest(table.features), _recipe(table, how, {}, "table"))
    return write_evidence(path, data, [claim], model=model, seed=audit.seed)


def verify_table(path: Path, pool: Path, model: Path | None = None, trust: Iterable[str] = ()) -> v.Verification:
    """Check a file of evidence about a table; `model` is the classifier of its claims, if there is one."""
    try:
        content = v.read_evidence(path)
    except v.EvidenceError as error:
        return v.Verification(mismatches=[str(error)])
    described, recipe = content["data"], content["data"]["table"]
    if described["form"] != "table":
        raise FileError(f"{path} is evidence about arrays. Check it in Python, with surefoot.verify.")
    if recipe is None:
        return v.Verification(mismatches=[f"{path} does not say how its table is read"])
    how = Format(recipe["delimiter"], recipe["encoding"], tuple(recipe["missing"]))
    table = read_labeled_table(pool, recipe["label"], how=how, content=read_content(pool))
    named, classifier = content["model"] or model_data(""), None if model is None else Classifier.load(model, trust)
    found = v.verify_content(content, _checked(content, table, named, classifier))
    if classifier is not None:
        same = named["sha256"] == v.sha256(classifier.path.read_bytes())
        found.check(same, "the model file is that of the claim (SHA-256)", "the model file is another (SHA-256)")
    return found


def _checked(
    content: dict[str, Any], table: Table, named: dict[str, Any], classifier: Classifier | None
) -> v.CheckedData:
    """The data of the claims, as the table and the model have them."""
    described = content["data"]
    features, labels = cells_digest(table.features), table.labels.tolist()
    inputs = None if classifier is None else classifier.inputs(table.cells, table.label)
    if content["claims"][0]["type"] == v.AUDIT:
        if classifier is not None:
            predictions = classifier.predict(inputs).tolist()
        elif named["column"] is not None and named["column"] in table.features.columns:
            given = GivenPredictions.from_cells(table.cells, table.label, named["column"])
            predictions = given.predicted.tolist()
        else:
            predictions = None
        known = {row: label for row, label in enumerate(labels) if label is not None}
        return v.CheckedData(features, predictions=predictions, known_labels=known)
    checked = v.CheckedData(features, v.labels_digest(labels))
    if (features, checked.labels) != (described["features"], described["labels"]):
        return checked  # the mismatch is reported; another table need not even be one that can be cleaned
    recipe, labeled = described["table"], table.labeled
    if recipe["cleaning"] == "table":
        pool = clean(table, drop=recipe["drop"], categories=recipe["categories"], texts=recipe["texts"])
    elif classifier is None:
        raise TableError("the model must be given: distances are measured between rows as it cleans them. Pass it.")
    else:
        pool = classifier.cleaned(table)
    order = np.concatenate([np.flatnonzero(labeled), np.flatnonzero(~labeled)])

    def losses_of(metric: str) -> Any:
        known = classifier is not None and set(classifier.classes) <= set(described["classes"])
        return classifier.losses(inputs, described["classes"], metric)[order] if known and classifier else None

    rows, y = pool.rows[order], table.labels[labeled].tolist()
    return v.CheckedData(features, checked.labels, rows, pool.rows[labeled], y, losses_of)
