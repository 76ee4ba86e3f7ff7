"""The labeling loop: suggest rows, record labels, refit, certify, stop."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from surefoot._errors import ParameterError
from surefoot._validation import (
    FloatArray,
    check_labeled_rows,
    check_more_rows,
    check_positive_integer,
    check_positive_scalar,
)
from surefoot.active.base import CandidatePool, QueryStrategy, fit_to
from surefoot.active.flexibility import check_candidates
from surefoot.active.strategies import RobustModelChange
from surefoot.bounds._arguments import check_known_label, known_labels
from surefoot.bounds.journal import EventLog, Journal, hash_rows
from surefoot.certificates.calibration import PREDICTIVE
from surefoot.certificates.certificate import Certificate
from surefoot.certificates.certification import ClassifierLoss, certify_over, classes_to_certify
from surefoot.costs.metrics import FeatureMetric
from surefoot.priors import LabelPrior
from surefoot.problem.distances import GeometryStore, distances_to_anchors, shared_geometry
from surefoot.problem.losses import LOG_LOSS
from surefoot.problem.placement import check_problem
from surefoot.problem.rows import UNLABELED, LabeledData, Unlabeled, settle_ground_cost, unwrap, warn_about_unlabeled

# A certificate for rows that were not sampled at random.

# Every row of the pool counts once in P_X, so a labeled row must not count twice.
_NEGLIGIBLE = 1e-9
_CLIP = 1e-12


@dataclass(frozen=True)
class NearestCertifier:
    """Certify around the labeled rows, each weighted by the number of pool rows that are nearest to it.

    The rows that a strategy selects differ from the pool, because most lie near class boundaries. With equal weights,
    they would represent distant rows, and the certified risk would rise with every label. A certificate does not need
    i.i.d. labels. It only needs a set that contains the true distribution, so the weights may follow the pool. The set
    then contains all distributions with the features of the pool, label probabilities in the intervals, and a distance
    from the weighted rows of at most: mean distance to the nearest labeled row + cheapest relabeling + excess.

    The set contains the true distribution if the excess is at least κ times the share of rows whose label differs from
    the label of the nearest labeled row.

    Parameters
    ----------
    excess : float
        Excess ≥ 0 of the radius over the minimal radius.
    label_prior : array (K,), array (K, 2), LabelPrior or None, default=None
        Label probabilities of the pool.
    loss : "log_loss", "zero_one" or array of shape (K, K), default="log_loss"
        Loss to bound. Entry [k, c] of a matrix is the loss of predicting class c when the true class is k. See
        `certify`.
    label_cost : float or array of shape (K, K), default=1.0
        Cost κ of changing a label, or a matrix whose entry [k, c] is the cost of changing label c of a labeled row to
        k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", an object of `surefoot.costs`, or a function.
    tol : float, default=1e-4
        Certified gap to reach, absolute, in units of the loss.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y, U = [[0.0], [1.0]], [0, 1], [[0.1], [0.2], [0.9]]
    >>> clf = LogisticRegression().fit(X, y)
    >>> NearestCertifier(excess=0.1)(clf, X, y, X_unlabeled=U).status
    'optimal'
    """

    excess: float
    label_prior: LabelPrior | ArrayLike | None = None
    loss: str | ArrayLike = LOG_LOSS
    label_cost: ArrayLike = 1.0
    metric: FeatureMetric | str | Callable[..., float] = "euclidean"
    tol: float = 1e-4

    def __call__(self, clf: Any, X: ArrayLike, y: ArrayLike, *, X_unlabeled: ArrayLike | Unlabeled) -> Certificate:
        """Certify a fitted classifier, given the labeled rows and the remaining rows of the pool."""
        rows, labels = check_labeled_rows(X, y)
        unlabeled = check_more_rows(unwrap(X_unlabeled)[0], UNLABELED, rows.shape[1])
        warn_about_unlabeled(rows, unlabeled, len(unlabeled), wrapped=True)  # no cross-validation splits these rows
        pool = np.vstack([rows, unlabeled])
        excess = check_positive_scalar(self.excess, "excess", allow_zero=True)
        classes = classes_to_certify(clf, labels, None)
        asked = LabeledData.check(rows, labels, sample_weight=None, classes=classes, metric=self.metric)
        everything, anchors = np.vstack([rows, pool]), np.arange(len(rows))
        data, label_cost = settle_ground_cost(asked, self.label_cost, len(everything), everything.__getitem__)
        with shared_geometry():  # the weights are computed from the same distances as the problem
            nearest = distances_to_anchors(data.metric, everything, rows, anchors)[len(rows) :].argmin(axis=1)
            problem = check_problem(
                rows,
                labels,
                X_unlabeled=Unlabeled(pool),
                sample_weight=_NEGLIGIBLE * np.bincount(nearest, minlength=len(rows)),
                label_prior=self.label_prior,
                label_cost=label_cost,
                metric=data.metric,
                classes=classes,
                tol=self.tol,
            )
        judged = ClassifierLoss.from_arguments(clf, problem.data.classes, self.loss, _CLIP, own=False)
        return certify_over(judged.game(problem, rows, pool, None), judged, problem.at_excess(excess), self.tol)


KIND = "surefoot.active"
# Number of cross-validation folds. Fits take time, and a proof only needs a rough estimate.
_FOLDS = 5
Oracle = Callable[[NDArray[np.intp], FloatArray], Any]
Certifier = Callable[..., Certificate]


@dataclass(frozen=True)
class Round:
    """Hold the number of labels of a fit, and the bounds on its worst expected loss.

    Attributes
    ----------
    n_labels : int
        Number of labels at the time of the fit.
    risk : float or None
        Upper bound of the certificate, None without a certificate.
    lower : float or None
        Lower bound of the certificate, None without a certificate.
    """

    n_labels: int
    risk: float | None
    lower: float | None

    def __str__(self) -> str:
        if self.risk is None:
            return f"{self.n_labels} labels, no certificate"
        return f"{self.n_labels} labels, certified risk {self.risk:.4g} (lower bound {self.lower:.4g})"


class ActiveLearner:
    """Run a labeling loop over a pool: select rows, record labels, refit and certify.

    Call `suggest` for rows, pass their labels to `label`, and `skip` rows that cannot be labeled, until `suggest`
    returns no rows. Or let `run` do this with an oracle. After each round, the classifier is refitted and certified.
    The loop ends when the certified risk is at most `target_risk`. `ProvenLabeling` alternates this loop with audits
    until an error rate is proved.

    Parameters
    ----------
    clf : classifier
        Cloned and fitted to the labeled rows. If its fit accepts X_unlabeled, it also receives the unlabeled rows.
    X : array of shape (N, d)
        The pool.
    y : array of shape (N,) or None, default=None
        Labels known at the start. Missing labels are NaN or None.
    strategy : a strategy of this package or of scikit-activeml, or a function(estimator, X_pool) -> indices
        Selects the rows to label. None means RobustModelChange().
    target_risk : float or None, default=None
        Stop when the certified risk is at most this value.
    certify : function(clf, X, y, X_unlabeled=U) -> Certificate, or None, default=None
        Certifies each fit. None uses the classifier's own `certificate_`, if any. For other classifiers, pass for
        example `functools.partial(surefoot.certify, radius=0.1)`.
    classes : array of shape (K,) or None, default=None
        The allowed labels. None allows any label.
    journal : path, log or None, default=None
        File that stores every label before `label` returns. An existing journal is resumed, and its labels override y.
        Only one process can write to the file until the learner is closed or deleted. See `Audit`.

    Attributes
    ----------
    model : classifier or None
        The fitted classifier. None before the first fit and while the labels contain too few classes.
    certificate : Certificate or None
        The certificate of `model`.
    rounds : list of Round
        All rounds, oldest first, including the rounds of a resumed journal.

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
        journal: str | os.PathLike[str] | EventLog | None = None,
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
        self._allowed = None if self.classes is None else self.classes.tolist()
        self._answers: dict[int, Any] = known_labels(y, len(self.X), self._allowed)
        self._skipped: set[int] = set()
        self._fitted_to: dict[int, Any] | None = None
        self._geometry = GeometryStore()
        about = {"rows": len(self.X), "fingerprint": hash_rows(self.X)}
        self._journal = Journal(journal, KIND, about)
        self._replay()

    @property
    def labels(self) -> dict[int, Any]:
        """The recorded labels, by row."""
        return dict(self._answers)

    @property
    def n_labels(self) -> int:
        """Number of labeled rows."""
        return len(self._answers)

    @property
    def open_rows(self) -> NDArray[np.intp]:
        """Rows that are neither labeled nor skipped."""
        is_open = np.ones(len(self.X), dtype=bool)
        is_open[[*self._answers, *self._skipped]] = False
        return np.flatnonzero(is_open)

    @property
    def y(self) -> NDArray[Any]:
        """Labels (N,). Missing labels are NaN among numbers, None otherwise."""
        return self._marked(np.nan)

    @property
    def done(self) -> bool:
        """Whether the certified risk of the last fit has reached its target, or no row is left."""
        reached = (
            self.target_risk is not None and self.certificate is not None and self.certificate.risk <= self.target_risk
        )
        return reached or len(self.open_rows) == 0

    def suggest(self, batch_size: int = 1) -> NDArray[np.intp]:
        """Select the rows to label next. If there are new labels, fit and certify first.

        Parameters
        ----------
        batch_size : int, default=1
            Maximum number of rows.

        Returns
        -------
        array of shape (b,)
            Indices of rows, b ≤ batch_size. Empty when the loop is done.
        """
        size = min(check_positive_integer(batch_size, "batch_size"), len(self.open_rows))
        with shared_geometry(self._geometry):
            self.fit()
            return np.empty(0, dtype=np.intp) if self.done else self._query(size)

    def label(self, rows: ArrayLike, labels: Any) -> None:
        """Record the labels of one or more rows. A new label of a labeled row replaces the old label.

        The journal contains all labels when this method returns.

        Parameters
        ----------
        rows : int or array of shape (b,)
            Indices of rows.
        labels : label or sequence of b labels
            Their labels, numbers or strings.
        """
        indices = self._check_rows(rows)
        values = [labels] if np.ndim(rows) == 0 else list(labels)
        if len(values) != len(indices):
            got = f"{len(values)} for {len(indices)} rows"
            raise ParameterError("labels", "must be one per row", got, "Pass one label per row.")
        checked = [check_known_label(value, self._allowed) for value in values]
        self._write({"label": list(zip(indices.tolist(), checked, strict=True))})

    def skip(self, rows: ArrayLike) -> None:
        """Stop suggesting these rows because they cannot be labeled. A label recorded later still counts.

        Parameters
        ----------
        rows : int or array of shape (b,)
            Indices of rows.
        """
        self._write({"skip": self._check_rows(rows).tolist()})

    def fit(self) -> Round | None:
        """Fit and certify the classifier if there are new labels.

        Returns
        -------
        Round or None
            The last round, or None before the first round.
        """
        if self._fitted_to != self._answers:
            self._fitted_to = dict(self._answers)
            mark = getattr(self.clf, "missing_label", np.nan)
            pool = CandidatePool.from_arguments(self.X, self._marked(mark), None, mark)
            with shared_geometry(self._geometry):  # the next query needs the same distances
                self.model = fit_to(self.clf, pool, None) if self._answers else None
                self.certificate = None if self.model is None else self._certificate()
            found = self.certificate
            bounds = (None, None) if found is None else (float(found.risk), float(found.lower))
            current = Round(self.n_labels, *bounds)
            if not self.rounds or current != self.rounds[-1]:  # a resumed journal may end with this round
                self._write({"round": asdict(current)})
        return self.rounds[-1] if self.rounds else None

    def cross_validate(self, rows: ArrayLike) -> int:
        """Count the errors of five-fold cross-validation at labeled rows.

        Parameters
        ----------
        rows : array of shape (m,)
            Labeled rows to divide into folds. All other labels are in every training part.

        Returns
        -------
        int
            The number of errors.
        """
        tested = self._check_rows(rows)
        mark, errors = getattr(self.clf, "missing_label", np.nan), 0
        folds = np.random.default_rng(0).permutation(len(tested)) % _FOLDS
        for fold in range(min(_FOLDS, len(tested))):
            left_out = tested[folds == fold].tolist()
            truth = [self._answers[row] for row in left_out]
            pool = CandidatePool.from_arguments(self.X, self._marked(mark, frozenset(left_out)), None, mark)
            seen = np.unique(pool.labels)
            predicted = seen.tolist() * len(truth) or [None] * len(truth)
            if len(seen) > 1:
                with shared_geometry(self._geometry):
                    model: Any = fit_to(self.clf, pool, None)
                predicted = np.asarray(model.predict(self.X[left_out])).tolist()
            errors += sum(bool(one != other) for one, other in zip(predicted, truth, strict=True))
        return errors

    def run(
        self,
        oracle: Oracle,
        *,
        batch_size: int = 1,
        max_labels: int | None = None,
        on_round: Callable[[Round], None] | None = None,
    ) -> ActiveLearner:
        """Label rows with an oracle until the loop is done or max_labels rows are labeled.

        Parameters
        ----------
        oracle : function(rows, X[rows]) -> sequence of labels
            Returns one label per row, or None to skip the row.
        batch_size : int, default=1
            Number of rows per round.
        max_labels : int or None, default=None
            Maximum total number of labels, including labels known at the start.
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

    def close(self) -> None:
        """Release the journal so that another process can resume it."""
        self._journal.close()

    def __repr__(self) -> str:
        last = f"; {self.rounds[-1]}" if self.rounds else ""
        target = "" if self.target_risk is None else f", target {self.target_risk:.4g}"
        return f"ActiveLearner({len(self.X)} rows, {self.n_labels} labels, {len(self._skipped)} skipped{last}{target})"

    def _replay(self) -> None:
        """Read the events of the journal, and add the labels known at the start that are missing in it."""
        first, recorded = dict(self._answers), set[int]()

        def replay(event: dict[str, Any]) -> None:
            recorded.update(row for row, _ in event.get("label", ()))
            self._apply(event)

        self._journal.replay(replay)
        new = [(row, value) for row, value in first.items() if row not in recorded]
        if new:
            self._journal.append({"label": new})

    def _write(self, event: dict[str, Any]) -> None:
        self._journal.append(event)
        self._apply(event)

    def _apply(self, event: dict[str, Any]) -> None:
        if "label" in event:
            found = {
                int(self._check_rows(row)[0]): check_known_label(value, self._allowed) for row, value in event["label"]
            }
            self._answers.update(found)
            self._skipped.difference_update(found)
        elif "skip" in event:
            self._skipped.update(set(self._check_rows(event["skip"]).tolist()) - set(self._answers))
        elif "round" in event:
            self.rounds.append(Round(**event["round"]))

    def _check_rows(self, rows: ArrayLike) -> NDArray[np.intp]:
        return check_candidates(np.atleast_1d(np.asarray(rows)), len(self.X), "X")

    def _marked(self, missing: Any, without: frozenset[int] = frozenset()) -> NDArray[Any]:
        """Return labels (N,) with a mark for missing labels and for the rows in `without`."""
        numbers = all(isinstance(value, bool | int | float) for value in self._answers.values())
        is_nan = missing is not None and missing != missing  # noqa: PLR0124 - NaN
        marked: NDArray[Any]
        if is_nan and numbers:
            marked = np.full(len(self.X), np.nan)
        else:
            marked = np.full(len(self.X), None if is_nan else missing, dtype=object)
        for row, value in self._answers.items():
            if row not in without:
                marked[row] = value
        return marked

    def _certificate(self) -> Certificate | None:
        if self.certify is not None:
            rows = np.array(sorted(self._answers))
            labels = np.array([self._answers[row] for row in rows])
            rest = np.delete(self.X, rows, axis=0)
            return self.certify(self.model, self.X[rows], labels, X_unlabeled=Unlabeled(rest))
        found, radius = getattr(self.model, "certificate_", None), getattr(self.model, "radius", None)
        if self.target_risk is not None and (found is None or (isinstance(radius, str) and radius == PREDICTIVE)):
            lacks = "a certificate" if found is None else 'a guarantee, which radius="predictive" does not give'
            raise ParameterError(
                "target_risk",
                f"requires {lacks}",
                type(self.model).__name__,
                "Pass certify=, or RobustLogisticRegression with a radius that covers the true distribution.",
            )
        return found

    def _query(self, size: int) -> NDArray[np.intp]:
        """Select rows with the strategy, through any of the three interfaces."""
        open_rows = self.open_rows
        if hasattr(self.strategy, "query"):
            y = self._marked(getattr(self.strategy, "missing_label", np.nan))
            own = isinstance(self.strategy, QueryStrategy)
            keywords = {"clf": self.clf} if own or "clf" in inspect.signature(self.strategy.query).parameters else {}
            if own and self.model is not None:
                keywords = {"clf": self.model, "fit_clf": False}
            return np.asarray(self.strategy.query(X=self.X, y=y, candidates=open_rows, batch_size=size, **keywords))
        if self.model is None:
            raise ParameterError(
                "strategy",
                "must not be a function while there are too few labels to fit a classifier",
                self.n_labels,
                "Pass labels of two classes in y.",
            )
        return open_rows[np.atleast_1d(self.strategy(self.model, self.X[open_rows]))[:size]]
