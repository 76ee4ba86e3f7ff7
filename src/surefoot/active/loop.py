"""The labeling loop: suggest rows, take answers, refit, certify, stop."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from surefoot._types import FloatArray
from surefoot._validation import check_positive_integer, check_positive_scalar
from surefoot.active.base import QueryStrategy
from surefoot.active.candidates import Pool, fit_to, is_missing
from surefoot.active.flexibility import check_candidates
from surefoot.active.journal import Journal
from surefoot.active.strategies import RobustModelChange
from surefoot.calibration import PREDICTIVE
from surefoot.certificates.certificate import Certificate
from surefoot.problem.geometry import GeometryStore, shared_geometry
from surefoot.unlabeled import Unlabeled

Oracle = Callable[[NDArray[np.intp], FloatArray], Any]
Certifier = Callable[..., Certificate]


@dataclass(frozen=True)
class Round:
    """One fit: how many labels it had, and the bounds on its worst expected loss.

    Attributes
    ----------
    n_labels : int
        Labels given until then.
    risk : float or None
        Upper bound of the certificate; None without one.
    lower : float or None
        Lower bound of the certificate; None without one.
    """

    n_labels: int
    risk: float | None
    lower: float | None

    def __str__(self) -> str:
        if self.risk is None:
            return f"{self.n_labels} labels, no certificate"
        return f"{self.n_labels} labels, certified risk {self.risk:.4g} (lower bound {self.lower:.4g})"


class ActiveLearner:
    """A pool of rows, the answers given so far, and the classifier fitted to them.

    Ask `suggest` for rows, give their labels to `label`, `skip` what cannot be labeled, until it suggests none; or let
    `run` do so with an oracle. After each round the classifier is refitted and certified, and the loop is done when the
    certified risk is at most `target_risk`. `ProvenLabeling` alternates this with audits until an error is proved.

    Parameters
    ----------
    clf : classifier
        Cloned and fitted to the labeled rows; if its fit takes X_unlabeled, all others are passed too.
    X : array of shape (N, d)
        The pool.
    y : array of shape (N,) or None, default=None
        Labels known from the start; missing ones are NaN or None.
    strategy : a strategy of this package or of scikit-activeml, or a function(estimator, X_pool) -> indices
        By default RobustModelChange().
    target_risk : float or None, default=None
        Stop when the certified risk is at most this.
    certify : function(clf, X, y, X_unlabeled=U) -> Certificate, or None, default=None
        By default the classifier's own `certificate_`, where it has one. For any other classifier, for example
        `functools.partial(surefoot.certify, radius=0.1)`.
    classes : array of shape (K,) or None, default=None
        The labels that are allowed; any by default.
    journal : path or None, default=None
        File to which every answer is written before it is acknowledged. An existing one is resumed: its answers count
        on top of y.

    Attributes
    ----------
    model : classifier or None
        The fitted classifier; None before the first fit and while the labels show too few classes.
    certificate : Certificate or None
        The certificate of `model`.
    rounds : list of Round
        Rounds, oldest first; a resumed journal's too.

    Examples
    --------
    >>> import surefoot as sf
    >>> X, truth = [[0.0], [0.1], [0.2], [0.8], [0.9], [1.0]], [0, 0, 0, 1, 1, 1]
    >>> clf = sf.RobustLogisticRegression(radius=0.5, label_prior=[0.5, 0.5])
    >>> learner = sf.active.ActiveLearner(clf, X, [0, None, None, None, None, 1])
    >>> row = learner.suggest()
    >>> learner.label(row, [truth[row[0]]])
    >>> learner.n_labels
    3
    """

    def __init__(
        self,
        clf: Any,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        strategy: Any = None,
        target_risk: float | None = None,
        certify: Certifier | None = None,
        classes: ArrayLike | None = None,
        journal: str | os.PathLike[str] | None = None,
    ) -> None:
        self.clf = clf
        self.X: FloatArray = check_array(X, dtype=np.float64, input_name="X")
        self.strategy = RobustModelChange() if strategy is None else strategy
        self.target_risk = None if target_risk is None else check_positive_scalar(target_risk, "target_risk")
        self.certify = certify
        self.classes = None if classes is None else np.unique(np.asarray(classes))
        self.model: Any | None = None
        self.certificate: Certificate | None = None
        self.rounds: list[Round] = []
        self._answers: dict[int, Any] = {}
        self._skipped: set[int] = set()
        self._fitted_to: dict[int, Any] | None = None
        self._geometry = GeometryStore()
        self._journal = None if journal is None else Journal(journal, self.X)
        self._take_first(y)
        self._replay()

    @property
    def labels(self) -> dict[int, Any]:
        """The labels given so far, by row."""
        return dict(self._answers)

    @property
    def n_labels(self) -> int:
        """How many rows have a label."""
        return len(self._answers)

    @property
    def open_rows(self) -> NDArray[np.intp]:
        """Rows that are neither labeled nor skipped."""
        is_open = np.ones(len(self.X), dtype=bool)
        is_open[[*self._answers, *self._skipped]] = False
        return np.flatnonzero(is_open)

    @property
    def y(self) -> NDArray[Any]:
        """Labels (N,); missing ones are NaN among numbers, None among others."""
        return self._marked(np.nan)

    @property
    def done(self) -> bool:
        """Whether the certified risk of the last fit has reached its target, or no row is left."""
        reached = (
            self.target_risk is not None and self.certificate is not None and self.certificate.risk <= self.target_risk
        )
        return reached or len(self.open_rows) == 0

    def suggest(self, batch_size: int = 1) -> NDArray[np.intp]:
        """Rows to label next; fits and certifies first, if answers have come in.

        Parameters
        ----------
        batch_size : int, default=1
            How many rows, at most.

        Returns
        -------
        array of shape (b,)
            Indices of rows, b ≤ batch_size; none when the loop is done.
        """
        size = min(check_positive_integer(batch_size, "batch_size"), len(self.open_rows))
        with shared_geometry(self._geometry):
            self.fit()
            return np.empty(0, dtype=np.intp) if self.done else self._query(size)

    def label(self, rows: ArrayLike, labels: Any) -> None:
        """Take the label of a row, or the labels of many; a row that has one already is corrected.

        When this returns the answers are in the journal, all of them.

        Parameters
        ----------
        rows : int or array of shape (b,)
            Indices of rows.
        labels : label or sequence of b labels
            Their labels: numbers or texts.
        """
        indices = self._check_rows(rows)
        values = [labels] if np.ndim(rows) == 0 else list(labels)
        if len(values) != len(indices):
            raise ValueError(f"labels must be one per row; got {len(values)} for {len(indices)} rows. Pass as many.")
        answers = [(int(row), self._check_label(value)) for row, value in zip(indices, values, strict=True)]
        if self._journal is not None:
            self._journal.append({"label": answers})
        self._store(answers)

    def skip(self, rows: ArrayLike) -> None:
        """Do not suggest these rows again: their labels cannot be told. A label given later still counts.

        Parameters
        ----------
        rows : int or array of shape (b,)
            Indices of rows.
        """
        indices = [int(row) for row in self._check_rows(rows)]
        if self._journal is not None:
            self._journal.append({"skip": indices})
        self._skipped.update(row for row in indices if row not in self._answers)

    def fit(self) -> Round | None:
        """Fit and certify the classifier, if answers have come in since the last time.

        Returns
        -------
        Round or None
            The last round, if any.
        """
        if self._fitted_to != self._answers:
            self._fitted_to = dict(self._answers)
            with shared_geometry(self._geometry):  # the query that follows asks for the same distances
                self.model = fit_to(self.clf, self._pool(), None) if self._answers else None
                self.certificate = None if self.model is None else self._certificate()
            current = self._round()
            if not self.rounds or current != self.rounds[-1]:  # a resumed journal may end with this round
                self.rounds.append(current)
                if self._journal is not None:
                    self._journal.append({"round": asdict(current)})
        return self.rounds[-1] if self.rounds else None

    def run(
        self,
        oracle: Oracle,
        *,
        batch_size: int = 1,
        max_labels: int | None = None,
        on_round: Callable[[Round], None] | None = None,
    ) -> ActiveLearner:
        """Label rows with an oracle until done, or until max_labels rows have a label.

        Parameters
        ----------
        oracle : function(rows, X[rows]) -> sequence of labels
            Returns one label per row; None skips the row.
        batch_size : int, default=1
            Rows per round.
        max_labels : int or None, default=None
            Labels in all, those known from the start included.
        on_round : function(Round) or None, default=None
            Called after each fit.

        Returns
        -------
        ActiveLearner
            The learner itself.
        """
        while True:
            current = self.fit()
            if on_round is not None and current is not None:
                on_round(current)
            left = len(self.open_rows) if max_labels is None else max_labels - self.n_labels
            rows = self.suggest(min(batch_size, left)) if left > 0 else np.empty(0, dtype=np.intp)
            if not len(rows):
                return self
            answers = list(oracle(rows, self.X[rows]))
            given = [k for k, value in enumerate(answers) if value is not None]
            if given:
                self.label(rows[given], [answers[k] for k in given])
            if len(given) < len(rows):
                self.skip(np.delete(rows, given))

    def __repr__(self) -> str:
        last = f"; {self.rounds[-1]}" if self.rounds else ""
        target = "" if self.target_risk is None else f", target {self.target_risk:.4g}"
        return f"ActiveLearner({len(self.X)} rows, {self.n_labels} labels, {len(self._skipped)} skipped{last}{target})"

    def _take_first(self, y: ArrayLike | None) -> None:
        if y is None:
            return
        given = np.asarray(y)
        if given.shape != (len(self.X),):
            raise ValueError(
                f"y must have one label per row, missing ones NaN or None; got shape {given.shape}. Pass that."
            )
        rows = np.flatnonzero(~is_missing(given, np.nan))
        self._store([(int(row), self._check_label(given[row])) for row in rows])

    def _replay(self) -> None:
        """Take over what the journal holds, and write to it what it lacks: the labels known from the start."""
        if self._journal is None:
            return
        first = dict(self._answers)
        recorded: set[int] = set()
        for number, event in enumerate(self._journal.events(), start=2):
            try:
                recorded |= self._replay_event(event)
            except (ValueError, TypeError) as error:
                raise ValueError(
                    f"each line of {self._journal.path} must be an event of these rows; line {number} is {event} "
                    f"({error}). Remove the line, or restore the file."
                ) from error
        new = [(row, value) for row, value in first.items() if row not in recorded]
        if new:
            self._journal.append({"label": new})

    def _replay_event(self, event: dict[str, Any]) -> set[int]:
        """Take over one event of the journal; the rows that it labels."""
        if "label" in event:
            answers = [(int(self._check_rows(row)[0]), self._check_label(value)) for row, value in event["label"]]
            self._store(answers)
            return {row for row, _ in answers}
        if "skip" in event:
            rows = self._check_rows(event["skip"]).tolist() if event["skip"] else []
            self._skipped.update(row for row in rows if row not in self._answers)
        elif "round" in event:
            self.rounds.append(Round(**event["round"]))
        return set()

    def _store(self, answers: list[tuple[int, Any]]) -> None:
        self._answers.update(answers)
        self._skipped.difference_update(row for row, _ in answers)

    def _check_rows(self, rows: ArrayLike) -> NDArray[np.intp]:
        return check_candidates(np.atleast_1d(np.asarray(rows)), len(self.X), "X")

    def _check_label(self, value: Any) -> Any:
        """A plain number or text, as the journal can hold it; one of the classes, where these are known."""
        plain = value.item() if isinstance(value, np.generic) else value
        if not isinstance(plain, str | bool | int | float) or plain != plain:  # noqa: PLR0124 - NaN
            raise ValueError(f"a label must be a number or a text; got {value!r}. To leave a row out, call skip.")
        if self.classes is not None and plain not in self.classes.tolist():
            raise ValueError(f"a label must be one of {self.classes.tolist()}; got {plain!r}. Correct it.")
        return plain

    def _marked(self, missing: Any) -> NDArray[Any]:
        """(N,) labels with a mark for missing ones."""
        numbers = all(isinstance(value, bool | int | float) for value in self._answers.values())
        is_nan = missing is not None and missing != missing  # noqa: PLR0124 - NaN
        marked: NDArray[Any]
        if is_nan and numbers:
            marked = np.full(len(self.X), np.nan)
        else:
            marked = np.full(len(self.X), None if is_nan else missing, dtype=object)
        for row, value in self._answers.items():
            marked[row] = value
        return marked

    def _pool(self) -> Pool:
        return Pool.of(self.X, self._marked(getattr(self.clf, "missing_label", np.nan)), None, self._mark)

    @property
    def _mark(self) -> Any:
        return getattr(self.clf, "missing_label", np.nan)

    def _certificate(self) -> Certificate | None:
        if self.certify is not None:
            rows = np.array(sorted(self._answers))
            labels = np.array([self._answers[row] for row in rows])
            rest = np.delete(self.X, rows, axis=0)
            return self.certify(self.model, self.X[rows], labels, X_unlabeled=Unlabeled(rest))
        found, radius = getattr(self.model, "certificate_", None), getattr(self.model, "radius", None)
        if self.target_risk is not None and (found is None or (isinstance(radius, str) and radius == PREDICTIVE)):
            why = "a certificate, which it has not" if found is None else 'a promise, which radius="predictive" is not'
            raise ValueError(
                f"target_risk needs {why}; got {type(self.model).__name__}. Pass certify=, or RobustLogisticRegression "
                "with a radius that covers the truth."
            )
        return found

    def _round(self) -> Round:
        if self.certificate is None:
            return Round(self.n_labels, None, None)
        return Round(self.n_labels, float(self.certificate.risk), float(self.certificate.lower))

    def _query(self, size: int) -> NDArray[np.intp]:
        """Rows from the strategy, whichever of the three forms it has."""
        open_rows = self.open_rows
        if isinstance(self.strategy, QueryStrategy):
            fitted = {"clf": self.clf} if self.model is None else {"clf": self.model, "fit_clf": False}
            y = self._marked(self.strategy.missing_label)
            return np.asarray(self.strategy.query(self.X, y, candidates=open_rows, batch_size=size, **fitted))
        if hasattr(self.strategy, "query"):
            y = self._marked(getattr(self.strategy, "missing_label", np.nan))
            accepted = inspect.signature(self.strategy.query).parameters
            keywords = {"clf": self.clf} if "clf" in accepted else {}
            return np.asarray(self.strategy.query(X=self.X, y=y, candidates=open_rows, batch_size=size, **keywords))
        if self.model is None:
            raise ValueError(
                f"a function as strategy needs a fitted classifier; got {self.n_labels} labels, too few to fit one. "
                "Pass labels of two classes in y."
            )
        return open_rows[np.atleast_1d(self.strategy(self.model, self.X[open_rows]))[:size]]
