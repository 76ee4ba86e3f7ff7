"""Learn, freeze, prove: one loop that asks for labels until a classifier is proved to be good enough.

Rows to learn from come from a strategy; then the classifier is frozen, and rows drawn at random judge it
(`AuditSeries`). An audit that cannot prove the target any more within its budget is given up: its labels go to
learning, and after more of them the next audit spends the next share of the level. It may be given up for any reason,
since its bound holds at every number of labels at once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._printing import rounded_up
from surefoot._types import FloatArray
from surefoot._validation import check_positive_integer, check_positive_scalar, check_unit_scalar
from surefoot.active.loop import ActiveLearner
from surefoot.active.proof_state import AUDIT, EXHAUSTED, LEARN, PROVED, ProofState, Question
from surefoot.bounds.audit import Audit
from surefoot.bounds.result import ErrorBound
from surefoot.bounds.series import AuditSeries, level_of
from surefoot.bounds.size import audit_size

# An audit is planned for a classifier that errs on this share of the target, at the level of the third audit.
_BELIEVED_SHARE, _PLANNED_AUDIT = 0.25, 3


class ProvenLabeling:
    """Label rows of a pool until a classifier is proved to err on at most a target share of it.

    Ask `next` for a row, give its label to `record` (or `skip` it), until `done`; or let `run` do so with an oracle.
    `state` says where it stands, `proof` what is proved, and of which classifier: `model`.

    Parameters
    ----------
    clf : classifier
        Cloned and fitted to the labels of learning, as in `ActiveLearner`. It must be deterministic for a journal to be
        resumed in the middle of an audit; else that audit is given up.
    X : array of shape (N, d)
        The pool.
    y : array of shape (N,) or None, default=None
        Labels known from the start, missing ones NaN or None. None: those that a journal was begun with, or none.
    target_error : float
        The share of errors to prove.
    level : float in (0, 1), default=0.9
        Of all audits together: with this probability no bound, at any time, is below the error that it bounds.
    strategy : strategy or None, default=None
        Chooses the rows to learn from, as in `ActiveLearner`.
    first : int, default=20
        Labels, known ones included, at which the first audit begins.
    growth : float, default=1.5
        Each further audit waits for this many times as many labels as the one before.
    budget : int or None, default=None
        Labels of one audit; None plans for a classifier that errs on a quarter of the target.
    picks : {"uniform", "weighted", "auto"}, default="auto"
        How audits draw rows, as in `AuditSeries`.
    uniform_share : float in [0.2, 1], default=0.6
        Share of the weighted draws that is uniform.
    classes : array of shape (K,) or None, default=None
        All labels that are allowed.
    journal : path or None, default=None
        Holds every answer before it is acknowledged; an existing one is resumed.
    random_state : int or None, default=None
        Seed of the audits' draws.

    Attributes
    ----------
    series : AuditSeries
        The audits and all labels.

    Examples
    --------
    >>> import surefoot as sf
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> tree = DecisionTreeClassifier(max_depth=3, random_state=0)
    >>> strategy = sf.active.RandomSampling(random_state=0)
    >>> labeling = sf.active.ProvenLabeling(tree, X, target_error=0.2, strategy=strategy, random_state=0)
    >>> labeling = labeling.run(lambda row: y[row])
    >>> labeling.proved, labeling.proof.value <= 0.2
    (True, True)
    """

    def __init__(  # noqa: PLR0913 - one keyword per part of the loop
        self,
        clf: Any,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        target_error: float,
        level: float = 0.9,
        strategy: Any = None,
        first: int = 20,
        growth: float = 1.5,
        budget: int | None = None,
        picks: str = "auto",
        uniform_share: float = 0.6,
        classes: ArrayLike | None = None,
        journal: str | os.PathLike[str] | None = None,
        random_state: int | None = None,
    ) -> None:
        self._learner = ActiveLearner(clf, X, strategy=strategy, classes=classes)
        self.X: FloatArray = self._learner.X
        self.first = check_positive_integer(first, "first")
        self.growth = check_positive_scalar(growth, "growth")
        if self.growth < 1:
            raise ValueError(f"growth must be at least 1; got {growth!r}. Pass 1.5, say.")
        target = check_unit_scalar(target_error, "target_error")
        self.series = AuditSeries(
            self.X,
            y,
            target_error=target,
            level=level,
            budget=_planned_budget(target, level, len(self.X)) if budget is None else budget,
            picks=picks,
            uniform_share=uniform_share,
            classes=classes,
            journal=journal,
            random_state=random_state,
        )
        self._pending: Question | None = None
        self._teach()
        if self.series.is_auditing:
            self._freeze()

    @classmethod
    def of(cls, learner: ActiveLearner, *, target_error: float, **options: Any) -> ProvenLabeling:
        """Go on from a labeling loop, with its classifier, rows, labels, strategy and classes.

        Parameters
        ----------
        learner : ActiveLearner
            It stays as it is.
        target_error : float
            The share of errors to prove.
        **options : dict
            More arguments of this class.

        Returns
        -------
        ProvenLabeling
            The loop that alternates learning and audits.
        """
        y = np.full(len(learner.X), None, dtype=object)
        for row, label in learner.labels.items():
            y[row] = label
        known: dict[str, Any] = {"strategy": learner.strategy, "classes": learner.classes, **options}
        return cls(learner.clf, learner.X, y, target_error=target_error, **known)

    @property
    def model(self) -> Any | None:
        """The classifier that was fitted last, the frozen one during an audit and once it is proved; None at first."""
        return self._learner.model

    @property
    def labels(self) -> dict[int, Any]:
        """All labels, by row."""
        return self.series.labels

    @property
    def proved(self) -> bool:
        """Whether `model` is proved to err on at most the target share of the pool."""
        return self.series.proved

    @property
    def proof(self) -> ErrorBound | None:
        """The bound that proves it."""
        return self.series.proof

    @property
    def done(self) -> bool:
        """Whether the target is proved, or no row is left to ask for."""
        return self.next() is None

    @property
    def state(self) -> ProofState:
        """Where the loop stands, without asking for a row."""
        audit, pending = self.series.audit, self._pending
        phase = pending.phase if pending is not None else AUDIT if self.series.is_auditing else LEARN
        if self.proved:
            phase = PROVED
        elif not self._rows_left():
            phase = EXHAUSTED
        return ProofState(
            phase,
            len(self.labels),
            self._wanted(),
            self.series.n_audits,
            0 if audit is None else audit.n_labels,
            0 if audit is None else audit.n_errors,
            self.budget,
            None if audit is None else audit.anytime_bound().value,
            None if audit is None else audit.level,
            self.series.target_error,
            self.series.level,
        )

    @property
    def budget(self) -> int:
        """Labels that an audit may take."""
        return self.series.budget or len(self.X)

    def next(self) -> Question | None:
        """The row to label next, the same until it is recorded or skipped; it may fit, freeze or end an audit first.

        Returns
        -------
        Question or None
            The row and what its label is for; None when the target is proved, or no row is left.
        """
        while self._pending is None and not self.proved and self._rows_left():
            if self.series.is_auditing:
                self._ask_audit()
            elif len(self.series.labels) >= self._wanted() and self._can_freeze():
                self._freeze()
            else:
                self._ask_learner()
        return self._pending

    def record(self, row: int, label: Any) -> None:
        """Take the label of the row that `next` gave. When this returns it is in the journal.

        Parameters
        ----------
        row : int
            The row that `next` gave.
        label : number or str
            Its label.
        """
        question = self._asked(row)
        if question.phase == AUDIT:
            self._audit.record(question.row, label)
        else:
            self.series.learn(question.row, label)
            self._learner.label(question.row, label)
        self._pending = None

    def teach(self, labels: Mapping[int, Any]) -> None:
        """Take labels of rows that nobody asked for: they teach, and end an audit that is open.

        Parameters
        ----------
        labels : dict
            Labels by row, of rows without one.
        """
        for row, label in labels.items():
            self.series.learn(row, label)
        self._pending = None
        self._teach()

    def skip(self, row: int) -> None:
        """The label of this row cannot be told. In an audit it counts as an error; else another row is asked for.

        Parameters
        ----------
        row : int
            The row that `next` gave.
        """
        question = self._asked(row)
        if question.phase == AUDIT:
            self._audit.skip(question.row)
        else:
            self.series.skip(question.row)
        self._learner.skip(question.row)
        self._pending = None

    def run(self, oracle: Callable[[int], Any], max_labels: int | None = None) -> ProvenLabeling:
        """Record the labels that an oracle gives, until done.

        Parameters
        ----------
        oracle : callable
            Gives the label of a row by its number; None skips the row.
        max_labels : int or None, default=None
            Stop when there are this many labels in all.

        Returns
        -------
        ProvenLabeling
            The loop itself.
        """
        while max_labels is None or len(self.labels) < max_labels:
            question = self.next()
            if question is None:
                break
            label = oracle(question.row)
            if label is None:
                self.skip(question.row)
            else:
                self.record(question.row, label)
        return self

    def __repr__(self) -> str:
        now = self.state
        bound = "" if now.bound is None else f", bound {rounded_up(now.bound, 4)}"
        return (
            f"ProvenLabeling({len(self.X)} rows, {now.n_labels} labels, {now.n_audits} audits{bound}, target "
            f"{now.target_error:.4g}: {now.phase})"
        )

    @property
    def _audit(self) -> Audit:
        if self.series.audit is None:
            raise RuntimeError("an audit is open only between a freeze and its end")
        return self.series.audit

    def _asked(self, row: int) -> Question:
        question = self.next()
        if question is None or isinstance(row, bool) or question.row != row:
            expected = "no row is asked for" if question is None else f"the row asked for is {question.row}"
            raise ValueError(
                f"a label must be of the row asked for, since rows chosen otherwise prove nothing; {expected}, got "
                f"{row!r}. Record the row that next() gives."
            )
        return question

    def _wanted(self) -> int:
        """Labels at which the next audit begins."""
        return math.ceil(self.first * self.growth**self.series.n_audits)

    def _rows_left(self) -> bool:
        return self.series.is_auditing or len(self.labels) + len(self.series.skipped) < len(self.X)

    def _teach(self) -> None:
        """Give the learner the labels that it does not have yet."""
        new = {row: label for row, label in self.series.learned.items() if row not in self._learner.labels}
        if new:
            self._learner.label(list(new), list(new.values()))
        if self.series.skipped:
            self._learner.skip(sorted(self.series.skipped))

    def _can_freeze(self) -> bool:
        """Whether the labels of learning make a classifier; they may show one class only."""
        if not self._learner.labels:
            return False
        self._learner.fit()
        return self._learner.model is not None

    def _freeze(self) -> None:
        if self._can_freeze():
            self.series.freeze(self._learner.model)
        else:
            self.series.give_up()
            self._teach()

    def _ask_audit(self) -> None:
        row = None if self._is_hopeless() else self._audit.next()
        if row is not None:
            self._pending = Question(row, AUDIT)
        elif not self.proved:
            self.series.give_up()
            self._teach()

    def _is_hopeless(self) -> bool:
        """Whether the target cannot be proved within the budget even if no more errors come."""
        return not self._audit.can_prove(self.budget)

    def _ask_learner(self) -> None:
        self._pending = Question(int(self._learner.suggest()[0]), LEARN)


def _planned_budget(target: float, level: float, n_rows: int) -> int:
    """Labels within which an audit of a good classifier is done, in four of five cases; at most all rows."""
    plan = audit_size(target, _BELIEVED_SHARE * target, n_rows, level=level_of(level, _PLANNED_AUDIT))
    return n_rows if plan.n_anytime is None else max(plan.n_anytime, 1)
