"""An audit: prove the error rate of a finished classifier, or of any predictions, on a pool, label by label."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._errors import ParameterError
from surefoot._printing import count
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
from surefoot.bounds.result import THEOREM, ErrorBound
from surefoot.bounds.size import AuditSize, audit_size
from surefoot.certificates.evidence import audit_claim, distinct, write_evidence
from surefoot.certificates.verify import rows_digest
from surefoot.problem.losses import ZERO_ONE

KIND = "surefoot.audit"
CLASSIFIER = "this classifier"
# Weighted picks win from about this many labels on, and lose below 100 (docs/bounds.md).
WEIGHTED_FROM = 200
_FROZEN = "the classifier was frozen before the first of these labels was seen, and its predictions have not changed"
_FIXED = "the predictions were fixed before the first of these labels was seen"
_TRUE_LABELS = "the labels are right; a row that was skipped counts as an error"


class Audit:
    """Prove that a finished classifier, or any predictions, misclassify at most a target share of a pool.

    Ask `next` for a row, give its label to `record`, and read `anytime_bound` whenever you like; `proved` says whether
    the target is reached. Rows are drawn at random by the audit itself: their labels, and no others, judge the
    predictions. `next_rows` gives several rows, whose labels may come in any order. `finish` tells which rows
    annotators must label so that the whole table has few wrong labels.

    Parameters
    ----------
    clf : fitted classifier or None, default=None
        The classifier to judge, finished. None: `predictions` are given.
    X_pool : array of shape (N, d) or None, default=None
        The rows of the pool. With `predictions` they only tell a journal that the rows are the same.
    y : array of shape (N,) or None, default=None
        Labels known from the start, missing ones NaN or None: those the classifier was trained on, say. They count as
        they are and are not drawn; the bound is on the rest. None: those that a journal was begun with, or none.
    predictions : array of shape (N,) or None, default=None
        A class per row, instead of a classifier: from a language model, a vendor, a rule or last year's model.
    scores : array of shape (N,) or (N, K), or None, default=None
        How sure each prediction is, larger is surer, or the probabilities of the classes. Fixed before the first label.
        By default the largest probability of a classifier that has predict_proba.
    level : float in (0, 1), default=0.9
        Probability with which the bound holds.
    target_error : float or None, default=None
        The share of errors to prove.
    n_labels : int or None, default=None
        Labels planned, fixed beforehand: the audit is done when they are there.
    rule : {"anytime", "planned"} or None, default=None
        Which bound proves the target: one of them, decided beforehand. By default "planned" where n_labels is given.
    sampling : {"uniform", "weighted", "auto"}, default="uniform"
        "weighted" draws rows that the classifier is unsure of more often, with known probabilities, and takes its own
        belief as control variate; needs probabilities and the anytime rule. "auto": weighted from 200 planned labels.
    uniform_fraction : float in [0.2, 1], default=0.6
        Share of the weighted draws that is uniform.
    classes : array of shape (K,) or None, default=None
        All classes, where labels may show one that the classifier does not know.
    journal : path, log or None, default=None
        File that holds every answer before it is acknowledged; an existing one is resumed. No one else can write to it
        until the audit is closed, or gone. Or an object with `read() -> list of dict` and `append(dict)`.
    random_state : int or None, default=None
        Seed of the draws. The order depends on the predictions, too: another classifier gets other rows.

    Attributes
    ----------
    is_uniform : bool
        Whether rows are drawn with equal probabilities.

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
            raise ParameterError("predictions", "must be None for a classifier", "both", "Pass one of the two.")
        self._scores = sure
        known = known_labels(y, len(predicted), self.classes)
        share = check_uniform_fraction(uniform_fraction)
        about: dict[str, Any] = {
            "rows": len(predicted),
            "pool": hash_rows([] if X_pool is None else X_pool),
            "predictions": hash_predictions(predicted, belief),
            "known": [list(pair) for pair in sorted(known.items())],  # as JSON gives it back
            "level": self.level,
            "n_labels": self.planned,
            "rule": self.rule,
            "picks": how,
            "uniform_share": share,
            "seed": check_seed(random_state),
        }
        if scores is not None:
            about["scores"] = hash_rows(sure)
        free = tuple(name for name, given in (("seed", random_state), ("known", y)) if given is None)
        self._journal = Journal(journal, KIND, about, free)
        about = self._journal.about
        self._rows_digest = None if X_pool is None else rows_digest(X_pool)
        self._closed = False
        self._ahead = 0
        self._engine = AuditEngine(
            predicted,
            dict(about["known"]),
            level=self.level,
            seed=about["seed"],
            target=self.target_error,
            plan=self.planned if self.rule == PLANNED else None,
            belief=belief,
            uniform_fraction=share,
        )
        self.is_uniform = self._engine.is_uniform
        self._journal.replay(self._repeat)

    @property
    def labels(self) -> dict[int, Any]:
        """The labels recorded, by row; None where a row was skipped. Those known from the start are not among them."""
        return self._engine.labels

    @property
    def n_labels(self) -> int:
        """How many labels are recorded, rows skipped among them."""
        return self._engine.n_labels

    @property
    def n_known(self) -> int:
        """How many labels were known from the start."""
        return len(self._engine.known)

    @property
    def n_errors(self) -> int:
        """How many of these the classifier got wrong; rows skipped count as errors."""
        return self._engine.n_errors

    @property
    def proved(self) -> bool:
        """Whether the bound that decides is at most the target."""
        return self._engine.proved

    @property
    def done(self) -> bool:
        """Whether the target is proved, the labels planned are there, no row is left, or it was closed."""
        used_up = self.planned is not None and self.n_labels >= self.planned
        return self._closed or used_up or self._engine.next_draw() is None

    def next(self) -> int | None:
        """The row to label next, the same until it is recorded or skipped.

        Returns
        -------
        int or None
            Its number in the pool; None when the audit is done.
        """
        draw = self._engine.next_draw()
        return None if draw is None or self.done else draw.row

    def next_rows(self, n: int) -> list[int]:
        """The next rows to label, whose labels may come in any order.

        A label counts once those of all rows sampled before it are there.

        Parameters
        ----------
        n : int
            How many rows.

        Returns
        -------
        list of int
            Their numbers in the pool, fewer where the audit ends. The same until some are recorded or skipped.
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
        """Take the label of a row that `next` or `next_rows` gave. When this returns it is in the journal.

        Parameters
        ----------
        row : int
            The row.
        label : number or str
            Its label, one of the classes.
        """
        self._take(row, check_known_label(label, self.classes))

    def skip(self, row: int) -> None:
        """The label of this row cannot be told: it counts as an error, or the rows left would be no sample.

        Parameters
        ----------
        row : int
            The row that `next` or `next_rows` gave.
        """
        self._take(row, None)

    def run(self, oracle: Callable[[int], Any], max_labels: int | None = None) -> Audit:
        """Record the labels that an oracle gives, until the audit is done.

        Parameters
        ----------
        oracle : callable
            Gives the label of a row by its number; None skips the row.
        max_labels : int or None, default=None
            Stop when this many labels are recorded in all.

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
        """Take no more labels, and let others open the journal."""
        self._closed = True
        self._journal.close()

    def bound(self) -> ErrorBound:
        """The exact bound at the planned number of labels; labels still to come count as errors.

        Without a plan, the bound as if the present number had been planned.

        Returns
        -------
        ErrorBound
            The bound on the share of errors in the pool.
        """
        return audit_bound(self._engine, self.n_labels if self.planned is None else self.planned, self._subject)

    def anytime_bound(self) -> ErrorBound:
        """The bound that holds at every number of labels at once: look, and stop, whenever you like.

        Returns
        -------
        ErrorBound
            The bound on the share of errors in the pool.
        """
        return audit_bound(self._engine, None, self._subject)

    def finish(self, max_error: float = 0.05) -> FinishPlan:
        """Find the rows that annotators must label, so that at most this share of all labels is wrong.

        The model labels the rows of which its scores are the largest. The labels of this audit tell how many rows these
        may be. With `n_labels` the bound is exact at that number; otherwise it holds at every number of labels, and
        annotators have more rows to label.

        Parameters
        ----------
        max_error : float, default=0.05
            Share of wrong labels in the finished table, chosen before any plan is seen.

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
        N, digest = len(self._engine.predictions), self._rows_digest
        names = distinct(self._engine.predictions)
        described = {"form": "arrays", "rows": N, "labeled": self.n_known, "classes": names, "features": digest}
        data = {**described, "labels": None, "table": None}
        model = {"name": self._subject, "sha256": None}
        return write_evidence(Path(path), data, [self.claim(data)], model=model, seed=self._journal.about["seed"])

    def claim(self, data: dict[str, Any]) -> dict[str, Any]:
        """Describe the bound that decides, with its proof, as a claim of evidence.

        Parameters
        ----------
        data : dict
            Description of the rows, as in the file.

        Returns
        -------
        dict
            The claim.
        """
        planned = self.planned if self.rule == PLANNED else None
        about, engine = self._journal.about, self._engine
        return audit_claim(
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
        """How many labels the target will take, if the classifier errs that often: asked before the first label.

        Rows whose labels are known from the start are not drawn: the target is what it leaves for the others, and the
        labels are drawn from these alone.

        Parameters
        ----------
        expected_error : float
            The share of the rows to draw from on which the classifier is believed to err.

        Returns
        -------
        AuditSize
            The labels to plan, by uniform draws, of the rows that have none; its target and pool are those rows'.
        """
        if self.target_error is None:
            raise ParameterError("target_error", "must be given for the size of an audit", "None", "Pass a target.")
        rows = self._engine.n_drawable
        allowed = self.target_error * len(self._engine.predictions) - self._engine.known_errors
        return audit_size(min(max(allowed, 0.0) / max(rows, 1), 1.0), expected_error, n_pool=rows, level=self.level)

    def __repr__(self) -> str:
        target = "" if self.target_error is None else f", target {self.target_error:.4g}"
        proved = ", proved" if self.proved else ""
        seen = f"{count(self.n_errors, 'error')} on {count(self.n_labels, 'label')}"
        return (
            f"Audit({len(self._engine.predictions)} rows, {seen}, anytime bound "
            f"{self._engine.anytime_upper:.4g} at level {self.level:.4g}{target}{proved})"
        )

    def _take(self, row: int, label: Any) -> None:
        draw = None if self._closed else self._engine.next_draw()
        found = None if draw is None or isinstance(row, bool) else self._engine.open_draw(row, self._ahead)
        if found is None:
            expected = "it is closed or done" if draw is None else f"the row drawn is {draw.row}"
            raise ParameterError(
                "row",
                f"must be a row that the audit has drawn; {expected}",
                repr(row),
                "Record the row that next() gives: rows chosen otherwise prove nothing.",
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


def _check_classifier(clf: Any, X_pool: ArrayLike | None) -> ArrayLike:
    """The rows of the pool, where a fitted classifier is given with them."""
    if clf is None or X_pool is None:
        name = "clf" if clf is None else "X_pool"
        raise ParameterError(name, "must be given where predictions are not", "None", "Pass it, or predictions=.")
    if not is_fitted(clf):
        raise ParameterError(
            "classifier",
            "must be fitted, since an audit judges a finished classifier",
            "one that is not fitted",
            "Fit it first.",
        )
    return X_pool


def _checked_scores(scores: ArrayLike | None, N: int) -> FloatArray | None:
    return None if scores is None else check_scores(scores, N)


def _given_belief(
    scores: FloatArray | None, sampling: str, n_labels: int | None, rule: str
) -> tuple[FloatArray | None, str]:
    """The belief that weights the draws, one minus the score, and how rows are drawn, for given predictions."""
    are_shares = scores is not None and bool(((scores >= 0) & (scores <= 1)).all())
    how = check_sampling(sampling, n_labels, rule, has_belief=are_shares)
    if how == UNIFORM or scores is None or not are_shares:
        if how == WEIGHTED:
            raise ParameterError(
                "scores", "must be probabilities for weighted sampling", "none", "Pass them, or sampling='uniform'."
            )
        return None, how
    return 1.0 - scores, how


def frozen(
    clf: Any, X: ArrayLike, sampling: str, n_labels: int | None, rule: str
) -> tuple[list[Any], FloatArray | None, str]:
    """What an audit keeps of a classifier: predictions, the belief that weights the draws, and how rows are drawn."""
    predictions = np.asarray(clf.predict(X)).ravel().tolist()
    how = check_sampling(sampling, n_labels, rule, has_belief=callable(getattr(clf, "predict_proba", None)))
    return predictions, expected_error(clf, X) if how == WEIGHTED else None, how


def check_sampling(sampling: str, n_labels: int | None, rule: str, *, has_belief: bool) -> str:
    """How rows are drawn: "uniform" or "weighted"; "auto" is decided by the number of labels planned."""
    if sampling not in (UNIFORM, WEIGHTED, AUTO):
        raise ParameterError(
            "sampling", "must be 'uniform', 'weighted' or 'auto'", repr(sampling), "Pass one of these."
        )
    if sampling == WEIGHTED and rule == PLANNED:
        raise ParameterError(
            "sampling", "must be 'uniform' for the exact bound at a planned number of labels", "'weighted'", "Pass it."
        )
    if sampling != AUTO:
        return sampling
    many = n_labels is not None and n_labels >= WEIGHTED_FROM
    return WEIGHTED if many and rule != PLANNED and has_belief else UNIFORM


def settle_next(engine: AuditEngine, row: int, label: Any) -> None:
    """Settle the row drawn next, which must be this one."""
    draw = engine.next_draw()
    if draw is None or type(row) is not int or row != draw.row:
        raise ValueError(f"got row {row!r} where {'no row' if draw is None else f'row {draw.row}'} was drawn")
    engine.settle(row, label)


def audit_bound(engine: AuditEngine, planned: int | None, subject: str = CLASSIFIER) -> ErrorBound:
    """The exact bound of an audit at a planned number of labels, or its anytime bound."""
    if planned is not None and not engine.is_uniform:
        raise ParameterError(
            "sampling", "must be uniform for the exact bound", "an audit that weighs its picks", "Read anytime_bound()."
        )
    assumptions: tuple[str, ...] = ()
    if planned is not None:
        how = "exact hypergeometric, one-sided"
        assumptions = (f"the number of labels, {planned}, was fixed before the first was seen",)
    elif engine.is_uniform:
        how = "one-sided prior-posterior ratio, draws without replacement"
    else:
        how = f"betting on weighted draws, uniform share {engine.uniform_fraction:.4g}, control variate"
        assumptions = ("rows were drawn with the probabilities that are logged",)
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
