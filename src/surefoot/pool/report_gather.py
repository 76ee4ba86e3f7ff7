"""Gather the contents of a report from a fitted model and the rows it was fitted to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot._printing import cell_text, percent
from surefoot._validation import FloatArray, check_positive_integer
from surefoot._version import __version__
from surefoot.bounds.result import ErrorBound
from surefoot.certificates.calibration import CalibratedRadius
from surefoot.certificates.fresh import FreshCertificate
from surefoot.estimators.base import LinearClassifier
from surefoot.pool.model import LONGEST_CELL, ModelWithRows, Names, Stated
from surefoot.pool.next_rows import choose
from surefoot.pool.notes import ClassResult, class_results
from surefoot.pool.report_certified import (
    CURVE_ENTRIES,
    SampledRows,
    bounds_of,
    radius_chart,
    rule_name,
    worst_error_bound,
)
from surefoot.pool.report_contents import (
    Bin,
    Column,
    ColumnEffect,
    Confidence,
    Data,
    Guarantee,
    Head,
    LabelShare,
    NextRow,
    PredictedClass,
    RelabeledRow,
    Report,
    ReportedWorstCase,
    Weight,
)
from surefoot.pool.report_findings import (
    answer_findings,
    far_rows,
    leakage_suspects,
    repeated_rows,
    worst_case_findings,
)
from surefoot.pool.worst import PoolWorstCase
from surefoot.priors import (
    AssistedPrior,
    ClopperPearson,
    ExactPrior,
    HypergeometricPrior,
    IntervalPrior,
    NoPrior,
    resolve_prior,
)
from surefoot.problem.losses import ZERO_ONE
from surefoot.problem.rows import Unlabeled
from surefoot.problem.sets import label_cost_matrix

# Most relabeled rows listed.
_MOST_RELABELED = 10
# Most features shown with their weights, most columns listed, and most values listed of a text column.
_MOST_WEIGHTS = 12
_MOST_COLUMNS, _MOST_VALUES = 100, 3

Progress = Callable[[str, float], None]


def build_report(  # noqa: PLR0913 - one keyword per part of the page
    clf: Any,
    X: ArrayLike,
    y: ArrayLike,
    X_unlabeled: ArrayLike | Unlabeled,
    *,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    row_labels: Sequence[str] | None = None,
    raw_rows: Any = None,
    title: str = "surefoot report",
    label_name: str = "label",
    source: str | None = None,
    created: str | None = None,
    notes: Sequence[str] = (),
    fresh: FreshCertificate | None = None,
    stated: Stated | None = None,
    worst: PoolWorstCase | None = None,
    sample: NDArray[np.intp] | None = None,
    with_worst_case: bool = True,
    curves: bool = True,
    bound: ErrorBound | None = None,
    missing: Sequence[str] = (),
    max_error: float | None = None,
    effects: Sequence[ColumnEffect] = (),
    command: str | None = None,
    next_command: str | None = None,
    seed: int = 0,
    n_query: int = 10,
    progress: Progress | None = None,
) -> Report:
    """Gather everything that the page of a fit shows, as plain data.

    Parameters
    ----------
    clf : RobustLogisticRegression
        A fitted model. Other classifiers require `stated`.
    X : array of shape (n, d)
        Labeled rows of the fit.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d) or Unlabeled
        Unlabeled rows, M ≥ 1: the rows of the fit, or with `sample` a larger set that contains them.
    feature_names : sequence of d str or None, default=None
        Names of the columns of X.
    class_names : sequence of K str or None, default=None
        Names of the classes, in the order of `clf.classes_`.
    row_labels : sequence of N str or None, default=None
        Names of the rows, first of X, then of X_unlabeled.
    raw_rows : pandas.DataFrame or None, default=None
        All N rows in the same order with the cells of the file, shown instead of X.
    title : str, default="surefoot report"
        Title of the page.
    label_name : str, default="label"
        Name of the label column.
    source : str or None, default=None
        Name of the file that the rows come from.
    created : str or None, default=None
        Time of creation, as text at the foot of the page.
    notes : sequence of str, default=()
        Descriptions of the cleaning steps, one sentence each.
    fresh : FreshCertificate or None, default=None
        The certificate over held-out rows, if there are any.
    stated : surefoot.pool.model.Stated or None, default=None
        Distances and label shares of a model without a certificate.
    worst : surefoot.pool.worst.PoolWorstCase or None, default=None
        The worst case shown in the report; None for the worst case of the fit.
    sample : array of int or None, default=None
        Positions in X_unlabeled of the certified rows; None for all. Rows to label next are chosen among these.
    with_worst_case : bool, default=True
        Whether the report shows a worst case.
    curves : bool, default=True
        Whether to compute the worst case along the radius. This is the slowest part of the report.
    bound : ErrorBound or None, default=None
        The cross-fitted bound of `error_bound`. If given, the page begins with it.
    missing : sequence of str, default=()
        One sentence per missing statement about the model, with the reason.
    max_error : float or None, default=None
        The largest acceptable error rate. If given, the page states whether the bound meets it.
    effects : sequence of surefoot.pool.report_contents.ColumnEffect, default=()
        How much each column matters to a nonlinear model.
    command : str or None, default=None
        The command that created the page, shown at its foot.
    next_command : str or None, default=None
        The next command to run.
    seed : int, default=0
        Seed for the sample of rows if N is large, and for ties among the rows to label next.
    n_query : int, default=10
        Number of rows to label next.
    progress : function(str, float) or None, default=None
        Called with the name of a step and the completed share, from 0 to 1.

    Returns
    -------
    Report
        The contents, for `render_report` and `write_report`.
    """
    fitted = ModelWithRows.check(clf, X, y, X_unlabeled, stated if worst is None else worst.stated)
    linear = isinstance(clf, LinearClassifier)
    names = Names.check(fitted, feature_names, class_names, row_labels, raw_rows, label_name)
    say: Progress = progress or (lambda _step, _share: None)
    n_query = check_positive_integer(n_query, "n_query")
    certified, places = fitted.at_rows(sample), np.arange(len(fitted.U)) if sample is None else sample
    shares = _label_shares(fitted, names)
    guarantee, bounds, adversary, curve, worst_coef = None, None, None, None, None
    if with_worst_case:
        say("bounding the error", 0.0)
        error = None if worst is None else worst.risk(ZERO_ONE)
        if error is None:
            error = worst_error_bound(certified, SampledRows.from_fit(certified, seed))
        guarantee, bounds = _guarantee(certified, shares, error), bounds_of(certified, fresh)
        adversary = _adversary(certified, names, places)
        if curves and linear:
            say("following the radius", 0.3)
            curve, worst_coef = radius_chart(certified, SampledRows.from_fit(certified, seed, CURVE_ENTRIES))
    say("choosing rows to label", 0.7)
    chosen = [
        (len(fitted.X) + int(places[one.position]), one) for one in choose(certified, names.classes, n_query, seed)
    ]
    say("checking the data", 0.8)
    confidence = _confidence(fitted, names)
    findings = [
        *answer_findings(confidence, shares),
        *([] if guarantee is None else worst_case_findings(guarantee)),
        far_rows(fitted, names),
        *repeated_rows(fitted, names, seed),
        leakage_suspects(fitted, names),
    ]
    data = data_summary(fitted, names, notes)
    say("report", 1.0)
    return Report(
        Head(title, label_name, source, created, __version__, command, seed),
        names.classes,
        shares,
        guarantee,
        bounds,
        curve,
        confidence,
        adversary,
        tuple(NextRow(names.row(row), one, names.cells(row)) for row, one in chosen),
        data,
        tuple(sorted(findings, key=lambda finding: not finding.caution)),
        bound,
        tuple(missing),
        next_command,
        feature_weights(fitted, names, worst_coef) if linear else None,
        _by_class(fitted, names, bound),
        max_error,
        tuple(effects),
    )


def _by_class(fitted: ModelWithRows, names: Names, bound: ErrorBound | None) -> tuple[ClassResult, ...]:
    predicted = None if bound is None else bound.predicted
    if predicted is None or len(predicted) != len(fitted.y):
        return ()
    results = class_results(fitted.y, predicted, fitted.clf.classes_.tolist())
    return tuple(replace(one, name=name) for one, name in zip(results, names.classes, strict=True))


def _label_shares(fitted: ModelWithRows, names: Names) -> tuple[LabelShare, ...]:
    counts = np.bincount(fitted.codes, minlength=fitted.n_classes).tolist()
    shares = zip(names.classes, counts, fitted.stated.intervals.tolist(), strict=True)
    return tuple(LabelShare(name, count, low, high) for name, count, (low, high) in shares)


def _guarantee(fitted: ModelWithRows, shares: tuple[LabelShare, ...], error: float) -> Guarantee:
    clf, certificate = fitted.clf, fitted.certificate
    rule, prior = fitted.stated.radius, resolve_prior(fitted.stated.prior)
    kinds = {
        ClopperPearson: "clopper-pearson",
        HypergeometricPrior: "hypergeometric",
        AssistedPrior: "assisted",
        ExactPrior: "exact",
        NoPrior: "none",
        IntervalPrior: "intervals",
    }
    return Guarantee(
        certificate.risk,
        certificate.likelihood,
        float(np.log(fitted.n_classes)),
        float(label_cost_matrix(fitted.stated.label_cost, fitted.n_classes).max()),
        error,
        certificate.status,
        certificate.radius,
        certificate.minimal_radius,
        rule_name(fitted),
        rule.level if isinstance(rule, CalibratedRadius) else None,
        rule.n_splits if isinstance(rule, CalibratedRadius) else None,
        certificate.estimate is not None and certificate.estimate.learned_metric,
        clf.confidence if rule_name(fitted) == "auto" else None,
        kinds.get(type(prior), "intervals"),
        prior.level if isinstance(prior, ClopperPearson | HypergeometricPrior | AssistedPrior) else None,
        shares,
    )


def _moved(fitted: ModelWithRows) -> tuple[FloatArray, Any]:
    """Return (N,) shares that the adversary relabels in each row, and (N,) reference labels.

    The reference is the given label, or for an unlabeled row the model's prediction.
    """
    reference = np.concatenate([fitted.codes, fitted.proba[len(fitted.X) :].argmax(axis=1)])
    kept = fitted.worst_case.label_proba[np.arange(len(reference)), reference]
    return np.clip(1.0 - kept, 0.0, 1.0), reference


def _bins(fitted: ModelWithRows, moved: FloatArray | None = None) -> tuple[Bin, ...]:
    """Return bins of the unlabeled rows by confidence. moved : (M,) share that the adversary relabels in each row."""
    top = fitted.proba[len(fitted.X) :].max(axis=1)
    # two classes: 50 % to 100 % in steps of 5 points; more: from the tenth at or below 1/K in steps of 10 points
    start, width = (0.5, 0.05) if fitted.n_classes == 2 else (np.floor(10 / fitted.n_classes) / 10, 0.1)
    edges = np.round(np.arange(start, 1.0 - 1e-9, width), 2)
    which = np.searchsorted(edges, top, side="right") - 1
    bins = []
    for b, low in enumerate(edges.tolist()):
        inside = which == b
        share = None if moved is None else float(moved[inside].mean()) if inside.any() else 0.0
        bins.append(Bin(low, low + width, int(inside.sum()), share))
    return tuple(bins)


def _confidence(fitted: ModelWithRows, names: Names) -> Confidence:
    proba = fitted.proba[len(fitted.X) :]
    top, answer = proba.max(axis=1), proba.argmax(axis=1)
    classes = [
        PredictedClass(
            name,
            int((answer == k).sum()),
            float(np.mean(answer == k)),
            float(top[answer == k].mean()) if (answer == k).any() else None,
        )
        for k, name in enumerate(names.classes)
    ]
    return Confidence(
        float(np.median(top)), float(np.mean(top >= 0.9)), float(np.mean(top < 0.6)), _bins(fitted), tuple(classes)
    )


def _adversary(fitted: ModelWithRows, names: Names, places: NDArray[np.intp]) -> ReportedWorstCase:
    """Return the worst case of the certified rows.

    places : (M,) positions of the certified unlabeled rows among all unlabeled rows.
    """
    everywhere = np.concatenate([np.arange(len(fitted.X)), len(fitted.X) + places]).tolist()
    n, q, m = len(fitted.X), fitted.worst_case.label_proba, fitted.row_weights
    moved, reference = _moved(fitted)
    joint = m[:, None] * q * np.concatenate([fitted.losses(rows) for rows in (fitted.X, fitted.U)])
    loss = float(joint.sum())
    joint[np.arange(len(q)), reference] = 0.0
    from_moved = joint.sum(axis=1)
    order = np.argsort(-from_moved, kind="stable")[:_MOST_RELABELED]
    flow = np.zeros((fitted.n_classes, fitted.n_classes))
    np.add.at(flow, reference[n:], m[n:, None] * q[n:])
    others = q.copy()
    others[np.arange(len(q)), reference] = -1.0
    rows = [
        RelabeledRow(
            names.row(everywhere[j]),
            everywhere[j],
            bool(j < n),
            names.classes[reference[j]],
            float(fitted.proba[j, reference[j]]),
            names.classes[int(others[j].argmax())],
            float(moved[j]),
            float(from_moved[j] / loss) if loss > 0 else 0.0,
            names.cells(everywhere[j]),
        )
        for j in order
        if from_moved[j] > 0
    ]
    return ReportedWorstCase(
        float(np.average(moved[:n], weights=m[:n])),
        float(np.average(moved[n:], weights=m[n:])),
        int((moved[:n] > 0.5).sum()),
        int((moved[n:] > 0.5).sum()),
        loss,
        float(from_moved.sum()),
        tuple(fitted.worst_case.label_probabilities.tolist()),
        tuple(tuple(row) for row in (flow / m[n:].sum()).tolist()),
        tuple(rows),
        _bins(fitted, moved[n:]),
        len(fitted.U),
    )


def feature_weights(fitted: ModelWithRows, names: Names, worst_coef: FloatArray | None) -> tuple[Weight, ...]:
    """Return the features with the largest weights, each with the class that it favors most.

    worst_coef : (1, d) or (K, d) coefficients trained for the worst case, or None.
    """
    spread = np.vstack([fitted.X, fitted.U]).std(axis=0)
    now = fitted.clf.coef_ * spread
    worst = None if worst_coef is None else worst_coef * spread
    found = []
    size = np.abs(now[0]) if len(now) == 1 else now.max(axis=0)
    for i in np.argsort(-size, kind="stable")[:_MOST_WEIGHTS].tolist():
        k = int(now[:, i].argmax()) if len(now) > 1 else 0
        sign = 1.0
        if len(now) == 1:
            k, sign = (1, 1.0) if now[0, i] >= 0 else (0, -1.0)
        row = k if len(now) > 1 else 0
        if now[row, i] == 0:
            continue
        against = None if worst is None else float(sign * worst[row, i])
        found.append(Weight(names.features[i], names.classes[k], float(sign * now[row, i]), against))
    return tuple(found)


def data_summary(fitted: ModelWithRows, names: Names, notes: Sequence[str]) -> Data:
    """Return row counts and columns, of the file if given, otherwise of X."""
    if names.raw is None:
        described = [
            _numeric(name, np.concatenate([fitted.X[:, i], fitted.U[:, i]]), 0.0)
            for i, name in enumerate(names.features[:_MOST_COLUMNS])
        ]
        n_columns = len(names.features)
    else:
        n_columns = names.raw.shape[1]
        described = [_column(names.raw, i) for i in range(min(n_columns, _MOST_COLUMNS))]
    return Data(
        len(fitted.X),
        len(fitted.U),
        fitted.X.shape[1],
        n_columns,
        tuple(described),
        tuple(str(note) for note in notes),
    )


def _column(frame: Any, i: int) -> Column:
    column, name = frame.iloc[:, i], str(frame.columns[i])
    present = column.dropna()
    missing = 1.0 - len(present) / len(column)
    if column.dtype.kind in "iuf":
        return _numeric(name, present.to_numpy(dtype=np.float64), missing)
    counts = present.astype(str).value_counts()
    kind = {"b": "yes/no", "M": "time", "m": "duration"}.get(column.dtype.kind, "text")
    if len(counts) > 0.5 * len(present):
        example = cell_text(present.iloc[0], LONGEST_CELL)
        return Column(name, kind, missing, len(counts), f"mostly different, such as {example}")
    most = counts[:_MOST_VALUES].items()
    shown = [f"{cell_text(value, LONGEST_CELL)} ({percent(count / len(present))})" for value, count in most]
    more = ["…"] if len(counts) > _MOST_VALUES else []
    return Column(name, kind, missing, len(counts), ", ".join([*shown, *more]))


def _numeric(name: str, values: Any, missing: float) -> Column:
    if len(values) == 0:
        return Column(name, "number", missing, 0, cell_text(None))
    low, median, high = np.quantile(values, [0.0, 0.5, 1.0])
    return Column(name, "number", missing, len(np.unique(values)), f"{low:.4g} to {high:.4g}, median {median:.4g}")
