"""Write evidence about a table with its claims, check it without the solver, and show it as a model card."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._errors import import_extra
from surefoot._files import OutputFile, write_bytes
from surefoot._printing import count, percent, rounded_up, share_at_most
from surefoot._validation import FloatArray
from surefoot._version import __version__
from surefoot.bounds.audit import Audit
from surefoot.bounds.engine import ANYTIME, PLANNED
from surefoot.certificates import verify as v
from surefoot.certificates.evidence import (
    audit_claim,
    certificate_claim,
    crossfit_claim,
    distinct,
    model_data,
    write_evidence,
)
from surefoot.pool.appraisal import Appraisal
from surefoot.pool.finishing import LABELED_BY, Finishing
from surefoot.pool.options import AUTO, CALIBRATED, NUMBER
from surefoot.pool.stored import Classifier, GivenPredictions
from surefoot.pool.table import FileError, Format, Pool, Table, TableError, clean, read_content, read_labeled_table
from surefoot.pool.table.cells import as_numbers, as_text, is_nested
from surefoot.pool.worst import PoolWorstCase

_RULES = {AUTO: "rule of thumb", CALIBRATED: "calibrated", NUMBER: "given"}
# float64 does not distinguish all integers beyond this, so their digits are compared.
_EXACT = 2.0**53


def evidence_files(path: Path) -> list[OutputFile]:
    """Return the files that evidence is written to, for `check_outputs`."""
    if path.suffix.lower() != ".json":
        raise FileError(
            f"--evidence must name a file that ends in .json; got {path}. Pass a name such as certificate.json."
        )
    return [
        OutputFile(path, "evidence", "--evidence", is_evidence),
        OutputFile(path.with_suffix(".npz"), "file of arrays", "--evidence", lambda _: is_evidence(path)),
    ]


def is_evidence(path: Path) -> bool:
    """Return True if surefoot wrote this file as evidence."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return isinstance(content, dict) and content.get("format") == v.FORMAT


def cells_digest(cells: Any) -> str:
    """Return the SHA-256 of the cells of a data frame. It is the same for a text file and for Parquet.

    The hash covers each column: its name, then its cells as a JSON list. If all cells are numbers, the list has
    numbers. Otherwise it has texts in NFC without surrounding white space. Empty cells are null. Days are texts such
    as 2024-01-31.
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
            # pandas may round the last digit of a number in text; Python reads it exactly
            return [float(cell) + 0.0 if known else None for cell, known in zip(column, filled, strict=True)]
    return [as_text(cell) or None if known else None for cell, known in zip(texts, filled, strict=True)]


def _recipe(table: Table, how: Format, columns: dict[str, Any], cleaning: str) -> dict[str, Any]:
    """Return how to recover rows from the file of a table: how to read it, and the roles of its columns."""
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
    """Write the bounds of an appraisal as evidence. Without a bound, no file is written.

    how, columns : how the table was read, as options of `read_table` and `sort_columns`.
    cleaned_by_model : whether the model file, not the table, defines the cleaning of the rows for distances.
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
    data, claim = audit.claim(cells_digest(table.features), _recipe(table, how, {}, "table"))
    return write_evidence(path, data, [claim], model=_subject_data(subject), seed=audit.seed)


def save_finish(
    path: Path, finishing: Finishing, table: Table, how: Format, subject: Classifier | GivenPredictions | None
) -> list[Path]:
    """Write the guarantee of a finished table as evidence.

    subject : the classifier or predictions that labeled rows; None for a model trained by surefoot.
    """
    plan, audit = finishing.plan(), finishing.audit
    if plan is None:
        raise RuntimeError("only a finished table has a guarantee")
    data = {
        "form": "table",
        "rows": plan.n_rows,
        "labeled": len(audit.known),
        "classes": distinct(audit.predictions),
        "features": cells_digest(table.features),
        "labels": None,
        "table": _recipe(table, how, {}, "table"),
    }
    claim = audit_claim(
        data,
        plan.bound,
        plan.level,
        audit.predictions,
        v.FINISH,
        scores=_finite(finishing.scores),
        seed=audit.seed,
        known=[list(pair) for pair in audit.known.items()],
        draws=[list(pair) for pair in audit.labels.items()][: audit.plan],
        n_errors=sum(audit.outcomes[: audit.plan]),
        plan=audit.plan,
        rule=ANYTIME if audit.plan is None else PLANNED,
        max_error=plan.max_error,
        model_rows=plan.model_rows,
    )
    return write_evidence(path, data, [claim], model=_subject_data(subject), seed=audit.seed)


def _subject_data(subject: Classifier | GivenPredictions | None) -> dict[str, Any]:
    if subject is None:
        return model_data("a model trained on the first labels")
    if isinstance(subject, Classifier):
        return model_data(subject.path.name, v.sha256(subject.path.read_bytes()))
    return model_data(f"column {subject.column!r}", column=subject.column, score=subject.score_column)


def _finite(scores: FloatArray) -> FloatArray:
    """Return finite scores (N,) for JSON. Rows without a prediction have −∞ and get a score below all others."""
    finite = np.isfinite(scores)
    return np.where(finite, scores, scores[finite].min(initial=0.0) - 1.0)


def verify_table(path: Path, pool: Path, model: Path | None = None, trust: Iterable[str] = ()) -> v.Verification:
    """Check a file of evidence about a table. `model` is the classifier of its claims, if any."""
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
    """Compute the data of the claims from the table and the model."""
    described = content["data"]
    kind, cells, labels, authors = content["claims"][0]["type"], table.features, table.labels.tolist(), None
    if kind == v.FINISH and LABELED_BY in cells.columns:
        authors = [one if isinstance(one, str) else None for one in cells[LABELED_BY]]
        cells = cells.drop(columns=LABELED_BY)
    features = cells_digest(cells)
    inputs = None if classifier is None else classifier.inputs(table.cells, table.label)
    if kind in (v.AUDIT, v.FINISH):
        predictions, scores = None, None
        if classifier is not None:
            predictions = classifier.predict(inputs).tolist()
            scores = classifier.proba(inputs).max(axis=1) if classifier.has_proba else None
        elif named["column"] is not None and {named["column"], named["score"]} <= {None, *cells.columns}:
            given = GivenPredictions.from_cells(table.cells, table.label, named["column"], named["score"])
            predictions, scores = given.predicted.tolist(), given.scores
        known = {row: label for row, label in enumerate(labels) if label is not None}
        return v.CheckedData(features, predictions=predictions, known_labels=known, scores=scores, authors=authors)
    checked = v.CheckedData(features, v.labels_digest(labels))
    if (features, checked.labels) != (described["features"], described["labels"]):
        return checked  # the caller reports the mismatch; cleaning a different table may fail
    recipe, labeled = described["table"], table.labeled
    if recipe["cleaning"] == "table":
        pool = clean(table, drop=recipe["drop"], categories=recipe["categories"], texts=recipe["texts"])
    elif classifier is None:
        raise TableError(
            "the model file is required to compute distances between its cleaned rows. Pass the model file."
        )
    else:
        pool = classifier.cleaned(table)
    order = np.concatenate([np.flatnonzero(labeled), np.flatnonzero(~labeled)])

    def losses_of(metric: str) -> Any:
        known = classifier is not None and set(classifier.classes) <= set(described["classes"])
        return classifier.losses(inputs, described["classes"], metric)[order] if known and classifier else None

    rows, y = pool.rows[order], table.labels[labeled].tolist()
    return v.CheckedData(features, checked.labels, rows, pool.rows[labeled], y, losses_of)


# Model cards from evidence: Markdown for Hugging Face, and a machine-learning bill of materials in CycloneDX.

_METRICS = {"zero_one": "error rate", "log_loss": "log loss", "wrong_labels": "share of wrong labels"}
_SHARES = ("zero_one", "wrong_labels")
_METHODS = {
    v.AUDIT: "audit of frozen predictions on a random sample",
    v.CERTIFICATE: "worst case over distributions near the labeled rows",
    v.CROSSFIT: "cross-validation",
    v.FINISH: "table finished by annotators and predictions, tested on a random sample",
}
_KINDS = {
    "theorem": "proved under its assumptions",
    "conditional": "holds if the true distribution lies within the radius",
    "measured": "coverage measured on datasets, not proved",
    "none": "no guarantee: the radius comes from a rule of thumb",
}
MARKDOWN, BOM = ".md", ".json"
_DIGEST = "surefoot:evidence:sha256"


def is_card(path: Path) -> bool:
    """Return True if surefoot wrote this file as a model card."""
    text = path.read_text(encoding="utf-8")
    if path.suffix.lower() == MARKDOWN:
        return "\ngenerated_by: surefoot\n" in text[:400]
    content = json.loads(text)
    return isinstance(content, dict) and content.get("bomFormat") == "CycloneDX" and _DIGEST in text


def check_card_name(path: Path) -> None:
    """Raise an error if the file name does not determine the format of the card."""
    if path.suffix.lower() not in (MARKDOWN, BOM):
        raise FileError(f"--out must end in .md or .json (CycloneDX); got {path}. Pass card.md, say.")


def write_card(path: Path, evidence: Path, classifier: Classifier | None) -> None:
    """Write the claims of a file of evidence as Markdown, or as a CycloneDX document if the name ends in .json.

    classifier : the model whose hyperparameters the card lists; None to omit them.
    """
    content = v.read_evidence(evidence)
    if path.suffix.lower() == BOM:
        text = json.dumps(bill_of_materials(content), indent=1, ensure_ascii=False) + "\n"
    else:
        text = markdown_card(content, evidence.name, classifier)
    write_bytes(path, text.encode())


def technical_documentation(content: dict[str, Any]) -> str:
    """Return a paragraph on accuracy for technical documentation, for example under Annex IV of the EU AI Act.

    The paragraph gives the metrics, the confidence level and the method of each claim, the conditions, and the limits.
    """
    data, sentences = content["data"], []
    for claim in content["claims"]:
        found = f"{_amount(claim)} ({_METHODS[claim['type']]}; {_KINDS[claim['kind']]})"
        level = "" if claim["confidence"] is None else f" with {percent(claim['confidence'])} confidence"
        sentences.append(f"The {_metric(claim)} is at most {found}{level}.")
    conditions = _unique(text for claim in content["claims"] for text in claim["assumptions"])
    limits = _unique(text for claim in content["claims"] for text in claim["void_if"])
    classes = ", ".join(map(str, data["classes"]))
    return (
        f"The system classifies rows into {count(len(data['classes']), 'class', 'classes')} ({classes}). "
        f"{' '.join(sentences)} These statements assume: {' '.join(conditions)} They become void under these "
        f"circumstances: {' '.join(limits)} Each number can be recomputed from the evidence file and the data with "
        f"`surefoot verify`."
    )


def markdown_card(content: dict[str, Any], evidence: str, classifier: Classifier | None = None) -> str:
    """Return a model card in the format of Hugging Face, made with skops.card."""
    cards = import_extra("skops.card", "cli", "a model card")
    data, model = content["data"], content["model"] or {"name": "classifier", "sha256": None}
    how = "" if model["sha256"] is None else f"\n\nSHA-256 of the model file: `{model['sha256']}`"
    rows = f"{count(data['rows'], 'row')}, {data['labeled']} of them labeled"
    command = f"surefoot verify {evidence} TABLE" + ("" if model["sha256"] is None else f" {model['name']}")
    estimator = None if classifier is None else classifier.model
    estimator = getattr(estimator, "steps", [(None, estimator)])[-1][1]
    card = cards.Card(estimator, template=None, model_diagram=False)
    card.add(**{"Model description": f"{model['name']}: predicts {_classes(data)}.{how}"})
    if estimator is not None:
        card.add_hyperparams(section="Model description/Hyperparameters")
    card.add(**{"Intended uses & limitations": "Every number in this card holds under the conditions listed with it."})
    for claim in content["claims"]:
        listed = [*claim["assumptions"], *(f"Void if: {text}" for text in claim["void_if"])]
        title = f"{_METHODS[claim['type']][:1].upper()}{_METHODS[claim['type']][1:]}, {_metric(claim)}"
        text = "\n".join(f"- {line}" for line in listed)
        card.add(**{f"Intended uses & limitations/{title}": f"{claim['statement']}\n\n{text}"})
    card.add_table(description=f"Evaluated on {rows}.", **{"Evaluation results": _table(content)})
    card.add(
        **{
            "How to check these numbers": f"```console\n$ {command}\n```\n\nThe command recomputes each claim without "
            "the solver. It lists what it verified and what no check can show.",
            "Technical documentation": technical_documentation(content),
        }
    )
    head = ["library_name: sklearn", "tags: [sklearn, skops, tabular-classification]", "generated_by: surefoot"]
    return "\n".join(["---", *head, "---", "", card.render()]) + "\n"


def _table(content: dict[str, Any]) -> dict[str, list[str]]:
    claims = content["claims"]
    return {
        "metric": [_metric(claim) for claim in claims],
        "at most": [_amount(claim) for claim in claims],
        "confidence": [_confidence(claim) for claim in claims],
        "observed": [_observed(claim) for claim in claims],
        "method": [_METHODS[claim["type"]] for claim in claims],
        "kind": [f"{claim['kind']}: {_KINDS[claim['kind']]}" for claim in claims],
    }


def bill_of_materials(content: dict[str, Any]) -> dict[str, Any]:
    """Return a CycloneDX 1.6 document with the model, its hash, and its model card with confidence intervals."""
    model_of = import_extra("cyclonedx.model.component", "card", "a CycloneDX document")
    bom_of, output = (
        import_extra(f"cyclonedx.{name}", "card", "a CycloneDX document") for name in ("model.bom", "output")
    )
    base, schema = (import_extra(f"cyclonedx.{name}", "card", "a CycloneDX document") for name in ("model", "schema"))
    named = content["model"] or {"name": "classifier", "sha256": None}
    hashes = [] if named["sha256"] is None else [base.HashType(alg=base.HashAlgorithm.SHA_256, content=named["sha256"])]
    kind = model_of.ComponentType
    model = model_of.Component(name=named["name"], type=kind.MACHINE_LEARNING_MODEL, hashes=hashes, bom_ref="model")
    bom = bom_of.Bom(components=[model])
    bom.metadata.tools.components.add(
        model_of.Component(name="surefoot", version=__version__, type=kind.APPLICATION, bom_ref="surefoot")
    )
    made = output.make_outputter(bom, schema.OutputFormat.JSON, schema.SchemaVersion.V1_6)
    document: dict[str, Any] = json.loads(made.output_as_string())
    # the cyclonedx package does not support model cards
    document["components"][0]["modelCard"] = {
        "modelParameters": {"task": "classification", "approach": {"type": "supervised"}},
        "quantitativeAnalysis": {"performanceMetrics": [_performance(claim) for claim in content["claims"]]},
        "considerations": {
            "technicalLimitations": _unique(
                text for claim in content["claims"] for text in [*claim["assumptions"], *claim["void_if"]]
            )
        },
        "properties": [
            {"name": _DIGEST, "value": content["sha256"]},
            {"name": "surefoot:technical-documentation", "value": technical_documentation(content)},
        ],
    }
    return document


def _performance(claim: dict[str, Any]) -> dict[str, Any]:
    """Return the observed value with its one-sided interval. A worst case only has an upper bound."""
    about = f"{_METHODS[claim['type']]}; {claim['kind']}: {_KINDS[claim['kind']]}"
    upper = rounded_up(claim["value"], 6)
    if claim["confidence"] is None:
        return {"type": f"{_metric(claim)}, upper bound", "value": upper, "slice": about}
    # annotators corrected the errors in the sample, so a finished table has only a bound
    observed = None if claim["type"] == v.FINISH else claim["proof"]["n_errors"] / max(_n_labels(claim), 1)
    level = percent(claim["confidence"])
    return {
        "type": f"{_metric(claim)}, one-sided interval with {level} confidence",
        "value": upper if observed is None else f"{observed:.6f}",
        "slice": about,
        "confidenceInterval": {"lowerBound": "0", "upperBound": upper},
    }


def _metric(claim: dict[str, Any]) -> str:
    return _METRICS.get(claim["metric"], claim["metric"])


def _amount(claim: dict[str, Any]) -> str:
    return f"{share_at_most(claim['value'])} %" if claim["metric"] in _SHARES else rounded_up(claim["value"], 4)


def _confidence(claim: dict[str, Any]) -> str:
    return "none" if claim["confidence"] is None else percent(claim["confidence"])


def _n_labels(claim: dict[str, Any]) -> int:
    proof = claim["proof"]
    return int(proof["n_labels"]) if claim["type"] == v.CROSSFIT else len(proof["draws"])


def _observed(claim: dict[str, Any]) -> str:
    if claim["type"] == v.CERTIFICATE:
        return "none"
    seen = f"{count(claim['proof']['n_errors'], 'error')} on {count(_n_labels(claim), 'label')}"
    return f"{seen} of the sample, corrected" if claim["type"] == v.FINISH else seen


def _classes(data: dict[str, Any]) -> str:
    return " or ".join(map(str, data["classes"])) if len(data["classes"]) < 3 else ", ".join(map(str, data["classes"]))


def _unique(texts: Any) -> list[str]:
    return list(dict.fromkeys(texts))
