"""Learn, freeze, prove: a loop that requests labels until a classifier is proved to be good enough."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._errors import ParameterError
from surefoot._printing import rounded_up
from surefoot._validation import check_unit_scalar
from surefoot.active.loop import ActiveLearner
from surefoot.active.proof_state import AUDIT, EXHAUSTED, LEARN, PROVED, AuditRecord, ProofState, Question
from surefoot.bounds._arguments import (
    AUTO,
    UNIFORM,
    check_known_label,
    check_level,
    check_seed,
    check_uniform_fraction,
    expected_error,
    known_classes_of,
    known_labels,
)
from surefoot.bounds.audit import frozen, settle_next
from surefoot.bounds.engine import PLANNED, AuditEngine, AuditPolicy, LearningState, level_of
from surefoot.bounds.journal import EventLog, answer_event, hash_predictions, hash_rows
from surefoot.bounds.size import audit_size

# Weighted audits are planned for a classifier with this fraction of the target error rate, at the level of the third
# audit.
_BELIEVED_SHARE, _PLANNED_AUDIT = 0.25, 3


class ProvenLabeling(AuditRecord):
    """Label rows of a pool until the error rate of a classifier on the pool is proved to be at most a target.

    Call `next` for a row, and pass its label to `record` (or `skip` the row), until `done`. Or let `run` do this with
    an oracle. `state` shows the progress, `proof` the proved bound, and `model` the classifier that the bound covers.
    To train classifiers yourself, pass None for `clf`, pass labels to `learn`, and pass each classifier to `freeze`.
    `next` then returns the rows of the audit.

    Parameters
    ----------
    clf : classifier or None
        Cloned and fitted to the labels for learning, as in `ActiveLearner`. A journal can be resumed in the middle of
        an audit only if the fit is deterministic. Otherwise the open audit is abandoned.
    X : array of shape (N, d)
        The pool.
    y : array of shape (N,) or None, default=None
        Labels known at the start. Missing labels are NaN or None. None: the labels that the journal was started with,
        if any.
    target_error : float
        The error rate to prove.
    level : float in (0, 1), default=0.9
        Confidence level of all audits together. With this probability, no bound is ever below the error rate that it
        bounds.
    strategy : strategy or None, default=None
        Selects the rows to learn from, as in `ActiveLearner`.
    policy : AuditPolicy or None, default=None
        Decides when an audit begins, how many labels it may use, and when it is abandoned. None means AuditPolicy().
    sampling : {"uniform", "weighted", "auto"}, default="auto"
        How audits sample rows, as in `Audit`. "auto": weighted if at least 200 labels are planned.
    uniform_fraction : float in [0.2, 1], default=0.6
        Fraction of uniform draws in weighted sampling.
    classes : array of shape (K,) or None, default=None
        All allowed labels.
    journal : path, log or None, default=None
        File that stores every label before `record` returns. An existing journal is resumed. See `Audit`.
    random_state : int or None, default=None
        Seed of the random samples of the audits.

    Attributes
    ----------
    audits : dict of AuditEngine
        The audits of this process, by number.

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

    def __init__(
        self,
        clf: Any,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        target_error: float,
        level: float = 0.9,
        strategy: Any = None,
        policy: AuditPolicy | None = None,
        sampling: str = AUTO,
        uniform_fraction: float = 0.6,
        classes: ArrayLike | None = None,
        journal: str | os.PathLike[str] | EventLog | None = None,
        random_state: int | None = None,
    ) -> None:
        self._learner = None if clf is None else ActiveLearner(clf, X, strategy=strategy, classes=classes)
        self.X = X if self._learner is None else self._learner.X
        self.target_error = check_unit_scalar(target_error, "target_error")
        self.policy = AuditPolicy() if policy is None else policy
        self.sampling, self.uniform_fraction = sampling, check_uniform_fraction(uniform_fraction)
        self.classes = None if classes is None else np.asarray(classes).tolist()
        self._frozen: Any = None
        self._n_tried = 0  # number of labels at which the last test was due
        self._tests: tuple[int, LearningState] | None = None  # number of labels, and the tests with these labels
        self._pending: Question | None = None
        n_rows = len(np.asarray(X))
        about: dict[str, Any] = {
            "rows": n_rows,
            "pool": hash_rows(self.X),
            "known": [list(pair) for pair in sorted(known_labels(y, n_rows, self.classes).items())],
            "level": check_level(level),
            "budget": self.policy.budget,
            "rule": self.policy.rule,
            "picks": sampling,
            "uniform_share": self.uniform_fraction,
            "seed": check_seed(random_state),
        }
        choices = (("seed", random_state), ("known", y), ("budget", self.policy.budget))
        super().__init__(journal, about, tuple(name for name, given in choices if given is None))
        self._teach()
        if self.is_auditing and self._learner is not None:
            if self._can_freeze():
                self.freeze(self.model)
            else:
                self.give_up()

    @classmethod
    def from_loop(cls, learner: ActiveLearner, *, target_error: float, **options: Any) -> ProvenLabeling:
        """Continue a labeling loop with its classifier, rows, labels, strategy and classes.

        Parameters
        ----------
        learner : ActiveLearner
            The loop to continue. It is not changed.
        target_error : float
            The error rate to prove.
        **options : dict
            Other arguments of this class.

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
    def budget(self) -> int | None:
        """Maximum number of labels of an audit, None without a limit."""
        weighted = self.audit is not None and not self.audit.is_uniform
        return self._planned_budget() if self._budget is None and weighted else self._budget

    @property
    def model(self) -> Any | None:
        """The last fitted or frozen classifier. During an audit and after a proof, it is the frozen classifier."""
        return self._frozen if self._learner is None else self._learner.model

    @property
    def done(self) -> bool:
        """Whether the target is proved, or no row is left to label."""
        return self.next() is None

    @property
    def state(self) -> ProofState:
        """The progress of the loop. Reading it does not request a row."""
        audit, pending = self.audit, self._pending
        phase = pending.phase if pending is not None else AUDIT if self.is_auditing else LEARN
        if self.proved:
            phase = PROVED
        elif not self._rows_left():
            phase = EXHAUSTED
        return ProofState(
            phase,
            len(self.labels),
            self._wanted(),
            self._expected(),
            self.n_audits,
            0 if audit is None else audit.n_labels,
            0 if audit is None else audit.n_errors,
            self.budget,
            None if audit is None else audit.anytime_upper,
            None if audit is None else audit.level,
            self.target_error,
            self.level,
        )

    def next(self) -> Question | None:
        """Return the row to label next. The call may first fit, freeze or end an audit.

        The row stays the same until you record or skip it.

        Returns
        -------
        Question or None
            The row and the purpose of its label. None if the target is proved, no row is left, or you must call
            `freeze` next.
        """
        while self._pending is None and not self.proved and self._rows_left():
            if self.is_auditing and self.n_audits in self.audits:
                self._ask_audit()
            elif self._learner is None:
                return None
            elif self._should_freeze():
                self.freeze(self.model)
            else:
                self._pending = Question(int(self._learner.suggest()[0]), LEARN)
        return self._pending

    def record(self, row: int, label: Any) -> None:
        """Record the label of the row that `next` returned.

        The journal contains the label when this method returns.

        Parameters
        ----------
        row : int
            The row that `next` returned.
        label : number or str
            Its label.
        """
        question = self._asked(row)
        if question.phase == AUDIT:
            self._answer(question.row, check_known_label(label, known_classes_of(self.model, self.classes)))
            self._pending = None
        else:
            self.learn({question.row: label})

    def learn(self, labels: Mapping[int, Any]) -> None:
        """Record labels of any rows for learning. This ends an open audit.

        Parameters
        ----------
        labels : dict
            Labels of unlabeled rows, by row.
        """
        for row, label in labels.items():
            self._write({"learn": [self._check_free(row), check_known_label(label, self.classes)]})
        self._pending = None
        self._teach()

    def skip(self, row: int) -> None:
        """Skip a row that cannot be labeled. An audit counts it as an error. In learning, another row is selected.

        Parameters
        ----------
        row : int
            The row that `next` returned, or another unlabeled row.
        """
        question = self.next()
        if question is not None and question.phase == AUDIT:
            self._answer(self._asked(row).row, None)
        else:
            self._write({"pass": self._check_free(row)})
        self._pending = None
        if self._learner is not None:
            self._learner.skip(row)

    def freeze(self, clf: Any) -> AuditEngine:
        """Begin an audit of this classifier, or continue the open audit if the predictions are the same.

        Parameters
        ----------
        clf : fitted classifier
            The classifier to audit. It may have seen only the labels in `learned`.

        Returns
        -------
        AuditEngine
            The audit, at its share of the confidence level. `next` returns its rows.
        """
        predictions, belief, _ = frozen(clf, self.X, self.sampling, self._planned_budget(), self.policy.rule)
        follows = self.sampling != UNIFORM and callable(getattr(clf, "predict_proba", None))
        mark = hash_predictions(predictions, expected_error(clf, self.X) if follows else None)
        if mark != self._mark:
            self._write({"freeze": self.n_audits + 1, "predictions": mark})
        if self.n_audits not in self.audits:
            audit = AuditEngine(
                predictions,
                self._learned,
                level=level_of(self.level, self.n_audits),
                seed=self._seed + self.n_audits,
                target=self.target_error,
                plan=self._budget if self.policy.rule == PLANNED else None,
                belief=belief,
                uniform_fraction=self.uniform_fraction,
            )
            for row, label in self._audited.items():
                settle_next(audit, row, label)
            self.audits[self.n_audits], self._frozen = audit, clf
        return self.audits[self.n_audits]

    def give_up(self) -> None:
        """End the open audit without a proof. Its labels become available for learning."""
        if self.is_auditing:
            self._write({"give_up": self.n_audits})
        self._pending = None
        self._teach()

    def run(self, oracle: Callable[[int], Any], max_labels: int | None = None) -> ProvenLabeling:
        """Record the labels of an oracle until the loop is done.

        Parameters
        ----------
        oracle : callable
            Function that returns the label of a row number, or None to skip the row.
        max_labels : int or None, default=None
            Stop at this total number of labels.

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
            f"ProvenLabeling({self._n_rows} rows, {now.n_labels} labels, {now.n_audits} audits{bound}, target "
            f"{now.target_error:.4g}: {now.phase})"
        )

    def _asked(self, row: int) -> Question:
        question = self.next()
        if question is None or isinstance(row, bool) or question.row != row:
            expected = "no row is open" if question is None else f"the next row is {question.row}"
            raise ParameterError(
                "row",
                f"must be the row that next() returned, because other rows prove nothing; {expected}",
                repr(row),
                "Record the row that next() returns.",
            )
        return question

    def _answer(self, row: int, label: Any) -> None:
        """Record the label of the row that the open audit sampled. None skips the row."""
        audit = self.audits[self.n_audits]
        self._write({"audit": self.n_audits, **answer_event(row, label, audit.draws[audit.n_labels].probability)})
        audit.settle(row, label)

    def _wanted(self) -> int:
        """Expected number of labels at which the next audit begins."""
        state = self._learning()
        plan = None if self.is_auditing else self.policy.plan(state)
        return self.policy.n_first(state) if plan is None else state.n_labels + plan.learn

    def _expected(self) -> int | None:
        """Expected number of further labels until the proof."""
        audit = self.audits.get(self.n_audits) if self.is_auditing else None
        if self.proved:
            return 0
        return None if audit is not None and not audit.is_uniform else self.policy.labels_left(self._learning(), audit)

    def _should_freeze(self) -> bool:
        """Whether an audit begins now. Cross-validation takes time, so it only runs if there are enough new labels."""
        n, state = len(self.labels), self._learning()
        due = max(self.policy.n_first(state), self._n_begun)
        while (after := math.ceil(self.policy.growth * due)) <= n:
            due = max(after, due + 1)
        if n < due or self._n_tried >= due or not self._can_freeze():
            return False
        self._n_tried = due
        return self.policy.begins(self._test())

    def _test(self) -> LearningState:
        """Cross-validate the classifier on its random labels, unless this was already done with the current labels."""
        state = self._learning()
        if (
            self._learner is None
            or self.model is None
            or (self._tests is not None and self._tests[0] == len(self._learned))
        ):
            return state
        is_random = getattr(self._learner.strategy, "is_random", lambda n_labels: False)
        rows = [row for k, row in enumerate(self._learned) if row in self._sampled or is_random(k)]
        errors = self._learner.cross_validate(rows)
        found, known = np.asarray(self.model.predict(self.X)), self._learned
        state = replace(
            state, n_tested=len(rows), n_errors=errors, n_trained=len(known),
            n_wrong=sum(bool(found[row] != label) for row, label in known.items()),
        )  # fmt: skip
        self._tests = len(self._learned), state
        return state

    def _learning(self) -> LearningState:
        """The state of the loop for the policy, with the last tests."""
        n, audit = len(self._learned), self.n_audits + (not self.is_auditing)
        before = None if self._tests is None else self._tests[1]
        if before is None:
            return LearningState(self._n_rows, n, 0, n, 0, 0, self._n_frozen, audit, self.target_error, self.level)
        return replace(before, n_labels=n, n_frozen=self._n_frozen, audit=audit)

    def _rows_left(self) -> bool:
        return self.is_auditing or len(self.labels) + len(self.skipped) < self._n_rows

    def _teach(self) -> None:
        """Pass missing labels to the learner."""
        if self._learner is None:
            return
        new = {row: label for row, label in self._learned.items() if row not in self._learner.labels}
        if new:
            self._learner.label(list(new), list(new.values()))
        if self.skipped:
            self._learner.skip(sorted(self.skipped))

    def _can_freeze(self) -> bool:
        """Return True if the labels are sufficient to fit a classifier. A single class may not be sufficient."""
        if self._learner is None or not self._learner.labels:
            return False
        self._learner.fit()
        return self._learner.model is not None

    def _ask_audit(self) -> None:
        audit = self.audits[self.n_audits]
        draw = audit.next_draw()
        used_up = self.budget is not None and (audit.n_labels >= self.budget or not audit.can_still_prove(self.budget))
        if used_up or draw is None or self.policy.reason(audit, self._test()) is not None:
            self.give_up()
        else:
            self._pending = Question(draw.row, AUDIT)

    def _planned_budget(self) -> int:
        """Number of labels of an audit: the limit, or enough labels for a good classifier in 80 % of cases."""
        if self._budget is not None:
            return int(self._budget)
        level = level_of(self.level, _PLANNED_AUDIT)
        plan = audit_size(self.target_error, _BELIEVED_SHARE * self.target_error, self._n_rows, level=level)
        return self._n_rows if plan.n_anytime is None else max(plan.n_anytime, 1)
