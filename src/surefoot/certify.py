"""Certificates for any classifier: the worst expected loss of a fixed classifier over a decision set.

The adversary's problem sees a classifier only through its losses ℓ_jk at row j if its label were k, so a forest, a
network or a rule of thumb gets the same certificate as our own models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from surefoot._errors import warn_caller
from surefoot._types import FloatArray
from surefoot._validation import check_finite_array, check_positive_scalar
from surefoot.blocks.newton import Newton
from surefoot.blocks.placement import FINEST_IN_BLOCKS, check_problem
from surefoot.calibration import Calibrated, RadiusEstimate, resolve_radius
from surefoot.certificates.certificate import Certificate
from surefoot.costs import FeatureMetric
from surefoot.exact.judge import Member
from surefoot.exact.problem import Game, HeldProblem, RobustProblem
from surefoot.losses import LOG_LOSS, ZERO_ONE, loss_matrix_from_proba
from surefoot.priors import LabelPrior
from surefoot.unlabeled import Unlabeled, unwrap

# The certified gap to reach where rows are in memory, unless another one is asked for.
_TOL = 1e-6


def certify(  # noqa: PLR0913 - one keyword per part of the problem
    classifier: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    X_unlabeled: ArrayLike | Unlabeled | None = None,
    radius: float | str | Calibrated,
    label_prior: LabelPrior | ArrayLike | str | None = "clopper-pearson",
    loss: str | ArrayLike = LOG_LOSS,
    label_cost: ArrayLike = 1.0,
    metric: FeatureMetric | str | Callable[..., float] = "euclidean",
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    losses: ArrayLike | None = None,
    clip: float = 1e-12,
    tol: float | None = None,
    n_jobs: int | None = None,
    solver: Newton | None = None,
) -> Certificate:
    """Worst expected loss of a fitted classifier over a decision set, from above and from below.

    max_μ E_μ ℓ(x, y) over all μ with the feature marginal of all rows given, label probabilities in the intervals of
    label_prior, and W_c(μ, labeled rows) ≤ radius.

    Parameters
    ----------
    classifier : fitted classifier, or None with `losses`
        With `predict_proba` for the log loss, with `predict` for the other losses. It sees the rows as they are passed.
    X : array of shape (n, d)
        Labeled rows. They need not be those that the classifier was trained on, nor i.i.d.
    y : array of shape (n,)
        Their labels.
    X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
        Unlabeled rows; also a memory map, `ParquetRows`, or a Dask array or dataframe. Beyond 2^24 distances rows are
        read in blocks, wherever they lie.
    radius : float, "calibrated" or Calibrated
        Radius of the set; "calibrated" estimates it from the labels, see `calibrate_radius`.
    label_prior : "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="clopper-pearson"
        Label probabilities: 95 % intervals from y, exact, intervals, or unconstrained. Classes in sorted order.
    loss : "log_loss", "zero_one" or array of shape (K, K), default="log_loss"
        "log_loss": −log(max(p, clip)). "zero_one": 1 where `predict` is wrong. A matrix: entry [k, c] is the loss of
        predicting class c where the truth is k.
    label_cost : float or array of shape (K, K), default=1.0
        Cost κ of a change of label, or a matrix: [k, c] is the cost of turning label c of a labeled row into k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", an object of `surefoot.costs`, or a function.
    classes : array of shape (K,) or None, default=None
        All classes; by default those of the classifier. A class it does not know is never predicted.
    sample_weight : array of shape (n,) or None, default=None
        How many times each labeled row counts; by default once.
    losses : array of shape (N, K) or None, default=None
        Your own losses in place of `loss`, rows of X first: the loss at row j if its label were k.
    clip : float, default=1e-12
        Smallest probability in the log loss, so that no loss exceeds −log(clip).
    tol : float or None, default=None
        Certified gap to reach, in units of the loss: absolute, so scale it where your losses are far from 1. A
        ConvergenceWarning says so when it is not reached. None: 1e-6, and 1e-5 over blocks of rows. Rows that lie in
        memory stay there for a smaller one.
    n_jobs : int or None, default=None
        Threads over groups of rows.
    solver : Newton or None
        Where sums over blocks of rows run (a GPU, say), and how much memory they may keep. None: in memory up to 2^24
        distances, beyond in blocks.

    Returns
    -------
    Certificate
        `risk` and `lower` bound the worst expected loss of this classifier; `worst_case` is the distribution found.
        `on_fresh_rows` re-evaluates it on rows that took no part.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> X, y, U = [[0.0], [1.0]], [0, 1], [[0.1], [0.9]]
    >>> knn = KNeighborsClassifier(1).fit(X, y)
    >>> c = certify(knn, X, y, X_unlabeled=U, radius=0.2, label_prior=[0.5, 0.5], loss="zero_one")
    >>> round(c.risk, 6)
    0.1875
    """
    asked = resolve_radius(radius)
    problem = check_problem(
        X,
        y,
        X_unlabeled=X_unlabeled,
        sample_weight=sample_weight,
        classes=known_classes(classifier, y, classes),
        metric=metric,
        label_prior=label_prior,
        label_cost=label_cost,
        solver=solver,
        n_jobs=n_jobs,
        tol=tol,
        memory_only=losses is not None,
    )
    judged = ClassifierLoss.of(classifier, problem.data.classes, loss, clip, own=losses is not None)
    game = judged.game(problem, X, X_unlabeled, losses)
    members, estimate = problem.members(asked)
    return certify_over(game, judged, members, tol, estimate)


def certify_over(
    game: Game,
    judged: ClassifierLoss,
    members: list[Member],
    tol: float | None,
    estimate: RadiusEstimate | None = None,
) -> Certificate:
    """The certificate of a fixed classifier over one set, or over a union of them; says so where its gap is wide."""
    finest = _TOL if isinstance(game.problem, HeldProblem) else FINEST_IN_BLOCKS
    tol = finest if tol is None else check_positive_scalar(tol, "tol")
    certificate = game.certificate(
        game.worst_over(members, tol=tol),
        judged.name,
        tol=tol,
        estimate=estimate,
        losses_at=judged.losses,
        largest_loss=judged.largest,
    )
    if certificate.gap > tol:
        warn_caller(
            f"the certified gap is {certificate.gap:.2e}, above tol={tol:.2e}; both bounds hold all the same. Raise "
            "tol, or the radius where it is close to the minimal one.",
            ConvergenceWarning,
        )
    return certificate


@dataclass(frozen=True, eq=False)
class ClassifierLosses:
    """Losses (M, K) of a classifier at rows: `matrix` (K, K) prices its predictions, None stands for the log loss."""

    classifier: Any
    classes: NDArray[Any]
    matrix: FloatArray | None
    clip: float

    def __call__(self, rows: Any) -> FloatArray:
        if self.matrix is None:
            return loss_matrix_from_proba(self._proba(rows), LOG_LOSS, self.clip)
        predicted = np.asarray(self.classifier.predict(rows)).ravel()
        unknown = np.setdiff1d(predicted, self.classes)
        if len(unknown):
            raise ValueError(
                f"classifier must predict one of the classes {self.classes.tolist()}; got {unknown.tolist()}. Pass "
                "classes= with all of them."
            )
        return np.ascontiguousarray(self.matrix[:, np.searchsorted(self.classes, predicted)].T)

    def _proba(self, rows: Any) -> FloatArray:
        """Probabilities (M, K) with a column per class; one the classifier does not know has probability 0."""
        proba = np.asarray(self.classifier.predict_proba(rows), dtype=np.float64)
        own = np.asarray(getattr(self.classifier, "classes_", self.classes))
        if proba.ndim != 2 or proba.shape[1] != len(own):
            raise ValueError(
                f"predict_proba must give one column per class, {len(own)}; got shape {proba.shape}. Pass a classifier "
                "with predict_proba of shape (N, K)."
            )
        full = np.zeros((len(proba), len(self.classes)))
        full[:, np.searchsorted(self.classes, own)] = proba
        return full


@dataclass(frozen=True, eq=False)
class ClassifierLoss:
    """Which loss a certificate speaks of: its name, the losses of the classifier, the largest there can be."""

    name: str
    losses: ClassifierLosses | None
    largest: float | None

    @classmethod
    def of(
        cls,
        classifier: Any,
        classes: NDArray[Any],
        loss: str | ArrayLike,
        clip: float,
        *,
        own: bool,
    ) -> ClassifierLoss:
        if own:
            name = loss if isinstance(loss, str) and loss not in (LOG_LOSS, ZERO_ONE) else "loss"
            return cls(name, None, None)
        K = len(classes)
        if isinstance(loss, str) and loss == LOG_LOSS:
            _needs(classifier, "predict_proba", 'loss="log_loss"')
            loss_matrix_from_proba(np.full((1, K), 1.0 / K), LOG_LOSS, clip)  # checks clip
            return cls(LOG_LOSS, ClassifierLosses(classifier, classes, None, clip), float(-np.log(clip)))
        if isinstance(loss, str) and loss != ZERO_ONE:
            raise ValueError(
                f"loss must be {LOG_LOSS!r}, {ZERO_ONE!r} or a matrix of shape (K, K); got {loss!r}. Pass one of "
                "these, or your own losses=."
            )
        _needs(classifier, "predict", "this loss")
        matrix = 1.0 - np.eye(K) if isinstance(loss, str) else check_finite_array(loss, "loss", ndim=2)
        if matrix.shape != (K, K):
            raise ValueError(
                f"loss must have shape (K, K) = ({K}, {K}), truth by prediction; got {matrix.shape}. Pass that matrix."
            )
        name = ZERO_ONE if isinstance(loss, str) else "cost"
        return cls(name, ClassifierLosses(classifier, classes, matrix, clip), float(matrix.max()))

    def game(self, problem: RobustProblem, X: Any, X_unlabeled: Any, losses: ArrayLike | None) -> Game:
        """The classifier against the adversary; in memory it sees X and X_unlabeled as they are passed."""
        if not isinstance(problem, HeldProblem):
            if self.losses is None:
                raise ValueError("losses= needs rows in memory; got rows that are read in blocks. Pass a classifier.")
            spread = float(np.ptp(self.losses(_rows_in_kind(X, problem.data.rows)))) or 1.0
            return problem.fixed(self.losses, spread)
        if self.losses is None:
            return problem.fixed(_check_losses(losses, problem))
        U = unwrap(X_unlabeled)[0]
        if problem.data.unlabeled is not None and not hasattr(U, "__array__") and not isinstance(U, list | tuple):
            U = problem.data.unlabeled  # rows that lay elsewhere
        parts = [X] if U is None else [X, U]
        return problem.fixed(np.vstack([self.losses(part) for part in parts if len(part)]))


def _rows_in_kind(X: Any, rows: FloatArray) -> Any:
    """Labeled rows as a classifier sees those of a source: numbers, without names."""
    return rows if not isinstance(X, np.ndarray) else X


def _needs(classifier: Any, method: str, what: str) -> None:
    if not callable(getattr(classifier, method, None)):
        raise ValueError(
            f"classifier must have {method} for {what}; got {type(classifier).__name__}. Pass a fitted classifier, "
            "another loss, or your own losses=."
        )


def known_classes(classifier: Any, y: ArrayLike, classes: ArrayLike | None) -> ArrayLike | None:
    """The classes asked for, with those of the classifier; without either those of y."""
    own = getattr(classifier, "classes_", None)
    if classes is None:
        if own is not None:
            _check_known(y, own)
        return own
    if own is not None and len(np.setdiff1d(own, np.asarray(classes))):
        missing = np.setdiff1d(own, np.asarray(classes)).tolist()
        raise ValueError(f"classes must contain every class of the classifier; got none of {missing}. Add them.")
    return classes


def _check_known(y: ArrayLike, known: ArrayLike) -> None:
    missing = np.setdiff1d(np.asarray(y), np.asarray(known)).tolist()
    if missing:
        raise ValueError(
            f"y must hold classes of the classifier; got a classifier of {np.asarray(known).tolist()} without "
            f"{missing}. Pass classes= with all of them: a class that it does not know is never predicted."
        )


def _check_losses(losses: ArrayLike | None, problem: RobustProblem) -> FloatArray:
    matrix = check_finite_array(losses, "losses", ndim=2)
    shape = (problem.n_rows, len(problem.data.classes))
    if matrix.shape != shape:
        raise ValueError(
            f"losses must have shape (N, K) = {shape}, the rows of X first, then those of X_unlabeled; got "
            f"{matrix.shape}. Pass one row per row, one column per class."
        )
    return matrix
