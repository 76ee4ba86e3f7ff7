"""Write evidence: claims about a classifier, each with the proof that `verify` checks (docs/evidence.md)."""

from __future__ import annotations

import io
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
from numpy.typing import NDArray

from surefoot._errors import ParameterError
from surefoot._files import write_bytes
from surefoot._validation import (
    FloatArray,
    check_finite_array,
    check_labeled_rows,
    check_more_rows,
    encode_labels,
)
from surefoot._version import __version__
from surefoot.certificates import verify as v
from surefoot.costs.metrics import Chebyshev, Euclidean, FeatureMetric, Mahalanobis, Manhattan, WeightedMetric
from surefoot.problem.rows import fingerprints, unwrap

# Arrays with more numbers than this go into the second file.
_FEW = 1000
_SAME = 1e-12


def array_data(labeled: FloatArray, rows: FloatArray, y: Sequence[Any], classes: Sequence[Any]) -> dict[str, Any]:
    """Describe the labeled rows (n, d) and the rows (N, d) of the feature marginal, given as arrays."""
    return {
        "form": "arrays",
        "rows": len(rows),
        "labeled": len(labeled),
        "classes": list(classes),
        "features": v.array_digest(labeled, rows),
        "labels": v.labels_digest(y),
        "table": None,
    }


def save_certificate(
    certificate: Any,
    path: str | Path,
    X: Any,
    y: Any,
    X_unlabeled: Any,
    X_target: Any,
    losses: Any,
    classes: Any,
) -> list[Path]:
    """Write the evidence of `Certificate.save`."""
    bound, K = certificate.row_bound, len(certificate.label_intervals)
    if bound is None or certificate.worst_case is None:
        raise _no_dual_point()
    labeled, labels = check_labeled_rows(X, y)
    other = unwrap(X_unlabeled if X_target is None else X_target)[0]
    parts = [part for part in ([X, other] if X_target is None else [other]) if part is not None and len(part)]
    rows = np.vstack([check_more_rows(part, "X_unlabeled", labeled.shape[1]) for part in parts])
    N = len(certificate.worst_case.row_weights)
    if len(rows) != N or not np.array_equal(np.unique(fingerprints(rows)), np.unique(bound.used)):
        raise ParameterError(
            "X",
            f"and X_unlabeled (or X_target) must be the {N} rows of the certificate, in the same order",
            f"{len(rows)} rows" if len(rows) != N else "other rows",
            "Pass what was passed to certify or fit.",
        )
    known = getattr(bound.losses_at, "classes", None) if classes is None else classes
    names, codes = encode_labels(labels, known)
    if len(names) != K:
        raise ParameterError("classes", f"must name all {K} classes", names.tolist(), "Pass the classes of the fit.")
    if losses is None and bound.losses_at is None:
        raise ParameterError(
            "losses",
            "must be given, because the certificate was made from a matrix of losses or with X_metric",
            "None",
            f"Pass losses=, of shape ({len(rows)}, {K}).",
        )
    found = np.vstack([bound.losses_at(part) for part in parts]) if losses is None else losses
    matrix = check_finite_array(found, "losses", ndim=2)
    if matrix.shape != (len(rows), K):
        raise ParameterError("losses", f"must have shape ({len(rows)}, {K})", matrix.shape, "Pass one row per row.")
    rule = "rule of thumb" if not certificate.guaranteed else "given" if certificate.estimate is None else "calibrated"
    data = array_data(
        labeled, rows, [v.plain_label(label) for label in labels], [v.plain_label(name) for name in names]
    )
    claim = certificate_claim(
        certificate, labeled, codes, rows, certificate.worst_case.row_weights, matrix,
        rule=rule, target=X_target is not None, data=data,
    )  # fmt: skip
    classifier = getattr(bound.losses_at, "classifier", None)
    model = None if classifier is None else model_data(type(classifier).__name__)
    return write_evidence(path, data, [claim], model=model)


def model_data(
    name: str, sha256: str | None = None, column: str | None = None, score: str | None = None
) -> dict[str, Any]:
    """Describe the source of the predictions: a classifier, a model file with its SHA-256, or columns of the table."""
    return {"name": name, "sha256": sha256, "column": column, "score": score}


def _no_dual_point() -> ParameterError:
    return ParameterError(
        "certificate",
        "must hold a dual point to be saved",
        "one of a Wasserstein ball, of a group, or of more than 2^24 rows",
        "Save the certificate of certify(...) or of RobustLogisticRegression.",
    )


def certificate_claim(
    certificate: Any,
    labeled: FloatArray,
    codes: NDArray[np.intp],
    rows: FloatArray,
    row_weights: FloatArray,
    losses: FloatArray,
    *,
    rule: str,
    target: bool,
    data: dict[str, Any],
) -> dict[str, Any]:
    """Build the claim of a certificate from its dual points, for losses (N, K) at the rows (N, d) of the marginal.

    rule : the source of the radius, "given", "calibrated" or "rule of thumb".
    """
    bound, estimate = certificate.row_bound, certificate.estimate
    if bound is None:
        raise _no_dual_point()
    K, first = len(data["classes"]), bound.sets[0].decision_set
    weights, group = _weights_of_rows(bound.anchors, first, labeled, codes)
    cost = np.asarray(certificate.label_cost, dtype=np.float64)
    intervals = np.asarray(certificate.label_intervals, dtype=np.float64)
    matrix = cost * (1.0 - np.eye(K)) if cost.ndim == 0 else cost
    values = np.full(len(codes), 1.0 / len(codes)) if weights is None else weights
    shares = v.shares_of(codes, values, K)
    tied = rule == "calibrated" and bool(np.any(intervals[:, 0] < intervals[:, 1]))
    by_labels = v.clopper_pearson(np.bincount(codes, minlength=K), 0.95)
    derived = weights is None and bool(np.abs(by_labels - intervals).max() <= _SAME)
    part = v.relabeling(matrix, shares, intervals)
    chosen: dict[str, Any] = {
        "radius": {
            "rule": rule,
            "value": float(certificate.radius),
            "minimal": float(certificate.minimal_radius),
            "features": max(float(certificate.minimal_radius) - part, 0.0),
            "excess": None if estimate is None else float(estimate.excess),
            "level": None if estimate is None else float(estimate.level),
            "n_labels": None if estimate is None else int(estimate.n_labeled),
            "splits": None if estimate is None else np.asarray(estimate.splits, dtype=np.float64),
        },
        "tied": tied,
        "label_intervals": intervals.tolist(),
        "intervals_rule": "clopper-pearson" if derived else "given",
        "label_cost": float(cost) if cost.ndim == 0 else cost.tolist(),
        "metric": _metric(certificate.metric, learned=estimate is not None and estimate.learned_metric),
        "labeled_weights": weights,
        "row_weights": None if np.ptp(row_weights) <= _SAME * row_weights[0] else row_weights,
        "target": target,
    }
    sets = v.sets_of(chosen, K)
    points: list[dict[str, Any]] = []
    for one in bound.sets:
        ds = one.decision_set
        gaining = () if not tied else next(s.gaining for s in sets if np.abs(s.cost - ds.label_cost).max() <= 1e-9)
        beta = one.point.beta[group] if len(one.point.beta) else np.zeros(len(labeled))
        lam = [float(value) for value in one.point.lam]
        points.append({"gaining": list(gaining), "alpha": float(one.point.alpha), "lambda": lam, "beta": beta})
    by_set = {tuple(point["gaining"]): point for point in points}
    value = max(
        v.value_at_point(
            one, by_set[one.gaining], intervals, values, codes, row_weights, losses,
            lambda part: v.metric_of(chosen["metric"]).distances(rows[part], labeled),
        )
        for one in sets
        if one.gaining in by_set
    )  # fmt: skip
    claimed = v.claimed_value(max(value, float(certificate.risk)))
    claim = {
        "type": v.CERTIFICATE,
        "metric": certificate.loss,
        "value": min(claimed, 1.0) if certificate.loss == "zero_one" else claimed,
        "kind": "none" if rule == "rule of thumb" else "conditional",
        "confidence": None,
        "predictions": v.array_digest(losses),
        "set": chosen,
        "proof": {"points": points, "losses": losses},
    }
    return {**claim, **v.claim_words(claim, data)}


def audit_claim(
    data: dict[str, Any], value: float, level: float, predictions: list[Any], type_: str = v.AUDIT, **proof: Any
) -> dict[str, Any]:
    """Build the claim of an audit or of a finished table. `proof` holds all its fields except labels and codes."""
    names = distinct(predictions)
    at = {(type(name), name): code for code, name in enumerate(names)}
    codes = np.array([at[type(label), label] for label in predictions], dtype=np.int64)
    claim = {
        "type": type_,
        "metric": "zero_one" if type_ == v.AUDIT else "wrong_labels",
        "value": value,
        "kind": "theorem",
        "confidence": level,
        "predictions": v.labels_digest(predictions),
        "proof": {"labels": names, "codes": codes, **proof},
    }
    return {**claim, **v.claim_words(claim, data)}


def distinct(labels: list[Any]) -> list[Any]:
    """Return the distinct labels in order of first appearance. 1, 1.0 and true are distinct."""
    return list({(type(label), label): label for label in labels}.values())


def crossfit_claim(data: dict[str, Any], bound: Any) -> dict[str, Any]:
    """Build the claim of a cross-fitted `ErrorBound` on the error rate, without a control variate."""
    claim = {
        "type": v.CROSSFIT,
        "metric": bound.loss,
        "value": float(bound.value),
        "kind": bound.kind,
        "confidence": float(bound.level),
        "proof": {name: getattr(bound, name) for name in ("n_labels", "n_errors", "n_groups", "group_errors")},
    }
    return {**claim, **v.claim_words(claim, data)}


def _weights_of_rows(
    anchors: FloatArray, ds: Any, labeled: FloatArray, codes: NDArray[np.intp]
) -> tuple[FloatArray | None, NDArray[np.intp]]:
    """Return the weights (n,) of labeled rows (None if equal), and the anchor (n,) of each row."""
    pairs = zip(anchors + 0.0, ds.anchor_labels, strict=True)
    keys = {(row.tobytes(), int(code)): at for at, (row, code) in enumerate(pairs)}
    found = [keys.get((row.tobytes(), int(code)), -1) for row, code in zip(labeled + 0.0, codes, strict=True)]
    at = np.array(found, dtype=np.intp)
    if set(at[at >= 0].tolist()) != set(range(len(anchors))):
        raise ParameterError(
            "X",
            "and y must be the labeled rows of the certificate",
            "other rows or labels",
            "Pass what was passed to certify or fit.",
        )
    shared = np.bincount(at[at >= 0], minlength=len(anchors))
    weights = np.where(at >= 0, (ds.anchor_weights / np.maximum(shared, 1))[at], 0.0)
    equal = bool(np.abs(weights - 1.0 / len(weights)).max() <= _SAME)
    return (None if equal else weights / weights.sum()), np.maximum(at, 0)


def _metric(metric: FeatureMetric | None, *, learned: bool) -> dict[str, Any]:
    """Describe the metric. Others cannot check a function or a matrix of distances.

    learned : whether the radius was estimated with metrics learned from the labels.
    """
    names = {Euclidean: "euclidean", Manhattan: "manhattan", Chebyshev: "chebyshev"}
    if type(metric) in names:
        return {"name": names[type(metric)]}  # type: ignore[index]
    if isinstance(metric, WeightedMetric):
        return {"name": "weighted", "weights": metric.weights, "directions": metric.directions, "learned": learned}
    if isinstance(metric, Mahalanobis):
        return {"name": "mahalanobis", "inverse_covariance": metric.inverse_covariance}
    raise ParameterError(
        "metric",
        "must be one of surefoot.costs with numbers only, so that others can compute the distances",
        type(metric).__name__,
        "Certify with such a metric to save evidence.",
    )


def write_evidence(
    path: str | Path,
    data: dict[str, Any],
    claims: list[dict[str, Any]],
    *,
    model: dict[str, Any] | None = None,
    seed: int | None = None,
) -> list[Path]:
    """Write claims with their proofs, and large arrays into a second file. Return the files."""
    file = Path(path)
    if file.suffix.lower() != ".json":
        raise ParameterError("path", "must end in .json", repr(str(path)), "Pass a name such as certificate.json.")
    arrays: dict[str, NDArray[Any]] = {}
    content: dict[str, Any] = {
        "format": v.FORMAT,
        "version": v.VERSION,
        "versions": {
            "surefoot": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "scikit-learn": sklearn.__version__,
        },
        "seed": seed,
        "data": data,
        "model": model,
        "arrays": None,
        "claims": _as_json(claims, arrays),
    }
    written = [file]
    if arrays:
        side, packed = file.with_suffix(".npz"), io.BytesIO()
        np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
        write_bytes(side, packed.getvalue())
        content["arrays"] = {"file": side.name, "sha256": v.sha256(packed.getvalue())}
        written.append(side)
    content["sha256"] = v.checksum(content)
    write_bytes(file, (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())
    return written


def _as_json(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Return plain values. An array becomes nested lists, or its name in `arrays` if it is large."""
    if isinstance(value, dict):
        return {key: _as_json(part, arrays) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(part, arrays) for part in value]
    if isinstance(value, np.ndarray):
        if value.size <= _FEW:
            return value.tolist()
        name = next((key for key, known in arrays.items() if np.array_equal(known, value)), f"a{len(arrays)}")
        arrays[name] = np.ascontiguousarray(value)
        return {"array": name}
    return value
