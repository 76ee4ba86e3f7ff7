"""An audit: prove the error of a finished classifier on a pool, label by label."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from surefoot._pool_count import hypergeometric_upper
from surefoot._printing import count
from surefoot._validation import check_positive_integer, check_unit_scalar
from surefoot.bounds.draws import Draws
from surefoot.bounds.finite import check_level
from surefoot.bounds.given import check_label, check_seed, known_labels
from surefoot.bounds.journal import AuditJournal, hash_predictions, hash_rows
from surefoot.bounds.observed_losses import believed_error, is_fitted
from surefoot.bounds.picks import UNIFORM, WEIGHTED, check_uniform_share, resolve_picks
from surefoot.bounds.result import THEOREM, ErrorBound
from surefoot.bounds.size import AuditSize, audit_size
from surefoot.losses import ZERO_ONE

KIND = "surefoot.audit"
ANYTIME, PLANNED = "anytime", "planned"
_FROZEN = "the classifier was frozen before the first of these labels was seen, and its predictions have not changed"
_TRUE_LABELS = "the labels are right; a row that was skipped counts as an error"


class EventLog(Protocol):
    """Where an audit keeps its events; `append` returns when they are safe."""

    events: list[dict[str, Any]]

    def append(self, event: dict[str, Any]) -> None: ...


class Audit:
    """Prove that a finished classifier errs on at most a target share of the rows of a pool.

    Ask `next` for a row, give its label to `record`, and read `anytime_bound` whenever you like; `proved` says whether
    the target is reached. Rows are drawn at random by the audit itself: their labels, and no others, judge the
    classifier.

    Parameters
    ----------
    clf : fitted classifier
        The classifier to judge, finished.
    X_pool : array of shape (N, d)
        The rows of the pool.
    y : array of shape (N,) or None, default=None
        Labels known from the start, missing ones NaN or None: those the classifier was trained on, say. They count as
        they are and are not drawn; the bound is on the rest. None: those that a journal was begun with, or none.
    level : float in (0, 1), default=0.9
        Probability with which the bound holds.
    target_error : float or None, default=None
        The share of errors to prove.
    n_labels : int or None, default=None
        Labels planned, fixed beforehand: the audit is done when they are there.
    rule : {"anytime", "planned"} or None, default=None
        Which bound proves the target: one of them, decided beforehand. By default "planned" where n_labels is given.
    picks : {"uniform", "weighted", "auto"}, default="uniform"
        "weighted" draws rows that the classifier is unsure of more often, with known probabilities, and takes its own
        belief as control variate; needs predict_proba and the anytime rule. "auto": weighted from 200 planned labels.
    uniform_share : float in [0.2, 1], default=0.6
        Share of the weighted draws that is uniform.
    classes : array of shape (K,) or None, default=None
        All classes, where labels may show one that the classifier does not know.
    journal : path or None, default=None
        File that holds every answer before it is acknowledged; an existing one is resumed.
    random_state : int or None, default=None
        Seed of the draws. The order depends on the predictions, too: another classifier gets other rows.

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

    def __init__(
        self,
        clf: Any,
        X_pool: ArrayLike,
        y: ArrayLike | None = None,
        *,
        level: float = 0.9,
        target_error: float | None = None,
        n_labels: int | None = None,
        rule: str | None = None,
        picks: str = UNIFORM,
        uniform_share: float = 0.6,
        classes: ArrayLike | None = None,
        journal: str | os.PathLike[str] | EventLog | None = None,
        random_state: int | None = None,
    ) -> None:
        if not is_fitted(clf):
            raise ValueError("an audit judges a finished classifier; got one that is not fitted. Fit it first.")
        self.level = check_level(level)
        self.target_error = None if target_error is None else check_unit_scalar(target_error, "target_error")
        self.planned = None if n_labels is None else check_positive_integer(n_labels, "n_labels")
        self.rule = check_rule(rule, self.planned)
        self.predicted: list[Any] = np.asarray(clf.predict(X_pool)).ravel().tolist()
        self.classes = _classes(clf, classes)
        known = known_labels(y, len(self.predicted), self.classes)
        has_belief = callable(getattr(clf, "predict_proba", None))
        how = resolve_picks(picks, self.planned, planned=self.rule == PLANNED, has_belief=has_belief)
        belief = believed_error(clf, X_pool) if how == WEIGHTED else None
        share = check_uniform_share(uniform_share)
        about: dict[str, Any] = {
            "rows": len(self.predicted),
            "pool": hash_rows(X_pool),
            "predictions": hash_predictions(self.predicted, belief),
            "known": [list(pair) for pair in sorted(known.items())],  # as JSON gives it back
            "level": self.level,
            "n_labels": self.planned,
            "rule": self.rule,
            "picks": how,
            "uniform_share": share,
            "seed": check_seed(random_state),
        }
        free = tuple(name for name, given in (("seed", random_state), ("known", y)) if given is None)
        self._log: EventLog | None
        if isinstance(journal, str | os.PathLike):
            opened = AuditJournal(journal, KIND, about, free)
            about, self._log = opened.about, opened
            known = dict(about["known"])
        else:
            self._log = journal
        self.number = 1
        self._closed = False
        self._state = Draws(self.predicted, known, belief, share, about["seed"], about["predictions"], self.level)
        for event in [] if self._log is None else list(self._log.events):
            self._replay(event)

    @property
    def labels(self) -> dict[int, Any]:
        """The labels recorded, by row; None where a row was skipped. Those known from the start are not among them."""
        return dict(self._state.answers)

    @property
    def n_labels(self) -> int:
        """How many labels are recorded, rows skipped among them."""
        return len(self._state.answers)

    @property
    def n_known(self) -> int:
        """How many labels were known from the start."""
        return len(self.predicted) - len(self._state.left) - self.n_labels

    @property
    def n_errors(self) -> int:
        """How many of these the classifier got wrong; rows skipped count as errors."""
        return self._state.n_errors

    @property
    def proved(self) -> bool:
        """Whether the bound that decides is at most the target."""
        if self.target_error is None:
            return False
        found = self._planned_upper() if self.rule == PLANNED else self._state.anytime_upper
        return found <= self.target_error

    @property
    def done(self) -> bool:
        """Whether the target is proved, the labels planned are there, no row is left, or it was closed."""
        used_up = self.planned is not None and self.n_labels >= self.planned
        return self._closed or self.proved or used_up or len(self._state.left) == 0

    def next(self) -> int | None:
        """The row to label next, the same until it is recorded or skipped.

        Returns
        -------
        int or None
            Its number in the pool; None when the audit is done.
        """
        return None if self.done else self._state.next_row()

    def record(self, row: int, label: Any) -> None:
        """Take the label of the row that `next` gave. When this returns it is in the journal.

        Parameters
        ----------
        row : int
            The row that `next` gave.
        label : number or str
            Its label, one of the classes.
        """
        self._take(row, check_label(label, self.classes))

    def skip(self, row: int) -> None:
        """The label of this row cannot be told: it counts as an error, or the rows left would be no sample.

        Parameters
        ----------
        row : int
            The row that `next` gave.
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
            self._take(row, None if label is None else check_label(label, self.classes))
        return self

    def can_prove(self, n_labels: int) -> bool:
        """Whether the anytime bound can still reach the target with so many labels in all, if no more errors come.

        Parameters
        ----------
        n_labels : int
            Labels of this audit, those recorded included.

        Returns
        -------
        bool
            False only where the target is out of reach; with weighted draws always True.
        """
        if self.target_error is None:
            return False
        return self.proved or self._state.can_reach(self.target_error, n_labels)

    def close(self) -> None:
        """Take no more labels: they have gone to learning, or will."""
        self._closed = True

    def bound(self) -> ErrorBound:
        """The exact bound at the planned number of labels; labels still to come count as errors.

        Without a plan, the bound as if the present number had been planned.

        Returns
        -------
        ErrorBound
            The bound on the share of errors in the pool.
        """
        if self._state.belief is not None:
            raise ValueError("the exact bound needs uniform picks; this audit weighs them. Read anytime_bound().")
        plan = self.n_labels if self.planned is None else self.planned
        assumption = f"the number of labels, {plan}, was fixed before the first was seen"
        return self._bound(self._planned_upper(), "exact hypergeometric, one-sided", assumption)

    def anytime_bound(self) -> ErrorBound:
        """The bound that holds at every number of labels at once: look, and stop, whenever you like.

        Returns
        -------
        ErrorBound
            The bound on the share of errors in the pool.
        """
        if self._state.belief is None:
            how = "one-sided prior-posterior ratio, draws without replacement"
            return self._bound(self._state.anytime_upper, how, None)
        how = f"betting on weighted draws, uniform share {self._state.picks.uniform_share:.4g}, control variate"
        return self._bound(self._state.anytime_upper, how, "rows were drawn with the probabilities that are logged")

    def expected_size(self, believed_error: float) -> AuditSize:
        """How many labels the target will take, if the classifier errs that often: asked before the first label.

        Rows whose labels are known from the start are not drawn: the target is what it leaves for the others, and the
        labels are drawn from these alone.

        Parameters
        ----------
        believed_error : float
            The share of the rows to draw from on which the classifier is believed to err.

        Returns
        -------
        AuditSize
            The labels to plan, by uniform draws, of the rows that have none; its target and pool are those rows'.
        """
        if self.target_error is None:
            raise ValueError("the size of an audit needs target_error; got None. Pass a target.")
        rows = len(self._state.left) + self.n_labels
        allowed = self.target_error * len(self.predicted) - self._state.known_errors
        return audit_size(min(max(allowed, 0.0) / max(rows, 1), 1.0), believed_error, n_pool=rows, level=self.level)

    def __repr__(self) -> str:
        target = "" if self.target_error is None else f", target {self.target_error:.4g}"
        proved = ", proved" if self.proved else ""
        seen = f"{count(self.n_errors, 'error')} on {count(self.n_labels, 'label')}"
        return (
            f"Audit({len(self.predicted)} rows, {seen}, anytime bound "
            f"{self._state.anytime_upper:.4g} at level {self.level:.4g}{target}{proved})"
        )

    def _take(self, row: int, label: Any) -> None:
        if self._closed:
            raise ValueError(
                f"this audit is closed: its labels have gone to learning; got a label of row {row!r}. Freeze a "
                "classifier to begin the next one."
            )
        drawn = self._state.next_row() if len(self._state.left) else None
        if drawn is None or isinstance(row, bool) or row != drawn:
            expected = "no row is left" if drawn is None else f"the row drawn is {drawn}"
            raise ValueError(
                f"an audit takes the label of the row that it has drawn; {expected}, got {row!r}. Record the row that "
                "next() gives: rows chosen otherwise prove nothing."
            )
        if self._log is not None:
            name = "skip" if label is None else "label"
            self._log.append({name: [drawn, label], "p": self._state.probability})
        self._state.take(label)

    def _replay(self, event: dict[str, Any]) -> None:
        row, label = event["label"] if "label" in event else event["skip"]
        if row != self._state.next_row():
            raise ValueError(
                f"the journal must hold the rows that this audit draws, in order; got row {row} where "
                f"{self._state.next_row()} was drawn. Restore the file, and pass the arguments it was begun with."
            )
        self._state.take(label)

    def _planned_upper(self) -> float:
        drawable = len(self._state.left) + self.n_labels
        plan = min(self.n_labels if self.planned is None else self.planned, drawable)
        first = list(self._state.outcomes)[:plan]
        errors = sum(first) + (plan - len(first))
        most = hypergeometric_upper(errors, plan, drawable, self.level)
        return (self._state.known_errors + most) / len(self.predicted)

    def _bound(self, value: float, how: str, assumption: str | None) -> ErrorBound:
        return ErrorBound(
            value=value,
            kind=THEOREM,
            method=f"audit: {how}",
            about=f"this classifier, on the {len(self.predicted)} rows of the pool",
            level=self.level,
            loss=ZERO_ONE,
            assumptions=(_FROZEN, _TRUE_LABELS, *(() if assumption is None else (assumption,))),
            n_labels=self.n_labels,
            n_errors=self.n_errors,
            mean_loss=self.n_errors / max(self.n_labels, 1),
        )


def check_rule(rule: str | None, planned: int | None) -> str:
    """Which bound decides: by default the exact one where a number of labels is planned."""
    if rule not in (None, ANYTIME, PLANNED):
        raise ValueError(f"rule must be 'anytime', 'planned' or None; got {rule!r}. Pass one of these.")
    if rule == PLANNED and planned is None:
        raise ValueError("rule='planned' needs the number of labels planned; got n_labels=None. Pass n_labels=.")
    return rule or (ANYTIME if planned is None else PLANNED)


def _classes(clf: Any, classes: ArrayLike | None) -> list[Any] | None:
    known = getattr(clf, "classes_", None) if classes is None else classes
    return None if known is None else np.asarray(known).tolist()
