"""Audits: prove the error rate of a finished classifier, or of any predictions, on a pool, label by label."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._errors import ParameterError
from surefoot._printing import Bar, count, folded_table, in_percent, percent
from surefoot._validation import FloatArray, check_positive_integer, check_unit_scalar
from surefoot.bounds._arguments import (
    AUTO,
    UNIFORM,
    WEIGHTED,
    check_known_label,
    check_level,
    check_predictions,
    check_scores,
    check_seed,
    check_uniform_fraction,
    expected_error,
    is_fitted,
    known_classes_of,
    known_labels,
)
from surefoot.bounds.engine import PLANNED, AuditEngine, check_rule
from surefoot.bounds.finish import FinishPlan, plan_finish
from surefoot.bounds.journal import EventLog, Journal, answer_event, answer_of, hash_predictions, hash_rows
from surefoot.bounds.metrics import Comparison, MetricBound, MetricEngine, MetricGoal, compare_predictions
from surefoot.bounds.result import THEOREM, ErrorBound
from surefoot.bounds.size import AuditSize, audit_size
from surefoot.certificates.evidence import audit_claim, distinct, model_data, write_evidence
from surefoot.certificates.verify import rows_digest
from surefoot.problem.losses import ZERO_ONE

KIND = "surefoot.audit"
CLASSIFIER = "this classifier"
# From about this number of labels on, weighted sampling needs fewer labels. Below 100 it needs more (docs/bounds.md).
WEIGHTED_FROM = 200
_FROZEN = "the classifier was frozen before anyone saw these labels, and its predictions have not changed"
_FIXED = "the predictions were fixed before anyone saw these labels"
_TRUE_LABELS = "the labels are correct; a skipped row counts as an error"


class Audit:
    """Prove that a finished classifier, or any predictions, misclassify at most a target share of a pool.

    Call `next` for a row, pass its label to `record`, and read `anytime_bound` at any time. `proved` is True once the
    target is reached. The audit samples rows at random, and only the labels of the sampled rows count. `next_rows`
    returns several rows, which you may label in any order. `finish` returns the rows that annotators must label so
    that the finished table has few wrong labels.

    Parameters
    ----------
    clf : fitted classifier or None, default=None
        The finished classifier to audit. None if `predictions` is given.
    X_pool : array of shape (N, d) or None, default=None
        The rows of the pool. With `predictions`, they are only used to check that a journal belongs to the same rows.
    y : array of shape (N,) or None, default=None
        Labels known from the start, such as the training labels, with NaN or None for missing labels. Known labels
        count as given, and their rows are never sampled. The bound accounts for all remaining rows. None: the labels in
        the journal, if any.
    predictions : array of shape (N,) or None, default=None
        A class per row, instead of a classifier: from a language model, a vendor, a rule or an older model. An empty
        text means no prediction and always counts as wrong.
    scores : array of shape (N,) or (N, K), or None, default=None
        A score per prediction (larger means surer), or the probabilities of the classes, fixed before the first label.
        The default is the largest class probability if the classifier has predict_proba.
    level : float in (0, 1), default=0.9
        Confidence level of the bound.
    target_error : float or None, default=None
        The error rate to prove.
    target : dict or None, default=None
        Another metric to prove, declared before the first label: at least {"recall": 0.9}, {"precision": ...} or
        {"f1": ...}, or at most {"cost": ...}. With the value None, the audit bounds the metric without a target.
        Requires n_labels. Rows are sampled per predicted class. Only the class sizes determine the sample sizes.
    positive : label or None, default=None
        The class for precision, recall or F1. None: the mean over all classes.
    cost_matrix : array of shape (K, K) or None, default=None
        Cost per true class (row) and predicted class, for {"cost": ...}, with the classes sorted or as in `classes`.
    n_labels : int or None, default=None
        Planned number of labels, fixed in advance. The audit ends at this number.
    rule : {"anytime", "planned"} or None, default=None
        The bound that proves the target, chosen in advance. The default is "planned" if n_labels is given.
    sampling : {"uniform", "weighted", "auto"}, default="uniform"
        "weighted" samples rows that the classifier is unsure of more often, with known probabilities, and uses the
        classifier's own error probabilities as control variate. It requires probabilities and the anytime rule.
        "auto" uses weighted sampling from 200 planned labels on.
    uniform_fraction : float in [0.2, 1], default=0.6
        Fraction of uniform draws in weighted sampling.
    classes : array of shape (K,) or None, default=None
        All classes, if labels may contain a class that the classifier does not know.
    journal : path, log or None, default=None
        File that stores every label before `record` returns. An existing file is resumed. No other process can write
        to the file until the audit is closed or deleted. An object with `read() -> list of dict` and `append(dict)`
        also works.
    random_state : int or None, default=None
        Seed of the sampling. The sampling order also depends on the predictions.

    Attributes
    ----------
    is_uniform : bool
        Whether all rows have equal sampling probabilities.
    goal : MetricGoal or None
        The metric that `target` declared; None for the error rate.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X[:150], y[:150])
    >>> audit = Audit(tree, X[150:], target_error=0.15, random_state=0)
    >>> audit = audit.run(lambda row: y[150 + row])
    >>> audit.proved, audit.anytime_bound().value <= 0.15
    (True, True)
    """

    def __init__(  # noqa: PLR0913 - one keyword per part of the question
        self,
        clf: Any = None,
        X_pool: ArrayLike | None = None,
        y: ArrayLike | None = None,
        *,
        predictions: ArrayLike | None = None,
        scores: ArrayLike | None = None,
        level: float = 0.9,
        target_error: float | None = None,
        target: Mapping[str, float | None] | None = None,
        positive: Any = None,
        cost_matrix: ArrayLike | None = None,
        n_labels: int | None = None,
        rule: str | None = None,
        sampling: str = UNIFORM,
        uniform_fraction: float = 0.6,
        classes: ArrayLike | None = None,
        journal: str | os.PathLike[str] | EventLog | None = None,
        random_state: int | None = None,
    ) -> None:
        self.level = check_level(level)
        self.target_error = None if target_error is None else check_unit_scalar(target_error, "target_error")
        self.planned = None if n_labels is None else check_positive_integer(n_labels, "n_labels")
        self.rule = check_rule(rule, self.planned, "n_labels")
        self.classes = known_classes_of(clf, classes)
        self._subject = CLASSIFIER if predictions is None else "these predictions"
        if predictions is None:
            rows = _check_classifier(clf, X_pool)
            predicted, belief, how = frozen(clf, rows, sampling, self.planned, self.rule)
            proba = clf.predict_proba(rows) if callable(getattr(clf, "predict_proba", None)) else None
            sure = _checked_scores(proba if scores is None else scores, len(predicted))
        elif clf is None:
            predicted = check_predictions(predictions, self.classes)
            sure = _checked_scores(scores, len(predicted))
            belief, how = _given_belief(sure, sampling, self.planned, self.rule)
        else:
            raise ParameterError("predictions", "must be None if clf is given", "both", "Pass one of the two.")
        self._scores = sure
        known = known_labels(y, len(predicted), self.classes)
        share = check_uniform_fraction(uniform_fraction)
        self.goal: MetricGoal | None = None
        if target is not None:
            self.goal = goal = MetricGoal.from_arguments(target, positive, cost_matrix, self.classes, predicted)
            self.classes = goal.classes if positive is None else self.classes
            _check_metric_audit(self.target_error, self.planned, self.rule, how)
        elif positive is not None or cost_matrix is not None:
            raise ParameterError("target", "must name a metric", "None", 'Pass target={"recall": 0.9}, say.')
        about: dict[str, Any] = {
            "rows": len(predicted),
            "pool": hash_rows([] if X_pool is None else X_pool),
            "predictions": hash_predictions(predicted, belief),
            "known": [list(pair) for pair in sorted(known.items())],  # the form that JSON returns
            "level": self.level,
            "n_labels": self.planned,
            "rule": self.rule,
            "picks": how,
            "uniform_share": share,
            "seed": check_seed(random_state),
        }
        if scores is not None:
            about["scores"] = hash_rows(sure)
        if self.goal is not None:
            about["goal"] = self.goal.about
        free = tuple(name for name, given in (("seed", random_state), ("known", y)) if given is None)
        self._journal = Journal(journal, KIND, about, free)
        about = self._journal.about
        self._rows_digest = None if X_pool is None else rows_digest(X_pool)
        self._closed = False
        self._ahead = 0
        known, seed = dict(about["known"]), about["seed"]
        if self.goal is not None and self.planned is not None:
            self._engine: AuditEngine = MetricEngine(
                predicted, known, self.goal, level=self.level, seed=seed, plan=self.planned
            )
        else:
            plan = self.planned if self.rule == PLANNED else None
            self._engine = AuditEngine(
                predicted, known, level=self.level, seed=seed, target=self.target_error, plan=plan, belief=belief,
                uniform_fraction=share,
            )  # fmt: skip
        self.is_uniform = self._engine.is_uniform
        self._journal.replay(self._repeat)

    @property
    def labels(self) -> dict[int, Any]:
        """The recorded labels, by row; None for a skipped row. Labels known from the start are not included."""
        return self._engine.labels

    @property
    def n_labels(self) -> int:
        """Number of recorded labels, including skipped rows."""
        return self._engine.n_labels

    @property
    def seed(self) -> int:
        """The seed of the sample."""
        return int(self._journal.about["seed"])

    @property
    def n_known(self) -> int:
        """Number of labels known from the start."""
        return len(self._engine.known)

    @property
    def n_errors(self) -> int:
        """Number of recorded labels that the classifier predicted wrongly. Skipped rows count as errors."""
        return self._engine.n_errors

    @property
    def proved(self) -> bool:
        """Whether the bound named by `rule` is at most the target."""
        return self._engine.proved

    @property
    def done(self) -> bool:
        """Whether the audit has ended: target proved, planned labels recorded, no row left, or closed."""
        used_up = self.planned is not None and self.n_labels >= self.planned
        return self._closed or used_up or self._engine.next_draw() is None

    def next(self) -> int | None:
        """Return the row to label next. It stays the same until it is recorded or skipped.

        Returns
        -------
        int or None
            Index of the row in the pool, or None when the audit is done.
        """
        draw = self._engine.next_draw()
        return None if draw is None or self.done else draw.row

    def next_rows(self, n: int) -> list[int]:
        """Return the next rows to label, in any order.

        A label counts as soon as all rows sampled earlier have labels.

        Parameters
        ----------
        n : int
            Number of rows.

        Returns
        -------
        list of int
            Indices in the pool, fewer than n at the end of the audit. They stay the same until recorded or skipped.
        """
        wanted = check_positive_integer(n, "n")
        if self.done:
            return []
        draws, ahead = self._engine.open_draws(
            wanted, self._engine.n_drawable if self.planned is None else self.planned
        )
        if ahead > self._ahead:
            self._journal.append({"ahead": ahead})
            self._ahead = ahead
        return [draw.row for draw in draws]

    def record(self, row: int, label: Any) -> None:
        """Record the label of a row returned by `next` or `next_rows`.

        The journal contains the label when this method returns.

        Parameters
        ----------
        row : int
            Index of the row.
        label : number or str
            The label, one of the classes.
        """
        self._take(row, check_known_label(label, self.classes))

    def skip(self, row: int) -> None:
        """Mark a row as unlabelable. It counts as an error, because dropping it would bias the sample.

        Parameters
        ----------
        row : int
            A row returned by `next` or `next_rows`.
        """
        self._take(row, None)

    def run(self, oracle: Callable[[int], Any], max_labels: int | None = None) -> Audit:
        """Record labels from an oracle until the audit is done.

        Parameters
        ----------
        oracle : callable
            Returns the label of a row given its index. None skips the row.
        max_labels : int or None, default=None
            Stop at this total number of recorded labels.

        Returns
        -------
        Audit
            This audit.
        """
        while max_labels is None or self.n_labels < max_labels:
            row = self.next()
            if row is None:
                break
            label = oracle(row)
            self._take(row, None if label is None else check_known_label(label, self.classes))
        return self

    def close(self) -> None:
        """Accept no more labels and release the journal."""
        self._closed = True
        self._journal.close()

    def bound(self) -> ErrorBound | MetricBound:
        """Compute the exact bound at the planned number of labels. Missing labels count as errors.

        Without a planned number, the bound treats the present number as planned.

        Returns
        -------
        ErrorBound or MetricBound
            Upper bound on the error rate in the pool, or the bound on the metric that `target` declared.
        """
        if isinstance(self._engine, MetricEngine):
            return self._metric_bound(self._engine)
        return audit_bound(self._engine, self.n_labels if self.planned is None else self.planned, self._subject)

    def anytime_bound(self) -> ErrorBound:
        """Compute the bound that holds at all numbers of labels simultaneously. You may read it and stop at any time.

        Returns
        -------
        ErrorBound
            Upper bound on the error rate in the pool.
        """
        self._check_uniform("the anytime bound")
        return audit_bound(self._engine, None, self._subject)

    def compare(self, others: Mapping[str, ArrayLike], name: str = "audited") -> Comparison:
        """Compare the audited predictions with other predictions on the same sample.

        The bounds cover the error rate of each set of predictions and the difference of each pair. All bounds hold
        simultaneously.

        Parameters
        ----------
        others : dict of array of shape (N,)
            Other predictions, by name, fixed before the first label of this audit.
        name : str, default="audited"
            Name of the audited predictions.

        Returns
        -------
        Comparison
            Bounds on all error rates and differences.

        Examples
        --------
        >>> import numpy as np
        >>> truth = np.arange(1000) % 2
        >>> good = np.where(np.arange(1000) % 20, truth, 1 - truth)
        >>> bad = np.where(np.arange(1000) % 4, truth, 1 - truth)
        >>> audit = Audit(predictions=good, n_labels=200, random_state=0).run(lambda row: truth[row])
        >>> audit.compare({"bad": bad}, name="good").best
        'good'
        """
        self._check_uniform("a comparison")
        if name in others or not others:
            raise ParameterError("others", f"must have names besides {name!r}", repr(list(others)), "Rename them.")
        predictions = {name: self._engine.predictions}
        for one, values in others.items():
            predictions[one] = check_predictions(values, self.classes)
            if len(predictions[one]) != len(self._engine.predictions):
                raise ParameterError(
                    "others", f"must have one class per row, {len(self._engine.predictions)} in all",
                    f"{len(predictions[one])} in {one!r}", "Pass that many.",
                )  # fmt: skip
        return compare_predictions(self._engine, predictions, self.planned if self.rule == PLANNED else None)

    def _check_uniform(self, what: str) -> None:
        if isinstance(self._engine, MetricEngine):
            raise ParameterError(
                "target", f"must be None for {what}", f"a metric, {self._engine.goal.metric}",
                "Begin an audit of the error rate, or read bound().",
            )  # fmt: skip

    def _metric_bound(self, engine: MetricEngine) -> MetricBound:
        fixed = _FROZEN if self._subject == CLASSIFIER else _FIXED
        right = "the labels are right; a row that was skipped counts as the worst that it can be"
        planned = f"metric, class and number of labels, {self.planned}, were fixed before the first was seen"
        return MetricBound(
            engine.metric_bound(), engine.goal.metric, engine.goal.positive, engine.estimates(), self.level,
            engine.n_labels, len(engine.predictions), (fixed, right, planned),
        )  # fmt: skip

    def finish(self, max_error: float = 0.05) -> FinishPlan:
        """Find the rows that annotators must label, so that at most this share of all labels is wrong.

        The model labels the rows with the largest scores. The labels of this audit determine how many rows the model
        may label. With `n_labels` the bound is exact at that number. Otherwise the bound holds at every number of
        labels, and annotators have more rows to label.

        Parameters
        ----------
        max_error : float, default=0.05
            Share of wrong labels in the finished table. Choose it before you see any plan.

        Returns
        -------
        FinishPlan
            The rows for annotators and for the model, and the guarantee.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.random(1000)
        >>> truth = (rng.random(1000) > 0.5 + scores / 2).astype(int)  # the predictions 0 are wrong where unsure
        >>> audit = Audit(predictions=np.zeros(1000, dtype=int), scores=scores, n_labels=100, random_state=0)
        >>> plan = audit.run(lambda row: truth[row]).finish(max_error=0.1)
        >>> len(plan.rows) + plan.n_model + audit.n_labels, bool(truth[plan.model_rows].sum() <= 100)
        (1000, True)
        """
        self._check_uniform("finishing a table")
        return plan_finish(self._engine, self._scores, self.planned if self.rule == PLANNED else None, max_error)

    def save(self, path: str | os.PathLike[str]) -> list[Path]:
        """Save the audit as evidence: predictions, draws, labels and the bound, for `surefoot.verify`.

        Parameters
        ----------
        path : path
            The file to write, ending in .json. Predictions of more than 1000 rows go into a second file, NAME.npz.

        Returns
        -------
        list of Path
            The files written.
        """
        data, claim = self.claim(self._rows_digest)
        return write_evidence(Path(path), data, [claim], model=model_data(self._subject), seed=self.seed)

    def claim(self, features: str | None, table: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Describe the rows, and the bound named by `rule` with its proof, in the format of evidence.

        Parameters
        ----------
        features : str or None
            SHA-256 of the rows.
        table : dict or None, default=None
            How to read the rows from a table. None for arrays.

        Returns
        -------
        tuple of dict
            The data and the claim.
        """
        self._check_uniform("evidence")
        data: dict[str, Any] = {
            "form": "arrays" if table is None else "table",
            "rows": len(self._engine.predictions),
            "labeled": self.n_known,
            "classes": distinct(self._engine.predictions),
            "features": features,
            "labels": None,
            "table": table,
        }
        planned = self.planned if self.rule == PLANNED else None
        about, engine = self._journal.about, self._engine
        return data, audit_claim(
            data,
            engine.anytime_upper if planned is None else engine.planned_upper(planned),
            self.level,
            engine.predictions,
            seed=about["seed"],
            known=[list(pair) for pair in about["known"]],
            draws=[list(pair) for pair in engine.labels.items()],
            n_errors=engine.n_errors,
            plan=self.planned,
            rule=self.rule,
            sampling=UNIFORM if engine.is_uniform else WEIGHTED,
            uniform_fraction=engine.uniform_fraction,
            belief=engine.belief,
            target=self.target_error,
            proved=engine.proved,
        )

    def expected_size(self, expected_error: float) -> AuditSize:
        """Compute how many labels the target requires at an expected error rate. Call it before the first label.

        Rows with labels known from the start are not sampled. The size covers only the unlabeled rows, and the number
        of errors that the target allows among them.

        Parameters
        ----------
        expected_error : float
            Expected error rate of the classifier on the rows without a label.

        Returns
        -------
        AuditSize
            The number of labels to plan with uniform sampling. Its target and pool refer to the rows without a label.
        """
        if self.target_error is None:
            raise ParameterError("target_error", "must be given to size an audit", "None", "Pass a target.")
        rows = self._engine.n_drawable
        allowed = self.target_error * len(self._engine.predictions) - self._engine.known_errors
        return audit_size(min(max(allowed, 0.0) / max(rows, 1), 1.0), expected_error, n_pool=rows, level=self.level)

    def __repr__(self) -> str:
        if isinstance(self._engine, MetricEngine):
            return f"Audit({self._engine.goal.metric}, {count(self.n_labels, 'label')} of {self._engine.n_drawable})"
        target = "" if self.target_error is None else f", target {self.target_error:.4g}"
        proved = ", proved" if self.proved else ""
        seen = f"{count(self.n_errors, 'error')} on {count(self.n_labels, 'label')}"
        return (
            f"Audit({len(self._engine.predictions)} rows, {seen}, anytime bound "
            f"{self._engine.anytime_upper:.4g} with {in_percent(self.level)} confidence{target}{proved})"
        )

    def _repr_html_(self) -> str:
        bound = self.bound() if self.rule == PLANNED else self.anytime_bound()
        target = self.target_error if self.goal is None else self.goal.target
        bars = bound._bars()
        if target is not None:
            state = "proved" if self.proved else "not proved yet"
            shown = f"{target:.4g}" if self.goal is not None and self.goal.cost is not None else percent(target, 1)
            bars.append(Bar("target", 0.0, target, f"{shown}, {state}"))
        rows = ("rows", f"{len(self._engine.predictions)}, {self.n_known} of them labeled from the start")
        return folded_table("Audit", bound.statement, bars, [rows, *bound._rows()], type(bound))

    def _take(self, row: int, label: Any) -> None:
        draw = None if self._closed else self._engine.next_draw()
        found = None if draw is None or isinstance(row, bool) else self._engine.open_draw(row, self._ahead)
        if found is None:
            expected = "the audit is closed or done" if draw is None else f"the sampled row is {draw.row}"
            raise ParameterError(
                "row",
                f"must be a row that the audit has sampled; {expected}",
                repr(row),
                "Record the row that next() returns. Rows chosen in any other way prove nothing.",
            )
        self._journal.append(answer_event(found.row, label, found.probability))
        self._engine.settle(found.row, label)

    def _repeat(self, event: dict[str, Any]) -> None:
        """Apply an event of the journal."""
        if "ahead" in event:
            self._ahead = len(self._engine.draw(check_positive_integer(event["ahead"], "ahead")))
            return
        row, label = answer_of(event)
        if type(row) is int and self._engine.open_draw(row, self._ahead) is not None:
            self._engine.settle(row, label)
        else:
            settle_next(self._engine, row, label)


def _check_metric_audit(target_error: float | None, planned: int | None, rule: str, how: str) -> None:
    """Reject options that metrics other than the error rate do not support."""
    for name, is_wrong, rule_, got, fix in (
        (
            "target_error",
            target_error is not None,
            "must be None if target is given",
            target_error,
            "Pass one of them.",
        ),
        ("n_labels", planned is None, "must be given for a metric", None, "Plan it with audit_size(metric=...)."),
        ("rule", rule != PLANNED, "must be 'planned' for a metric", repr(rule), "Leave it out."),
        ("sampling", how != UNIFORM, "must be 'uniform' for a metric, which has strata", repr(how), "Leave it out."),
    ):
        if is_wrong:
            raise ParameterError(name, rule_, got, fix)


def _check_classifier(clf: Any, X_pool: ArrayLike | None) -> ArrayLike:
    """Return the rows of the pool. Require a fitted classifier."""
    if clf is None or X_pool is None:
        name = "clf" if clf is None else "X_pool"
        raise ParameterError(name, "must be given without predictions", "None", "Pass it, or pass predictions=.")
    if not is_fitted(clf):
        raise ParameterError(
            "classifier",
            "must be fitted before an audit",
            "an unfitted classifier",
            "Fit it first.",
        )
    return X_pool


def _checked_scores(scores: ArrayLike | None, N: int) -> FloatArray | None:
    return None if scores is None else check_scores(scores, N)


def _given_belief(
    scores: FloatArray | None, sampling: str, n_labels: int | None, rule: str
) -> tuple[FloatArray | None, str]:
    """Return the error probabilities that weight the sampling, 1 − score, and the kind of sampling."""
    are_shares = scores is not None and bool(((scores >= 0) & (scores <= 1)).all())
    how = check_sampling(sampling, n_labels, rule, has_belief=are_shares)
    if how == UNIFORM or scores is None or not are_shares:
        if how == WEIGHTED:
            raise ParameterError(
                "scores",
                "must be probabilities for weighted sampling",
                "no probabilities",
                "Pass probabilities, or sampling='uniform'.",
            )
        return None, how
    return 1.0 - scores, how


def frozen(
    clf: Any, X: ArrayLike, sampling: str, n_labels: int | None, rule: str
) -> tuple[list[Any], FloatArray | None, str]:
    """Return the predictions, the error probabilities that weight the sampling, and the kind of sampling."""
    predictions = np.asarray(clf.predict(X)).ravel().tolist()
    how = check_sampling(sampling, n_labels, rule, has_belief=callable(getattr(clf, "predict_proba", None)))
    return predictions, expected_error(clf, X) if how == WEIGHTED else None, how


def check_sampling(sampling: str, n_labels: int | None, rule: str, *, has_belief: bool) -> str:
    """Return the kind of sampling, "uniform" or "weighted". "auto" depends on the planned number of labels."""
    if sampling not in (UNIFORM, WEIGHTED, AUTO):
        raise ParameterError(
            "sampling", "must be 'uniform', 'weighted' or 'auto'", repr(sampling), "Pass one of these."
        )
    if sampling == WEIGHTED and rule == PLANNED:
        raise ParameterError(
            "sampling",
            "must be 'uniform' for the exact bound at a planned number of labels",
            "'weighted'",
            "Pass sampling='uniform', or rule='anytime'.",
        )
    if sampling != AUTO:
        return sampling
    many = n_labels is not None and n_labels >= WEIGHTED_FROM
    return WEIGHTED if many and rule != PLANNED and has_belief else UNIFORM


def settle_next(engine: AuditEngine, row: int, label: Any) -> None:
    """Record the label of the next sampled row, which must be this row."""
    draw = engine.next_draw()
    if draw is None or type(row) is not int or row != draw.row:
        raise ValueError(f"got row {row!r}, expected {'no row' if draw is None else f'row {draw.row}'}")
    engine.settle(row, label)


def audit_bound(engine: AuditEngine, planned: int | None, subject: str = CLASSIFIER) -> ErrorBound:
    """Return the exact bound of an audit at a planned number of labels, or its anytime bound."""
    if planned is not None and not engine.is_uniform:
        raise ParameterError(
            "sampling", "must be 'uniform' for the exact bound", "'weighted'", "Call anytime_bound() instead."
        )
    assumptions: tuple[str, ...] = ()
    if planned is not None:
        how = "exact hypergeometric, one-sided"
        assumptions = (f"the number of labels, {planned}, was fixed in advance",)
    elif engine.is_uniform:
        how = "one-sided prior-posterior ratio, sampling without replacement"
    else:
        how = f"betting, weighted sampling, uniform fraction {engine.uniform_fraction:.4g}, control variate"
        assumptions = ("rows were sampled with the recorded probabilities",)
    return ErrorBound(
        value=engine.anytime_upper if planned is None else engine.planned_upper(planned),
        kind=THEOREM,
        method=f"audit: {how}",
        about=f"{subject}, on the {len(engine.predictions)} rows of the pool",
        level=engine.level,
        loss=ZERO_ONE,
        assumptions=(_FROZEN if subject == CLASSIFIER else _FIXED, _TRUE_LABELS, *assumptions),
        n_labels=engine.n_labels,
        n_errors=engine.n_errors,
        mean_loss=engine.n_errors / max(engine.n_labels, 1),
    )
