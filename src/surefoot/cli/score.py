"""`surefoot score`: a stored model beside the true labels, and whether what was said of it held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, confusion_matrix

from surefoot._printing import count, rounded_up, share_at_most
from surefoot._types import FloatArray
from surefoot.cli.output import Output
from surefoot.losses import LOG_LOSS, ZERO_ONE
from surefoot.pool.stored import Classifier
from surefoot.pool.table import Format, TableError, read_table
from surefoot.pool.table.pool import in_order, read_labels
from surefoot.pool.table.reading import check_label
from surefoot.pool.taught import were_taught

_CLIP = 1e-12
_BINS = 5


def score_table(output: Output, classifier: Classifier, path: Path, label: str, how: Format) -> int:
    """Compare the answers of a model with true labels."""
    check_label(path, label, how)
    cells = read_table(path, how)
    labels = read_labels(cells[label])
    known = np.array([value is not None for value in labels])
    if not known.any():
        raise TableError(
            f"some cells of {label!r} in {path} must be filled to score a model; all are empty. Fill them."
        )
    truth = labels[known]
    with output.working("predicting"):
        some = cells[known]
        inputs = classifier.inputs(some, label)
        for note in classifier.unread(some):
            output.note(note)
        predicted = classifier.predict(inputs)
        proba = classifier.proba(inputs) if hasattr(classifier.model, "predict_proba") else None
    unknown = in_order(set(truth) - set(classifier.classes))
    if unknown:
        output.note(f"the model does not know {', '.join(map(repr, unknown))}: it is always wrong there.")
    classes = [*classifier.classes, *unknown]
    data = _scores(truth, predicted, proba, classes, classifier.classes)
    data["rows"], data["label"] = int(known.sum()), label
    n_taught = int(were_taught(classifier.stored, some).sum())
    data["taught"] = n_taught
    if n_taught:
        which = "all" if n_taught == len(some) else f"{n_taught} of the {len(some)}"
        output.note(f"{which} rows with a label taught the model: it does better on them than on new ones.")
    # of rows that taught it a bound says nothing
    data["bounds"] = _held(classifier, data) if n_taught < len(some) else []
    _say(output, classifier, path, data, classes)
    return output.finish(data)


def _scores(
    truth: NDArray[Any], predicted: NDArray[Any], proba: FloatArray | None, classes: list[str], own: list[str]
) -> dict[str, Any]:
    table = confusion_matrix(truth, predicted, labels=classes)
    data: dict[str, Any] = {
        "accuracy": float(accuracy_score(truth, predicted)),
        "confusion": {
            name: {other: int(table[i, j]) for j, other in enumerate(classes)} for i, name in enumerate(classes)
        },
        "log_loss": None,
        "calibration": [],
    }
    if proba is not None:
        full = np.full((len(truth), len(classes)), 0.0)
        full[:, : len(own)] = proba
        codes = np.array([classes.index(value) for value in truth])
        data["log_loss"] = float(-np.log(np.maximum(full[np.arange(len(codes)), codes], _CLIP)).mean())
        data["calibration"] = _calibration(truth == predicted, full.max(axis=1))
    return data


def _calibration(right: NDArray[np.bool_], confidence: FloatArray) -> list[dict[str, float]]:
    """How often the model is right where it is so confident, in bins of equal width."""
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


def _held(classifier: Classifier, data: dict[str, Any]) -> list[dict[str, Any]]:
    """Each bound that was printed with the model, beside what came out."""
    said = [] if classifier.stored is None else classifier.stored.certificate.get("bounds", [])
    truths = {ZERO_ONE: 1.0 - data["accuracy"], LOG_LOSS: data["log_loss"]}
    return [
        {**bound, "truth": truths[bound["loss"]], "held": truths[bound["loss"]] <= bound["value"]}
        for bound in said
        if truths.get(bound["loss"]) is not None
    ]


def _say(output: Output, classifier: Classifier, path: Path, data: dict[str, Any], classes: list[str]) -> None:
    output.say(f"{classifier.path.name} on {path.name}: {count(data['rows'], 'row')} with a label", "bold")
    most = max(classes, key=lambda name: sum(data["confusion"][name].values()))
    share = sum(data["confusion"][most].values()) / data["rows"]
    pairs = [("accuracy", f"{100 * data['accuracy']:.1f}% (always {most!r}: {100 * share:.1f}%)")]
    if data["log_loss"] is not None:
        pairs.append(("log loss", f"{data['log_loss']:.4f}"))
    output.rows(pairs)
    output.say("Truth (rows) and answers (columns)", "bold")
    rows = [[name, *[str(data["confusion"][name][other]) for other in classes]] for name in classes]
    output.table(["", *classes], rows, right=tuple(range(1, len(classes) + 1)))
    if data["calibration"]:
        output.say("Where the model says it is so confident, it is right", "bold")
        bins = [
            [f"{100 * b['confidence']:.0f}%", f"{100 * b['right']:.0f}%", str(b["rows"])] for b in data["calibration"]
        ]
        output.table(["confidence", "right", "rows"], bins, right=(0, 1, 2))
    if data["bounds"]:
        output.say("What was said of the model when it was fitted", "bold")
        output.rows([_bound_words(bound) for bound in data["bounds"]])
        output.say("  A bound speaks of rows from where the labels came; at its level some bounds are missed.", "dim")


def _bound_words(bound: dict[str, Any]) -> tuple[str, str]:
    name = "errors" if bound["loss"] == ZERO_ONE else "log loss"
    value = f"{share_at_most(bound['value'])}%" if bound["loss"] == ZERO_ONE else rounded_up(bound["value"], 4)
    truth = f"{100 * bound['truth']:.1f}%" if bound["loss"] == ZERO_ONE else f"{bound['truth']:.4f}"
    kind = {"crossfit": "cross-fitted", "transport": "worst case"}.get(bound["method"], bound["method"])
    promised = "" if bound["promise"] else " (not a promise)"
    return name, f"at most {value}, {kind}{promised}: {'held' if bound['held'] else 'exceeded'}, it is {truth}"
