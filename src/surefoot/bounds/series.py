"""Learn, freeze, prove: audits of one classifier after another on one pool, all of which hold together.

A theorem needs a classifier that did not see the labels that judge it. So learning and auditing take turns: labels are
asked for by any strategy; the classifier is frozen; rows drawn at random from those without a label judge it. If the
target is not proved within the budget, the labels of the audit go to learning, and the next audit begins. The j-th
spends (1 − level) / (j (j + 1)) of the level; these sum to 1 − level, so with probability at least `level` no bound of
any audit, at any time, is below the error of the classifier that it judges.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._validation import check_positive_integer, check_unit_scalar
from surefoot.bounds.audit import ANYTIME, Audit, check_rule
from surefoot.bounds.finite import check_level
from surefoot.bounds.given import check_label, check_seed, known_labels
from surefoot.bounds.journal import AuditJournal, hash_predictions, hash_rows
from surefoot.bounds.observed_losses import believed_error
from surefoot.bounds.picks import AUTO, UNIFORM, check_uniform_share
from surefoot.bounds.result import ErrorBound

KIND = "surefoot.audits"


def level_of(level: float, audit: int) -> float:
    """The level of the audit with this number, from 1: all together keep `level`."""
    return 1.0 - (1.0 - level) / (audit * (audit + 1))


@dataclass(eq=False)
class _Log:
    """What one audit of a series writes: its events, marked with its number."""

    journal: AuditJournal | None
    number: int
    events: list[dict[str, Any]]

    def append(self, event: dict[str, Any]) -> None:
        if self.journal is not None:
            self.journal.append({"audit": self.number, **event})
        self.events.append(event)


class AuditSeries:
    """Alternate learning and auditing on one pool until a target error is proved.

    Give labels for learning to `learn`, a classifier trained on `labels` to `freeze`, and the labels of the rows that
    the audit draws to its `record`. When it is done without a proof, learn on: its labels are among `labels` then.

    Parameters
    ----------
    X_pool : array of shape (N, d)
        The rows of the pool.
    y : array of shape (N,) or None, default=None
        Labels known from the start, missing ones NaN or None. None: those that a journal was begun with, or none.
    target_error : float
        The share of errors to prove.
    level : float in (0, 1), default=0.9
        Of all audits together.
    budget : int or None, default=None
        Labels of one audit; None lets it go on to the end of the pool.
    rule : {"anytime", "planned"}, default="anytime"
        Which bound proves the target; "planned" needs a budget.
    picks : {"uniform", "weighted", "auto"}, default="auto"
        How an audit draws its rows; "auto": weighted from a budget of 200 labels. See `Audit`.
    uniform_share : float in [0.2, 1], default=0.6
        Share of the weighted draws that is uniform.
    classes : array of shape (K,) or None, default=None
        All labels that are allowed.
    journal : path or None, default=None
        Holds every label before it is acknowledged; an existing one is resumed.
    random_state : int or None, default=None
        Seed of the draws.

    Attributes
    ----------
    audits : list of Audit
        As far as this process has frozen classifiers; the last one may be open.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> series = AuditSeries(X, target_error=0.15, random_state=0)
    >>> for row in range(150):
    ...     series.learn(row, y[row])
    >>> rows = list(series.labels)
    >>> tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X[rows], [series.labels[row] for row in rows])
    >>> audit = series.freeze(tree).run(lambda row: y[row])
    >>> series.proved, series.proof.value <= 0.15
    (True, True)
    """

    def __init__(
        self,
        X_pool: ArrayLike,
        y: ArrayLike | None = None,
        *,
        target_error: float,
        level: float = 0.9,
        budget: int | None = None,
        rule: str = ANYTIME,
        picks: str = AUTO,
        uniform_share: float = 0.6,
        classes: ArrayLike | None = None,
        journal: str | os.PathLike[str] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.X_pool, self.level = X_pool, check_level(level)
        self._n_rows = len(np.asarray(X_pool))
        self.target_error = check_unit_scalar(target_error, "target_error")
        self.budget = None if budget is None else check_positive_integer(budget, "budget")
        self.rule = check_rule(rule, self.budget)
        self.picks, self.uniform_share = picks, check_uniform_share(uniform_share)
        self.classes = None if classes is None else np.asarray(classes).tolist()
        self.audits: list[Audit] = []
        self._skipped: set[int] = set()
        self._answers = known_labels(y, self._n_rows, self.classes)
        self._number, self._predictions, self._open = 0, "", _Log(None, 0, [])
        self._seed = check_seed(random_state)
        free = tuple(name for name, given in (("seed", random_state), ("known", y)) if given is None)
        self._journal = None if journal is None else self._resume(journal, free)

    @property
    def labels(self) -> dict[int, Any]:
        """All labels, by row: those known from the start, those learned from and those of audits. None was skipped."""
        return self._answers | {row: label for row, label in self._audited() if label is not None}

    @property
    def audit(self) -> Audit | None:
        """The audit that is open, or was the last; None before the first, and after a resume until `freeze`."""
        return self.audits[-1] if self.audits else None

    @property
    def proved(self) -> bool:
        """Whether an audit has proved the target; its classifier is the one to keep."""
        return any(audit.proved for audit in self.audits)

    @property
    def proof(self) -> ErrorBound | None:
        """The bound of the first audit that proved the target, at the level that all audits hold together."""
        for audit in self.audits:
            if audit.proved:
                bound = audit.anytime_bound() if audit.rule == ANYTIME else audit.bound()
                together = (
                    f"audit {audit.number} of a series, each at its share of the level, so that all hold together"
                )
                return replace(bound, level=self.level, assumptions=(*bound.assumptions, together))
        return None

    def learn(self, row: int, label: Any) -> None:
        """Take a label for learning, of a row chosen anyhow; it ends an audit that is open.

        Parameters
        ----------
        row : int
            Number of the row in the pool; one without a label.
        label : number or str
            Its label.
        """
        self._check_free(row)
        plain = check_label(label, self.classes)
        if self._journal is not None:
            self._journal.append({"learn": [int(row), plain]})
        self._close()
        self._answers[int(row)] = plain

    @property
    def n_audits(self) -> int:
        """How many audits have begun, those of processes before this one included."""
        return self._number

    @property
    def learned(self) -> dict[int, Any]:
        """The labels that learning may use now: all but those of the audit that is open."""
        return dict(self._answers)

    @property
    def is_auditing(self) -> bool:
        """Whether an audit is open, resumed ones included: its labels judge the classifier that was frozen."""
        return self._open.number > 0

    @property
    def skipped(self) -> set[int]:
        """Rows whose label could not be told, in audits or in learning, and that have none."""
        audited = {row for row, label in self._audited() if label is None}
        return (self._skipped | audited) - set(self._answers)

    def skip(self, row: int) -> None:
        """Keep in mind that the label of a row cannot be told; an audit may still draw it.

        Parameters
        ----------
        row : int
            Number of the row in the pool; one without a label.
        """
        self._check_free(row)
        if self._journal is not None:
            self._journal.append({"pass": int(row)})
        self._skipped.add(int(row))

    def give_up(self) -> None:
        """End the open audit without a proof: its labels go to learning."""
        if self.is_auditing:
            if self._journal is not None:
                self._journal.append({"give_up": self._number})
            self._close()

    def freeze(self, clf: Any) -> Audit:
        """Begin the next audit, of this classifier; or go on with the open one, where it is of these predictions.

        Parameters
        ----------
        clf : fitted classifier
            The classifier to judge; it has seen no labels but `labels`.

        Returns
        -------
        Audit
            The audit, at its share of the level.
        """
        same = self._open.number > 0 and self._predictions == self._hash(clf)
        if same and self.audits and self.audits[-1].number == self._open.number:
            return self.audits[-1]
        if not same:
            self._close()
            self._number, self._predictions = self._number + 1, self._hash(clf)
            if self._journal is not None:
                self._journal.append({"freeze": self._number, "predictions": self._predictions})
            self._open = _Log(self._journal, self._number, [])
        y = np.full(self._n_rows, None, dtype=object)
        for row, label in self._answers.items():
            y[row] = label
        audit = Audit(
            clf,
            self.X_pool,
            y,
            level=level_of(self.level, self._number),
            target_error=self.target_error,
            n_labels=self.budget,
            rule=self.rule,
            picks=self.picks,
            uniform_share=self.uniform_share,
            classes=self.classes,
            journal=self._open,
            random_state=self._seed + self._number,
        )
        audit.number = self._number
        self.audits.append(audit)
        return audit

    def __repr__(self) -> str:
        state = "proved" if self.proved else "not proved"
        return (
            f"AuditSeries({self._n_rows} rows, {len(self.labels)} labels, {self._number} audits, target "
            f"{self.target_error:.4g} at level {self.level:.4g} {state})"
        )

    def _check_free(self, row: int) -> None:
        if row not in range(self._n_rows):
            raise ValueError(f"row must be a row of the pool, 0 to {self._n_rows - 1}; got {row!r}. Pass its number.")
        if int(row) in self.labels:
            raise ValueError(
                f"a row is labeled once, since audits have counted with its label; row {row} has one. Label another."
            )

    def _hash(self, clf: Any) -> str:
        """What tells one frozen classifier from another: its predictions, and its beliefs where picks follow them."""
        follows = self.picks != UNIFORM and callable(getattr(clf, "predict_proba", None))
        belief = believed_error(clf, self.X_pool) if follows else None
        return hash_predictions(np.asarray(clf.predict(self.X_pool)).ravel().tolist(), belief)

    def _audited(self) -> list[tuple[int, Any]]:
        """Rows and labels of the open audit, oldest first; None for those skipped."""
        return [tuple(event["label"] if "label" in event else event["skip"]) for event in self._open.events]

    def _close(self) -> None:
        """The labels of the open audit go to learning; it takes no more."""
        self._answers.update((row, label) for row, label in self._audited() if label is not None)
        self._skipped.update(row for row, label in self._audited() if label is None)
        for audit in self.audits:
            audit.close()
        self._open, self._predictions = _Log(None, 0, []), ""

    def _resume(self, journal: str | os.PathLike[str], free: tuple[str, ...]) -> AuditJournal:
        about: dict[str, Any] = {
            "rows": self._n_rows,
            "pool": hash_rows(self.X_pool),
            "known": [list(pair) for pair in sorted(self._answers.items())],
            "level": self.level,
            "budget": self.budget,
            "rule": self.rule,
            "picks": self.picks,
            "uniform_share": self.uniform_share,
            "seed": self._seed,
        }
        opened = AuditJournal(journal, KIND, about, free)
        self._seed = opened.about["seed"]
        self._answers = dict(opened.about["known"])
        for event in opened.events:
            if "learn" in event:
                self._close()
                row, label = event["learn"]
                self._answers[row] = label
            elif "pass" in event:
                self._skipped.add(event["pass"])
            elif "give_up" in event:
                self._close()
            elif "freeze" in event:
                self._close()
                self._number, self._predictions = event["freeze"], event["predictions"]
                self._open = _Log(opened, self._number, [])
            else:
                self._open.events.append({key: value for key, value in event.items() if key != "audit"})
        return opened
