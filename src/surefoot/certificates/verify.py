"""Check evidence without the solver: a worst case at its dual points, an audit from its draws and labels.

A reviewer runs this code on a file that someone else wrote. The code shares nothing with the solvers and the audit
engine. Only the distances come from `surefoot.costs`. docs/evidence.md describes the format and each formula.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.special import logsumexp
from scipy.stats import beta, betabinom, hypergeom

from surefoot._errors import FileError, ParameterError, import_extra
from surefoot._printing import (
    PrintsAsTable,
    count,
    percent,
    rounded_up,
    share_at_least,
    share_at_most,
    short_percent,
)
from surefoot._validation import FloatArray
from surefoot.costs.metrics import Chebyshev, Euclidean, FeatureMetric, Mahalanobis, Manhattan, WeightedMetric
from surefoot.problem.rows import unwrap

# The file: JSON with a schema, plus a second file for large arrays.

FORMAT, VERSION = "surefoot.evidence", 1
SCHEMA = "evidence.schema.json"
CERTIFICATE, CROSSFIT, AUDIT, FINISH = "certificate", "crossfit", "audit", "finish"
# Marks a row without a prediction. Annotators label this row.
NO_PREDICTION = ""
# Maximum size in bytes of an unpacked file of arrays, and of a JSON file.
_MOST_BYTES, _MOST_TEXT = 1 << 32, 256 << 20
_ARRAYS = {"splits", "labeled_weights", "row_weights", "beta", "losses", "codes", "belief"}
_ARRAYS |= {"weights", "directions", "inverse_covariance", "scores", "model_rows"}


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema of the format."""
    text = files("surefoot.certificates").joinpath(SCHEMA).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def checksum(content: dict[str, Any]) -> str:
    """Return the SHA-256 of the content without its field "sha256", as JSON with sorted keys and no whitespace."""
    rest = {name: value for name, value in content.items() if name != "sha256"}
    return sha256(json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False))


def sha256(content: str | bytes) -> str:
    """Return the SHA-256 of bytes, or of a text in UTF-8."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def array_digest(*arrays: Any) -> str:
    """Return the SHA-256 of arrays of numbers: each shape, then the entries as little-endian float64."""
    digest = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray(array, dtype="<f8") + 0.0  # -0.0 is 0.0
        digest.update(repr(tuple(values.shape)).encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def labels_digest(labels: Sequence[Any]) -> str:
    """Return the SHA-256 of plain labels (null for missing labels) as a JSON list."""
    return sha256(json.dumps(list(labels), ensure_ascii=False))


def read_evidence(path: str | Path) -> dict[str, Any]:
    """Read an evidence file. Check its schema and checksum, and load its arrays."""
    file = Path(path)
    try:
        if file.stat().st_size > _MOST_TEXT:
            raise FileError(f"{file} must have at most {_MOST_TEXT >> 20} MiB. Pass a smaller file.")
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{file} could not be read: {error.strerror or error}. Check the path.") from error
    except (ValueError, RecursionError) as error:
        raise FileError(f"{file} must be evidence of surefoot in JSON ({error}). Save it again.") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise FileError(f"{file} must be evidence of surefoot. Pass a file written with --evidence.")
    if content.get("version") != VERSION:
        raise FileError(
            f"{file} must be of version {VERSION}; got {content.get('version')!r}. Install the surefoot that wrote it."
        )
    jsonschema = import_extra("jsonschema", "cli", "evidence")
    wrong = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema()).iter_errors(content))
    if wrong is not None:
        where = "/".join(map(str, wrong.absolute_path)) or "the file"
        raise EvidenceError(f"{file} does not have the form of evidence: {where}: {wrong.message[:200]}")
    if content["sha256"] != checksum(content):
        raise EvidenceError(f"{file} was changed after it was written: its checksum is another")
    if content["arrays"] is not None:
        _load_arrays(file, content)
    return content


class EvidenceError(FileError):
    """Raised for evidence that was changed or contradicts itself."""


def _load_arrays(file: Path, content: dict[str, Any]) -> None:
    name = content["arrays"]["file"]
    path = file.parent / name
    if Path(name).name != name:
        raise EvidenceError(f"{file} names arrays outside its folder: {name!r}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path} could not be read: {error.strerror or error}. Keep it beside {file.name}.") from error
    if sha256(data) != content["arrays"]["sha256"]:
        raise EvidenceError(f"{path} was changed after it was written: its checksum is another")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(one.file_size for one in archive.infolist()) > _MOST_BYTES:
                raise EvidenceError(f"{path} unpacks to more than {_MOST_BYTES >> 30} GiB. It was not loaded")
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            arrays = {key: found[key] for key in found.files}
    except (zipfile.BadZipFile, ValueError, KeyError) as error:
        raise EvidenceError(f"{path} must hold arrays of numbers ({error})") from error
    _put_in_place(content, arrays)


def _put_in_place(node: Any, arrays: dict[str, Any]) -> None:
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in list(entries):
        if isinstance(value, dict) and set(value) == {"array"}:
            if key not in _ARRAYS or value["array"] not in arrays or arrays[value["array"]].dtype.kind not in "fi":
                raise EvidenceError(f"the arrays lack {value['array']!r}")
            node[key] = arrays[value["array"]]
        else:
            _put_in_place(value, arrays)


# The text of a claim follows from its fields. A text that claims more than the fields is a mismatch.

_RADIUS_WORDS = {
    "given": "The radius was given. Nothing in the data proves that the true distribution lies within it.",
    "calibrated": "The radius was estimated from {n} labels so that it covers the true distribution in {level} of "
    "samples. This coverage was measured on datasets and is not proved.",
    "learned": "The radius was estimated from {n} labels so that it covers the true distribution in {level} of "
    "samples. Distances are in a metric learned from the same labels, and again from half of them in each half-split. "
    "This coverage was measured on datasets and is not proved.",
    "rule of thumb": "The radius comes from a rule of thumb. It need not contain the true distribution, so the claim "
    "guarantees nothing about it.",
}
_KINDS = {"given": "conditional", "calibrated": "conditional", "rule of thumb": "none"}


def claim_words(claim: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """Return the statement of a claim, its assumptions, and the events that would void it."""
    words = {
        CERTIFICATE: _certificate_words,
        CROSSFIT: _crossfit_words,
        AUDIT: _audit_words,
        FINISH: _finish_words,
    }
    return words[claim["type"]](claim, data)


def amount(claim: dict[str, Any]) -> str:
    """Return the bounded quantity with its bound."""
    value, metric = claim["value"], claim["metric"]
    if metric == "zero_one":
        return f"error rate of at most {share_at_most(value)}\N{NO-BREAK SPACE}%"
    return f"mean {metric.replace('_', ' ')} of at most {rounded_up(value, 4)}"


def _certificate_words(claim: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    chosen, radius = claim["set"], claim["set"]["radius"]
    size = (
        f"excess of {radius['excess']:.6g} over the minimal radius, which is at least {radius['minimal']:.6g},"
        if chosen["tied"]
        else f"radius {radius['value']:.6g}"
    )
    intervals = ", ".join(
        f"{name}: {share_at_least(low)} to {share_at_most(high)}\N{NO-BREAK SPACE}%"
        for name, (low, high) in zip(data["classes"], chosen["label_intervals"], strict=True)
    )
    which = "the rows of the target population" if chosen["target"] else "all rows, labeled and unlabeled"
    level = "" if radius["level"] is None else percent(radius["level"])
    learned = radius["rule"] == "calibrated" and chosen["metric"].get("learned", False)
    return {
        "statement": f"Worst case: {amount(claim)} over every distribution within a transport {size} of the "
        f"{count(data['labeled'], 'labeled row')}.",
        "assumptions": [
            "The true distribution lies in this set.",
            _RADIUS_WORDS["learned" if learned else radius["rule"]].format(n=radius["n_labels"], level=level),
            f"The shares of the classes are {intervals}.",
            f"There are no other classes than {', '.join(map(str, data['classes']))}.",
            f"The claim covers {which} ({data['rows']} in all), not future rows.",
        ],
        "void_if": ["A cell or a label of these rows changes.", "The classifier changes."],
    }


def _crossfit_words(claim: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    seen = claim["proof"]
    groups = "" if seen["n_groups"] is None else f" in {count(seen['n_groups'], 'group')}"
    errors = f"{count(seen['n_errors'], 'error')} on {count(seen['n_labels'], 'label')}{groups}"
    return {
        "statement": f"With {percent(claim['confidence'])} confidence (measured): {amount(claim)} on the population of "
        f"the labels; {errors} in cross-validation.",
        "assumptions": [
            "The labels are an independent random sample of this population.",
            "The classifier is trained on all labels by the recipe that was cross-validated.",
            "The coverage of this bound was measured on datasets and is not proved.",
        ],
        "void_if": ["Labels were chosen, not sampled at random.", "The recipe was chosen by these same labels."],
    }


def _sample_size(proof: dict[str, Any]) -> str:
    return {
        "planned": f"The number of labels, {proof['plan']}, was fixed before the first label was seen.",
        "anytime": "The bound holds at every number of labels, so the audit may have stopped at any time.",
    }[proof["rule"]]


def _audit_words(claim: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    proof = claim["proof"]
    seen = count(len(proof["draws"]), "label")
    return {
        "statement": f"With {percent(claim['confidence'])} confidence: {amount(claim)} on the "
        f"{count(data['rows'], 'row')} of the pool; {count(proof['n_errors'], 'error')} on {seen}.",
        "assumptions": [
            "The predictions were fixed before the first of these labels was seen.",
            "The labels are right. A skipped row counts as an error.",
            "The seed and the confidence level were fixed before the first label was seen.",
            _sample_size(proof),
        ],
        "void_if": ["A cell of these rows changes.", "A prediction changes.", "A label of the audit was wrong."],
    }


def _finish_words(claim: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    proof = claim["proof"]
    share, n_model = share_at_most(claim["value"]), count(len(proof["model_rows"]), "row")
    return {
        "statement": f"With {percent(claim['confidence'])} confidence: at most {share}\N{NO-BREAK SPACE}% of the "
        f"{count(data['rows'], 'label')} of the finished table are wrong. The model labels {n_model}, and annotators "
        "the others.",
        "assumptions": [
            "The predictions and their scores were fixed before the first label of the sample was seen.",
            "The labels of annotators are right. A row that they skipped has no label.",
            f"The seed, the confidence level and the largest share of wrong labels, "
            f"{short_percent(proof['max_error'])}, were fixed before the first label of the sample was seen.",
            _sample_size(proof),
        ],
        "void_if": ["A cell of these rows changes.", "A prediction changes.", "A label of an annotator was wrong."],
    }


# The result.


@dataclass(eq=False, repr=False)
class Verification(PrintsAsTable):
    """The result of checking an evidence file.

    Attributes
    ----------
    claims : list of str
        The claims of the file as sentences.
    verified : list of str
        The recomputed facts that agree.
    not_verified : list of str
        The facts that these files cannot prove.
    mismatches : list of str
        The facts that do not agree; empty if the evidence holds.
    """

    claims: list[str] = field(default_factory=list)
    verified: list[str] = field(default_factory=list)
    not_verified: list[str] = field(default_factory=list)
    mismatches: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether at least one fact was verified and there is no mismatch."""
        return not self.mismatches and bool(self.verified)

    def check(self, holds: object, claim: str, otherwise: str | None = None) -> bool:
        """Record a fact as verified or as a mismatch.

        Parameters
        ----------
        holds : bool
            Whether the fact agrees with the data.
        claim : str
            The fact, recorded as verified if it holds. An empty text is not recorded.
        otherwise : str or None, default=None
            Text of the mismatch. None: the text is that the claim does not hold.

        Returns
        -------
        bool
            Whether the fact agrees with the data.
        """
        if bool(holds):
            self.verified += [claim] if claim else []
        else:
            self.mismatches.append(otherwise or f"this does not hold: {claim}")
        return bool(holds)

    def _title(self) -> str:
        return "The evidence holds" if self.ok else "The evidence does NOT hold"

    def _rows(self) -> list[tuple[str, str]]:
        parts = {
            "claim": self.claims,
            "mismatch": self.mismatches,
            "verified": self.verified,
            "not verified": self.not_verified,
        }
        return [(name if k == 0 else "", text) for name, texts in parts.items() for k, text in enumerate(texts)]


@dataclass(frozen=True, eq=False)
class CheckedData:
    """The data that a reviewer has to check a claim.

    rows : (N, d) of the feature marginal, labeled rows first; labeled : (n, d) with labels (n,).
    losses_of : function that returns the losses (N, K) of the classifier for a claim, or None if unknown.
    predictions : (N,) of the classifier, in the order of the pool; known_labels : labels by row of the pool.
    target : whether the rows come from another population; scores : (N,) of the predictions.
    authors : (N,) of a finished table, "person", "model" or None. known_labels then holds the labels by both.
    """

    features: str | None = None
    labels: str | None = None
    rows: FloatArray | None = None
    labeled: FloatArray | None = None
    y: Sequence[Any] = ()
    losses_of: Callable[[str], FloatArray | None] = lambda _metric: None
    predictions: Sequence[Any] | None = None
    known_labels: dict[int, Any] | None = None
    target: bool = False
    scores: FloatArray | None = None
    authors: Sequence[Any] | None = None


def verify_content(content: dict[str, Any], data: CheckedData) -> Verification:
    """Recompute every claim of a file from the data."""
    found = Verification([claim["statement"] for claim in content["claims"]])
    described = content["data"]
    kind = "cells of the table" if described["form"] == "table" else "rows"
    about_rows = any(claim["type"] not in (AUDIT, FINISH) for claim in content["claims"])
    if described["features"] is None:
        found.check(data.features is None and not about_rows, "", "the file does not say which rows it is about")
        found.not_verified.append("the rows: the claim is about predictions alone")
    elif data.features is None:
        found.not_verified.append("that the rows are those of the claim: pass them")
    else:
        found.check(data.features == described["features"], f"the {kind} are those of the claim (SHA-256)")
    if described["labels"] is not None and data.labels is not None:
        found.check(data.labels == described["labels"], "the labels are those of the claim (SHA-256)")
    else:
        found.check(not about_rows, "", "the file does not say which labels it is about")
    if found.mismatches:
        return found
    checks = {
        CERTIFICATE: _check_certificate,
        CROSSFIT: _check_crossfit,
        AUDIT: _check_audit,
        FINISH: _check_finish,
    }
    for claim in content["claims"]:
        try:
            for name, text in claim_words(claim, described).items():
                found.check(claim[name] == text, "", f"the text {name!r} of a claim says other things than its fields")
            checks[claim["type"]](found, claim, described, data)
        except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:  # inconsistent fields
            found.check(False, "", f"a claim contradicts itself ({type(error).__name__}: {error})")
    for texts in (found.mismatches, found.verified, found.not_verified):  # claims may share a set
        texts[:] = dict.fromkeys(texts)
    return found


def verify(
    path: str | Path,
    X: Any = None,
    y: Any = None,
    *,
    X_unlabeled: Any = None,
    X_target: Any = None,
    classifier: Any = None,
    losses: Any = None,
) -> Verification:
    """Check an evidence file about arrays, without the solver. For a table, use `surefoot verify`.

    Parameters
    ----------
    path : path
        The file that `Certificate.save` or `Audit.save` wrote.
    X : array of shape (n, d) or None, default=None
        The labeled rows of a certificate, or the rows of an audited pool.
    y : array of shape (n,) or None, default=None
        The labels of X. For an audited pool: the known labels, with NaN or None for missing labels.
    X_unlabeled : array of shape (M, d) or None, default=None
        Unlabeled rows of a certificate.
    X_target : array of shape (M, d) or None, default=None
        Rows of another population, if the certificate is about one.
    classifier : fitted classifier or None, default=None
        The classifier of the claim. None: the losses or predictions in the file are used as they are.
    losses : array of shape (N, K) or None, default=None
        Losses at all rows, if the certificate was made from a matrix of losses.

    Returns
    -------
    Verification
        The verified facts, the facts that these data cannot prove, and the mismatches. `ok` is True if at least one
        fact was verified and there is no mismatch.

    Examples
    --------
    >>> import tempfile
    >>> import surefoot as sf
    >>> X, y, U = [[0.0], [1.0]], [0, 1], [[0.1], [0.9]]
    >>> clf = sf.RobustLogisticRegression(radius=0.2, label_prior=[0.5, 0.5]).fit(X, y, X_unlabeled=U)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = clf.certificate_.save(f"{folder}/certificate.json", X, y, X_unlabeled=U)
    ...     sf.verify(f"{folder}/certificate.json", X, y, X_unlabeled=U, classifier=clf).ok
    True
    """
    try:
        content = read_evidence(path)
    except EvidenceError as error:
        return Verification(mismatches=[str(error)])
    described = content["data"]
    if described["form"] != "arrays":
        raise ParameterError(
            "path", "must be evidence about arrays", "evidence about a table", "Run surefoot verify for it."
        )
    if content["claims"][0]["type"] == AUDIT:
        predicted = None if classifier is None else np.asarray(classifier.predict(X)).ravel().tolist()
        known = None if y is None else {k: one for k, one in enumerate(np.asarray(y).tolist()) if _is_label(one)}
        features = None if X is None else rows_digest(X)
        return verify_content(content, CheckedData(features, predictions=predicted, known_labels=known))
    if X is None or y is None:
        raise ParameterError("X", "and y must be given to verify a certificate", "None", "Pass the labeled rows.")
    bare = unwrap(X_unlabeled if X_target is None else X_target)[0]
    parts = [part for part in ([X, bare] if X_target is None else [bare]) if part is not None and len(part)]
    labeled, rows = as_rows(X), np.vstack([as_rows(part) for part in parts])
    labels = [plain_label(label) for label in np.asarray(y).tolist()]

    def losses_of(metric: str) -> FloatArray | None:
        if losses is not None:
            return np.asarray(losses, dtype=np.float64)
        if classifier is None:
            return None
        found = [losses_by(classifier, part, metric, described["classes"]) for part in parts]
        return None if any(one is None for one in found) else np.vstack([one for one in found if one is not None])

    features = array_digest(labeled, rows)
    target = X_target is not None
    checked = CheckedData(features, labels_digest(labels), rows, labeled, labels, losses_of, target=target)
    return verify_content(content, checked)


def as_rows(X: Any) -> FloatArray:
    """Return rows as float64."""
    return np.ascontiguousarray(np.asarray(X, dtype=np.float64))


def plain_label(label: Any) -> Any:
    """Return a label as JSON stores it."""
    return label.item() if isinstance(label, np.generic) else label


def rows_digest(X: Any) -> str:
    """Return the SHA-256 of rows of numbers or texts."""
    rows = np.asarray(X)
    return array_digest(rows) if rows.dtype.kind in "fiub" else sha256(json.dumps(rows.tolist(), default=str))


def _is_label(value: Any) -> bool:
    return value is not None and value == value  # noqa: PLR0124 - NaN


def losses_by(classifier: Any, rows: Any, metric: str, classes: Sequence[Any]) -> FloatArray | None:
    """Return losses (M, K) of a classifier at rows, or None for a metric whose losses only the evidence defines."""
    if metric == "zero_one":
        predicted = np.asarray(classifier.predict(rows)).ravel().tolist()
        return np.array([[float(answer != one) for one in classes] for answer in predicted])
    if metric != "log_loss":
        return None
    proba, own = np.asarray(classifier.predict_proba(rows), dtype=np.float64), np.asarray(classifier.classes_).tolist()
    whole = np.column_stack([proba[:, own.index(one)] if one in own else np.zeros(len(proba)) for one in classes])
    return -np.log(np.clip(whole, 1e-12, 1.0))


# A worst case: its dual points, evaluated at all rows.

# Claimed values exceed the proved value by this margin, so that rounding on another machine does not matter.
MARGIN = 1e-9
_SAME = 1e-6
# Up to this number of distances, another solver recomputes the minimal radius.
_MOST_DISTANCES = 4_000_000
_CHUNK = 1 << 20


def metric_of(described: dict[str, Any]) -> FeatureMetric:
    """Return the distance that a claim names."""
    name = described["name"]
    if name == "weighted":
        return WeightedMetric(described["weights"], described["directions"])
    if name == "mahalanobis":
        return Mahalanobis(np.asarray(described["inverse_covariance"]))
    plain_metrics: dict[str, FeatureMetric] = {
        "euclidean": Euclidean(),
        "manhattan": Manhattan(),
        "chebyshev": Chebyshev(),
    }
    return plain_metrics[name]


@dataclass(frozen=True, eq=False)
class ClaimedSet:
    """One set of a claim: its label cost (K, K), its radius, and the classes that gain in a tied set."""

    cost: FloatArray
    radius: float
    gaining: tuple[int, ...] = ()


def sets_of(chosen: dict[str, Any], K: int) -> list[ClaimedSet]:
    """Return the sets whose union a claim covers.

    A tied claim covers W(μ, labels) ≤ W_d + excess + κ TV(p_μ, p̂), with W_d the transport distance of the features.
    TV is the largest gain of a set S of classes, so the claim covers one set for each S. In that set, changing a label
    into S costs κ less, and changing a label out of S costs κ more.
    """
    given = np.asarray(chosen["label_cost"], dtype=np.float64)
    cost = given * (1.0 - np.eye(K)) if given.ndim == 0 else given
    radius = chosen["radius"]
    if not chosen["tied"]:
        return [ClaimedSet(cost, radius["value"])]
    found = []
    for size in range(1, K):
        for gaining in combinations(range(K), size):
            inside = np.isin(np.arange(K), gaining).astype(float)
            own = np.maximum(cost + given.max() * (inside[None, :] - inside[:, None]), 0.0)
            found.append(ClaimedSet(own, radius["features"] + radius["excess"], gaining))
    return found


def value_at_point(
    one: ClaimedSet,
    point: dict[str, Any],
    intervals: FloatArray,
    weights: FloatArray,
    codes: NDArray[np.intp],
    row_weights: FloatArray,
    losses: FloatArray,
    distances: Callable[[slice], FloatArray],
) -> float:
    """Return the dual value at a point, which bounds the expected loss of every distribution in the set.

    αr + Σ_i w_i β_i + Σ_k max(λ_k hi_k, λ_k lo_k) + Σ_j m_j max_{k,i} (ℓ_jk − α (d_ji + C[k, y_i]) − β_i − λ_k).

    The bound holds for every α ≥ 0, β and λ.
    """
    alpha, lam, beta_ = point["alpha"], np.asarray(point["lambda"]), np.asarray(point["beta"])
    used = np.flatnonzero(weights > 0)
    total = [alpha * one.radius, float(weights[used] @ beta_[used])]
    total.append(float(np.maximum(lam * intervals[:, 1], lam * intervals[:, 0]).sum()))
    step = max(1, _CHUNK // max(len(used), 1))
    for start in range(0, len(losses), step):
        part = slice(start, start + step)
        reach = -alpha * distances(part)[:, used] - beta_[used]
        best = np.full(len(reach), -np.inf)
        for k in range(losses.shape[1]):
            gain = (reach - alpha * one.cost[k, codes[used]]).max(axis=1) + losses[part, k] - lam[k]
            best = np.maximum(best, gain)
        total.append(float(row_weights[part] @ best))
    return math.fsum(total)


def claimed_value(value: float) -> float:
    """Return the number to claim for a proved value: rounded up, with a margin."""
    return math.ceil((value + MARGIN) / MARGIN) * MARGIN


def _check_certificate(
    found: Verification, claim: dict[str, Any], described: dict[str, Any], data: CheckedData
) -> None:
    chosen, proof = claim["set"], claim["proof"]
    if data.rows is None or data.labeled is None:
        found.not_verified.append("the worst case: the rows are missing")
        return
    n, N, K = len(data.labeled), len(data.rows), len(described["classes"])
    losses = np.asarray(proof["losses"], dtype=np.float64)
    intervals = np.asarray(chosen["label_intervals"], dtype=np.float64)
    weights = _weights(chosen["labeled_weights"], n)
    row_weights = _weights(chosen["row_weights"], N)
    sound = (
        (n, N) == (described["labeled"], described["rows"])
        and losses.shape == (N, K)
        and bool(np.isfinite(losses).all())
        and _is_weighting(weights, n)
        and _is_weighting(row_weights, N)
        and _is_interval(intervals, K)
        and all(label in described["classes"] for label in data.y)
        and all(_is_point(point, n, K) for point in proof["points"])
        and np.shape(chosen["label_cost"]) in ((), (K, K))
        and chosen["target"] == data.target
    )
    if not found.check(sound, "", "the numbers of rows, classes or weights contradict each other"):
        return
    codes = np.array([described["classes"].index(label) for label in data.y], dtype=np.intp)
    _check_losses(found, claim, losses, data)
    found.check(claim["kind"] == _KINDS[chosen["radius"]["rule"]], "", "the kind does not follow from the radius")
    found.check(claim["confidence"] is None, "", "a worst case has no confidence level")
    _check_set(found, chosen, weights, codes, row_weights, data, intervals)
    metric = metric_of(chosen["metric"])
    labeled, rows = data.labeled, data.rows
    value, sets = -np.inf, sets_of(chosen, K)
    points = {tuple(point["gaining"]): point for point in proof["points"]}
    found.check(len(points) == len(proof["points"]), "", "two dual points are of the same set")
    for one in sets:
        point = points.pop(one.gaining, None)
        if point is None:
            shares = shares_of(codes, weights, K)
            empty = chosen["tied"] and relabeling(one.cost, shares, intervals) > chosen["radius"]["excess"]
            found.check(empty, "", f"the proof lacks the set in which the classes {one.gaining} gain")
            continue
        value = max(
            value,
            value_at_point(
                one, point, intervals, weights, codes, row_weights, losses,
                lambda part: metric.distances(rows[part], labeled),
            ),
        )  # fmt: skip
    found.check(not points, "", "the proof holds points of other sets than those claimed")
    found.check(np.isfinite(value), "", "every set of the claim is empty")
    value = min(value, 1.0) if claim["metric"] == "zero_one" else value
    found.check(
        value <= claim["value"],
        f"{claim['metric']}: the dual point proves {value:.9g}, and {claim['value']:.9g} is claimed",
        f"{claim['metric']}: {claim['value']:.9g} is claimed, and the proof gives {value:.9g} only",
    )


def _check_losses(found: Verification, claim: dict[str, Any], losses: FloatArray, data: CheckedData) -> None:
    """Check that the losses match the claim, the form of their metric, and the classifier."""
    metric = claim["metric"]
    found.check(array_digest(losses) == claim["predictions"], "", f"the losses of {metric} were changed (SHA-256)")
    if metric == "zero_one":
        right = (losses == 0.0).sum(axis=1)
        whole = bool(np.isin(losses, (0.0, 1.0)).all() and (right <= 1).all())
        found.check(whole, "", "the losses of zero_one are not those of one prediction per row")
    found.check((losses >= 0).all() or metric not in ("zero_one", "log_loss"), "", f"{metric} must not be negative")
    own = data.losses_of(metric)
    if own is None:
        found.not_verified.append(f"{metric}: that the frozen losses are those of the classifier: pass the model")
        return
    most = -math.log(1e-12)
    same = own.shape == losses.shape and np.abs(np.minimum(own, most) - np.minimum(losses, most)).max() <= _SAME
    found.check(same, f"{metric}: the frozen losses are those of the classifier")


def _check_set(
    found: Verification,
    chosen: dict[str, Any],
    weights: FloatArray,
    codes: NDArray[np.intp],
    row_weights: FloatArray,
    data: CheckedData,
    intervals: FloatArray,
) -> None:
    """Check that the set is not empty, and that its radius and intervals match the claim."""
    radius, K = chosen["radius"], len(intervals)
    cost = ClaimedSet(*_plain(chosen, K))
    shares = shares_of(codes, weights, K)
    by_rule = chosen["intervals_rule"] == "clopper-pearson"
    if by_rule:
        wanted = clopper_pearson(np.bincount(codes, minlength=K), 0.95)
        found.check(
            np.abs(wanted - intervals).max() <= _SAME and chosen["labeled_weights"] is None,
            "the label intervals are the 95 % Clopper-Pearson intervals of the labels",
        )
    else:
        found.not_verified.append("that the shares of the classes lie in the stated intervals")
    least = radius["features"] + relabeling(cost.cost, shares, intervals)
    scale = 1e-6 * (1.0 + abs(radius["minimal"]))
    found.check(abs(least - radius["minimal"]) <= scale, "", "the minimal radius does not follow from its parts")
    if len(data.rows) * len(data.labeled) <= _MOST_DISTANCES:  # type: ignore[arg-type]
        features = _transport(metric_of(chosen["metric"]), data, weights, row_weights)
        found.check(
            abs(features - radius["features"]) <= 1e-5 * (1.0 + features),
            f"the minimal radius is {radius['minimal']:.6g}, by network simplex",
            f"the features are {features:.6g} apart; {radius['features']:.6g} is claimed",
        )
    else:
        found.not_verified.append("the minimal radius: there are too many distances to compute it again")
    total = radius["features"] + (radius["excess"] or 0.0) if chosen["tied"] else radius["value"]
    found.check(total >= least - scale or chosen["tied"], "", "the set is empty: the radius is below the minimal one")
    if radius["rule"] == "calibrated":
        n_distinct = len({(row.tobytes(), code) for row, code in zip(data.labeled, codes.tolist(), strict=True)})  # type: ignore[arg-type]
        _check_calibration(found, chosen, n_distinct)
    else:
        idle = all(radius[name] is None for name in ("excess", "level", "n_labels", "splits"))
        idle = idle and not chosen["metric"].get("learned", False)
        found.check(idle and not chosen["tied"], "", "only a calibrated radius has a level, an excess and half-splits")
    if radius["rule"] != "rule of thumb":
        found.not_verified.append("that the true distribution lies within the radius")
    else:
        found.not_verified.append("anything about the true distribution: the radius comes from a rule of thumb")


def _check_calibration(found: Verification, chosen: dict[str, Any], n_distinct: int) -> None:
    radius = chosen["radius"]
    if any(radius[name] is None for name in ("splits", "excess", "level", "n_labels")):
        found.check(False, "", "a calibrated radius must have its splits, excess and level")
        return
    splits = np.asarray(radius["splits"], dtype=np.float64)
    if not found.check(len(splits) and radius["n_labels"] <= n_distinct, "", "the radius has too few splits or labels"):
        return
    excess = float(np.quantile(splits, 0.5 * (1.0 + radius["level"])))
    found.check(
        abs(excess - radius["excess"]) <= 1e-12 + 1e-9 * excess,
        f"the excess of the radius is the quantile of its {len(splits)} half-splits at level {radius['level']:g}",
    )
    whole = abs(radius["value"] - radius["minimal"] - radius["excess"]) <= 1e-6 * (1 + excess)
    found.check(whole, "", "the radius is not the minimal one plus the excess")
    found.not_verified.append("the coverage of the calibrated radius: it was measured on datasets, not proved")
    metric = chosen["metric"]
    if metric["name"] in ("weighted", "mahalanobis") and not metric.get("learned", False):
        found.not_verified.append("that the metric was fixed before the labels were seen")


def _plain(chosen: dict[str, Any], K: int) -> tuple[FloatArray, float]:
    given = np.asarray(chosen["label_cost"], dtype=np.float64)
    return (given * (1.0 - np.eye(K)) if given.ndim == 0 else given), 0.0


def _weights(given: Any, n: int) -> FloatArray:
    """Return the given weights, or equal weights."""
    return np.full(n, 1.0 / max(n, 1)) if given is None else np.asarray(given, dtype=np.float64)


def _is_weighting(weights: FloatArray, n: int) -> bool:
    sound = weights.shape == (n,) and n > 0 and bool(np.isfinite(weights).all() and (weights >= 0).all())
    return sound and abs(float(weights.sum()) - 1.0) <= 1e-9


def shares_of(codes: NDArray[np.intp], weights: FloatArray, K: int) -> FloatArray:
    """Return the share (K,) of each class among weighted labels."""
    return np.array([weights[codes == k].sum() for k in range(K)], dtype=np.float64)


def _is_interval(intervals: FloatArray, K: int) -> bool:
    if intervals.shape != (K, 2) or not np.isfinite(intervals).all():
        return False
    low, high = intervals.T
    ordered = bool((low >= 0).all() and (low <= high).all() and (high <= 1).all())
    return ordered and low.sum() <= 1 + 1e-9 and high.sum() >= 1 - 1e-9


def _is_point(point: dict[str, Any], n: int, K: int) -> bool:
    numbers = [np.asarray(point["lambda"], dtype=np.float64), np.asarray(point["beta"], dtype=np.float64)]
    finite = all(np.isfinite(part).all() for part in numbers) and math.isfinite(point["alpha"])
    return finite and point["alpha"] >= 0 and numbers[0].shape == (K,) and numbers[1].shape == (n,)


def clopper_pearson(counts: NDArray[np.intp], level: float) -> FloatArray:
    """Return two-sided intervals (K, 2) for the share of each class, tightened to shares that sum to one."""
    n, tail = int(counts.sum()), (1.0 - level) / 2
    low = np.array([beta.ppf(tail, m, n - m + 1) if m else 0.0 for m in counts])
    high = np.array([beta.ppf(1.0 - tail, m + 1, n - m) if m < n else 1.0 for m in counts])
    least = np.maximum(low, 1.0 - (high.sum() - high))
    return np.column_stack([least, np.minimum(high, 1.0 - (low.sum() - low))])


def relabeling(cost: FloatArray, shares: FloatArray, intervals: FloatArray) -> float:
    """Return the lowest cost of relabeling these shares into the intervals, by a linear program with K² variables."""
    K = len(shares)
    into, out_of = np.kron(np.eye(K), np.ones(K)), np.kron(np.ones(K), np.eye(K))  # entry (k, c): c becomes k
    solved = linprog(
        cost.ravel(),
        A_ub=np.vstack([into, -into]),
        b_ub=np.concatenate([intervals[:, 1], -intervals[:, 0]]) + 1e-12,
        A_eq=out_of,
        b_eq=shares,
    )
    return float(solved.fun) if solved.status == 0 else math.inf


def _transport(metric: FeatureMetric, data: CheckedData, weights: FloatArray, row_weights: FloatArray) -> float:
    """Return the transport distance between the rows and the labeled rows, by POT's network simplex."""
    import ot

    used = np.flatnonzero(weights > 0)
    seen = np.flatnonzero(row_weights > 0)
    costs = metric.distances(data.rows[seen], data.labeled[used])  # type: ignore[index]
    return float(ot.emd2(row_weights[seen] / row_weights[seen].sum(), weights[used] / weights[used].sum(), costs))


def _check_crossfit(found: Verification, claim: dict[str, Any], described: dict[str, Any], data: CheckedData) -> None:
    """Check that the bound follows from its counts. The counts and the coverage cannot be checked."""
    seen, level = claim["proof"], claim["confidence"]
    n, groups = seen["n_labels"], seen["n_groups"]
    # errors among all labels, and among one label of each group: the larger bound counts
    counts = [(seen["n_errors"], n), *([] if groups is None else [(seen["group_errors"], groups)])]
    possible = n == described["labeled"] and all(0 <= errors <= m <= n for errors, m in counts)
    if not found.check(
        possible and (groups is None) == (seen["group_errors"] is None) and len(data.y) == n,
        "",
        "the counts of the cross-fitted bound contradict each other",
    ):
        return
    value = max(clopper_pearson_one_sided(errors + 1, m, level) for errors, m in counts)
    shown = " and ".join(f"{count(errors, 'error')} plus one on {m}" for errors, m in counts)
    found.check(
        value <= claim["value"] + 1e-12,
        f"zero_one: {shown} labels give {value:.9g} (Clopper-Pearson), and {claim['value']:.9g} is claimed",
        f"zero_one: {claim['value']:.9g} is claimed, and {shown} labels give {value:.9g}",
    )
    found.not_verified.append("the errors in cross-validation: that needs the fits")
    found.not_verified.append("the coverage of the cross-fitted bound: it was measured on datasets, not proved")


def clopper_pearson_one_sided(errors: int, n: int, level: float) -> float:
    """Return the largest error rate at which at most `errors` errors on n labels have probability 1 - level."""
    return 1.0 if errors >= n else float(beta.isf(1.0 - level, errors + 1, n - errors))


# An audit: its draws follow from the seed, its errors from the labels, and its bound from the errors.

# Stakes of the bets on weighted draws, as fractions. The wealth is the mean over all stakes.
_STAKES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)


@dataclass(frozen=True, eq=False)
class _Sample:
    """A checked sample: predictions (N,), rows labeled before, sampled rows, and whether each sampled row is wrong.

    probabilities, left : for weighted draws, see `draws_of`.
    """

    predictions: list[Any]
    known: dict[int, Any]
    rows: list[int]
    wrong: list[bool]
    belief: FloatArray | None
    probabilities: list[FloatArray]
    left: list[NDArray[np.intp]]

    @property
    def n_open(self) -> int:
        """Number of rows without a label before the first draw."""
        return len(self.predictions) - len(self.known)


def _check_sample(
    found: Verification, claim: dict[str, Any], described: dict[str, Any], data: CheckedData
) -> _Sample | None:
    """Check the sample against its seed, and its errors against its labels. Return None if it is inconsistent."""
    proof, N = claim["proof"], described["rows"]
    codes, names, given = np.asarray(proof["codes"]), proof["labels"], proof.get("belief")
    belief = None if given is None else np.asarray(given, dtype=np.float64)
    known, rows = dict(map(tuple, proof["known"])), [row for row, _ in proof["draws"]]
    sound = (
        codes.shape == (N,)
        and codes.dtype.kind == "i"
        and bool(((codes >= 0) & (codes < len(names))).all())
        and len(known) == len(proof["known"])
        and all(0 <= row < N for row in [*known, *rows])
        and (belief is None or (belief.shape == (N,) and bool(((belief >= 0) & (belief <= 1)).all())))
        and (belief is None) == (proof.get("sampling", "uniform") == "uniform")
        and (proof["rule"] == "planned") <= (proof["plan"] is not None and belief is None)
        and described["labeled"] == len(known)
        and described["classes"] == names
    )
    if not found.check(sound, "", "the parts of the audit contradict each other"):
        return None
    predictions = [names[code] for code in codes.tolist()]
    found.check(labels_digest(predictions) == claim["predictions"], "", "the frozen predictions were changed (SHA-256)")
    if data.predictions is None:
        found.not_verified.append("that the frozen predictions are those of the classifier: pass the model")
    else:
        found.check(list(data.predictions) == predictions, "the frozen predictions are those of the classifier")
    _check_labels(found, [*proof["known"], *proof["draws"]], data.known_labels)
    drawn, probabilities, left = draws_of(proof, predictions, N, belief, len(rows))
    found.check(drawn == rows, f"the {count(len(rows), 'row')} of the sample are those that the seed gives")
    wrong = [_is_wrong(label, predictions[row]) for row, label in proof["draws"]]
    found.check(sum(wrong) == proof["n_errors"], "", "the number of errors is not that of the labels")
    found.not_verified.append("that the predictions, the seed and the plan were fixed before the first label was seen")
    found.not_verified.append("that the labels are right")
    return _Sample(predictions, known, rows, wrong, belief, probabilities, left)


def _check_audit(found: Verification, claim: dict[str, Any], described: dict[str, Any], data: CheckedData) -> None:
    proof, N, level = claim["proof"], described["rows"], claim["confidence"]
    sample = _check_sample(found, claim, described, data)
    if sample is None:
        return
    wrong, n_open = sample.wrong, sample.n_open
    known_errors = sum(_is_wrong(label, sample.predictions[row]) for row, label in sample.known.items())
    if proof["rule"] == "planned":
        n = min(proof["plan"], n_open)
        most = known_errors + exact_bound(sum(wrong[:n]) + n - len(wrong[:n]), n, n_open, level)
    elif sample.belief is None:
        most = known_errors + anytime_bound(wrong, n_open, level)
    else:
        rest = known_errors + sum(wrong) + n_open - len(wrong)
        claimed = round(claim["value"] * N)
        rejected = claimed < rest and _is_rejected(claimed + 1, known_errors, sample, level)
        most = claimed if rejected else rest
    found.check(
        most <= claim["value"] * N + 1e-9,
        f"zero_one: {count(sum(wrong), 'error')} on {count(len(wrong), 'label')} prove at most {most} in {N} rows",
        f"zero_one: {claim['value']:.9g} is claimed, and the labels prove {most / N:.9g} only",
    )
    reached = proof["target"] is not None and claim["value"] <= proof["target"]
    found.check(proof["proved"] == reached, "", "whether the target is proved does not follow from the bound")


def _check_finish(found: Verification, claim: dict[str, Any], described: dict[str, Any], data: CheckedData) -> None:
    """Check that the model labels only rows that the sample allows, and that the finished table has these labels."""
    proof, N, level = claim["proof"], described["rows"], claim["confidence"]
    scores, chosen = np.asarray(proof["scores"], dtype=np.float64), np.asarray(proof["model_rows"])
    sound = (
        scores.shape == (N,)
        and bool(np.isfinite(scores).all())
        and chosen.ndim == 1
        and (chosen.dtype.kind == "i" or not len(chosen))
        and len(set(chosen.tolist())) == len(chosen)
        and bool(((chosen >= 0) & (chosen < N)).all())
    )
    sample = _check_sample(found, claim, described, data) if sound else None
    if sample is None:
        found.check(sound, "", "the parts of the finished table contradict each other")
        return
    has_prediction = np.array([one != NO_PREDICTION for one in sample.predictions])
    if data.scores is None:
        found.not_verified.append("that the frozen scores are those of the classifier: pass the model")
    else:
        same = data.scores.shape == (N,) and np.abs(data.scores - scores)[has_prediction].max(initial=0.0) <= _SAME
        found.check(same, "the frozen scores are those of the classifier")
    planned, n_open, wrong = proof["rule"] == "planned", sample.n_open, sample.wrong
    if planned:  # rows of the plan that have no label count as wrong
        n = min(proof["plan"], n_open)
        drawn = draws_of(proof, sample.predictions, N, None, n)[0]
        wrong = (wrong + [True] * n)[:n]
    else:
        drawn = sample.rows
    most = math.floor(proof["max_error"] * N + 1e-9)
    lowest = _threshold_of(scores[drawn], wrong, n_open, most, level, planned=planned)
    human = {*sample.known, *drawn}
    allowed = all(row not in human and has_prediction[row] and scores[row] > lowest for row in chosen.tolist())
    n_model = count(len(chosen), "row")
    found.check(
        allowed,
        f"the {n_model} of the model have scores above {lowest:.9g}, which the sample allows",
        "the model labels rows that the sample does not allow",
    )
    if planned and lowest == -np.inf:  # every row is allowed, and the bound of a plain audit may be smaller
        most = min(most, exact_bound(sum(wrong), len(drawn), n_open, level) - sum(wrong))
    proved = min(most, len(chosen))
    found.check(
        proved <= claim["value"] * N + 1e-9,
        f"{count(sum(wrong), 'error')} on {count(len(wrong), 'label')} prove at most {proved} wrong of {N} labels",
        f"{claim['value']:.9g} is claimed, and the sample proves {proved / N:.9g} only",
    )
    if data.authors is None:
        found.not_verified.append("who labeled which row: pass the finished table")
        return
    by_model = {row for row, author in enumerate(data.authors) if author == "model"}
    labels = data.known_labels or {}
    same = by_model == set(chosen.tolist()) and all(
        str(labels.get(row)) == str(sample.predictions[row]) for row in by_model
    )
    found.check(same, f"the finished table has the predictions as labels of these {n_model}, and of no others")


def _threshold_of(
    scores: FloatArray, wrong: Sequence[bool], n_open: int, most: int, level: float, *, planned: bool
) -> float:
    """Return the score above which the model may label rows, from the sample's scores (m,) in order and its errors.

    Suppose that at most a errors of the sample lie above a threshold. If a sample with a errors rejects more than
    `most` other wrong rows above the threshold, then at most `most` other rows above it are wrong. The rule uses the
    largest a with this property, and the threshold is the score of the (a + 1)-th surest error. An audit that may stop
    at any time uses the lowest threshold of all its looks.
    """

    def below(n: int, allowed: int) -> float:
        errors = sorted((float(one) for one, bad in zip(scores[:n], wrong[:n], strict=True) if bad), reverse=True)
        return np.inf if allowed < 0 else errors[allowed] if allowed < len(errors) else -np.inf

    m = len(wrong)
    if planned:
        allowed = -1
        while allowed < m and exact_bound(allowed + 1, m, n_open, level) - (allowed + 1) <= most:
            allowed += 1  # the bound minus the errors never decreases
        return below(m, allowed)
    if most >= n_open:
        return -np.inf
    threshold, lowest, allowed = -math.log1p(-level), np.inf, -1
    prior = betabinom.logpmf(np.arange(n_open + 1), n_open, 0.5, 0.5)
    for n in range(1, m + 1):
        while allowed < n and _evidence_against(most + 1, allowed + 1, n, n_open, prior) >= threshold:
            allowed += 1
        lowest = min(lowest, below(n, allowed))
    return lowest


def _evidence_against(M: int, x: int, n: int, N: int, prior: FloatArray) -> float:
    """Return the log of the likelihood ratio against M errors among N rows after n uniform draws with x errors."""
    if x >= M:
        return -np.inf
    if n - x > N - M:
        return np.inf
    fewer = np.arange(x, M)
    mixture = float(logsumexp(prior[fewer] + hypergeom.logpmf(x, N, fewer, n)) - logsumexp(prior[:M]))
    return mixture - float(hypergeom.logpmf(x, N, M, n))


def _check_labels(found: Verification, given: list[Any], known: dict[int, Any] | None) -> None:
    """Check that the labels of the evidence agree with the table."""
    if known is None:
        found.not_verified.append("that the labels of the audit are those of the table: pass its labels")
        return
    labels = [(row, label, known[row]) for row, label in given if row in known and label is not None]
    other = [row for row, label, told in labels if label != told and str(label) != str(told)]
    filled = sum(row in known for row, _ in given)
    shown = ", ".join(str(row + 1) for row in other[:5])
    found.check(
        not other,
        f"{filled} of the {len(given)} labels are in the table, and agree",
        f"the table has other labels in row {shown}{' and more' if len(other) > 5 else ''}",
    )
    if filled < len(given):
        found.not_verified.append(f"{len(given) - filled} labels of the evidence, which the table does not hold")


def _is_wrong(label: Any, prediction: Any) -> bool:
    return label is None or bool(label != prediction)


def draws_of(
    proof: dict[str, Any], predictions: list[Any], N: int, belief: FloatArray | None, n: int
) -> tuple[list[int], list[FloatArray], list[NDArray[np.intp]]]:
    """Return the first n rows drawn from a seed, and for each draw the probabilities (r,) of the remaining rows (r,).

    Draw t takes u = default_rng([seed, mark, t]).random() and the first remaining row whose cumulative probability
    exceeds u. The mark is the number given by the first 32 hexadecimal digits of the SHA-256 of the predictions
    (Python's repr of the list) and the belief, if there is one.
    """
    digest = hashlib.sha256(repr(predictions).encode())
    if belief is not None:
        digest.update(np.ascontiguousarray(belief, dtype="<f8").tobytes())
    mark = int(digest.hexdigest()[:32], 16)
    is_open = np.ones(N, dtype=bool)
    is_open[[row for row, _ in proof["known"]]] = False
    rows, chances, before = [], [], []
    for step in range(min(n, int(is_open.sum()))):
        left = np.flatnonzero(is_open)
        p = np.full(len(left), 1.0 / len(left))
        if belief is not None:
            spread = np.sqrt(belief[left] * (1.0 - belief[left]))
            if spread.sum() > 0:
                share = proof["uniform_fraction"]
                p = share * p + (1.0 - share) * spread / float(spread.sum())
                p = p / p.sum()
        u = np.random.default_rng([proof["seed"], mark, step]).random()
        place = min(int(np.searchsorted(np.cumsum(p), u, side="right")), len(left) - 1)
        rows.append(int(left[place]))
        is_open[left[place]] = False
        if belief is not None:
            chances.append(p)
            before.append(left)
    return rows, chances, before


def exact_bound(errors: int, n: int, N: int, level: float) -> int:
    """Return the largest number M of errors among N rows with P(at most `errors` in a sample of n) > 1 - level."""
    numbers = np.arange(errors, N - (n - errors) + 1)
    return int(numbers[hypergeom.cdf(errors, N, numbers, n) > 1.0 - level].max(initial=errors))


def anytime_bound(wrong: Sequence[bool], N: int, level: float) -> int:
    """Return the largest number of errors among N rows that no prefix of uniform draws rejects.

    After n draws with x errors, M is rejected if the mixture of all smaller numbers, with a beta-binomial(1/2, 1/2)
    prior, explains the errors better by a factor 1/(1 - level).
    """
    most, x, threshold = N, 0, -math.log1p(-level)
    prior = betabinom.logpmf(np.arange(N + 1), N, 0.5, 0.5)
    for n, error in enumerate(wrong, start=1):
        x += int(error)
        M = np.arange(x, min(most, N - (n - x)) + 1)
        if not len(M):
            most = x
            continue
        likelihood = hypergeom.logpmf(x, N, M, n)
        joint = np.logaddexp.accumulate(prior[M] + likelihood)
        below = np.concatenate([[logsumexp(prior[:x])] if x else [-np.inf], np.logaddexp.accumulate(prior)[M[1:] - 1]])
        evidence = np.full(len(M), -np.inf)
        evidence[1:] = joint[:-1] - below[1:] - likelihood[1:]
        possible = M[evidence < threshold]
        most = int(possible[-1]) if len(possible) else x
    return most


def _is_rejected(bad: int, known_errors: int, sample: _Sample, level: float) -> bool:
    """Return True if bets on weighted draws ever reached 1/(1 - level) against this number of errors in the pool.

    Draw t pays Z = (f - s) / (N q) + Σ_left s / N. f is 1 if the prediction is wrong and 0 otherwise, s is the believed
    probability that it is wrong, and q is the sampling probability. If the pool has m N errors, Z has the mean
    m - Σ_drawn f / N and never exceeds its largest value.
    """
    belief = np.asarray(sample.belief)
    N = len(belief)
    m, spent, wealth = bad / N, known_errors / N, np.zeros(len(_STAKES))
    threshold = -math.log1p(-level)
    for error, row, p, rows_left in zip(sample.wrong, sample.rows, sample.probabilities, sample.left, strict=True):
        s = belief[rows_left]
        rest = float(s.sum()) / N
        top = float(((1.0 - s) / (N * p)).max()) + rest
        place = int(np.searchsorted(rows_left, row))
        paid = (float(error) - s[place]) / (N * p[place]) + rest
        expected = m - spent
        room = top - expected
        if room < -1e-12 or (abs(room) <= 1e-12 and paid < top - 1e-12):
            return True
        if abs(room) > 1e-12:
            edge = min((paid - expected) / room, 1.0)
            wealth += np.log1p(-np.array(_STAKES) * edge)
        if float(logsumexp(wealth)) - math.log(len(_STAKES)) >= threshold:
            return True
        spent += float(error) / N
    return False
