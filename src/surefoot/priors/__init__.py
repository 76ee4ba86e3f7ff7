"""Label priors: knowledge of the label probabilities p, as intervals p_lo ≤ p ≤ p_hi (paper, the set of priors)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta

from surefoot._errors import ParameterError
from surefoot._validation import (
    FloatArray,
    check_finite_array,
    check_positive_integer,
    check_positive_scalar,
    check_probability_vector,
    read_only_copy,
)
from surefoot.priors.clopper_pearson import (
    TOLERANCE,
    check_admits_distribution,
    check_class_count,
    check_class_weights,
    check_intervals,
    cross_fitted_shares,
    difference_estimate,
    hypergeometric_lower,
    hypergeometric_upper,
)

__all__ = ["AssistedPrior", "ClopperPearson", "HypergeometricPrior"]

AUTO = "auto"
_NO_COUNT = 1e-4
# Beyond this many labels the beta distribution has no quantiles in double precision; the interval is then a point.
_MOST_COUNTED = 1e15


class LabelPrior(ABC):
    """Give an interval for the probability of each class."""

    @abstractmethod
    def intervals(self, class_weights: ArrayLike) -> FloatArray:
        """Compute the interval of each label probability.

        Parameters
        ----------
        class_weights : array of shape (K,)
            Number of labeled rows of each class, or their total weight.

        Returns
        -------
        array of shape (K, 2)
            Lower and upper bound for each class, in sorted order.
        """

    def for_rows(
        self, X: FloatArray, codes: NDArray[np.intp], n_classes: int, X_unlabeled: FloatArray | None
    ) -> LabelPrior:
        """Adapt the prior to the rows.

        The default returns the prior itself. A prior that depends on the rows returns another prior.

        Parameters
        ----------
        X : array of shape (n, d)
            Labeled rows.
        codes : array of shape (n,)
            Class codes of the labeled rows: 0, 1, … in the sorted order of the classes.
        n_classes : int
            Number of classes K.
        X_unlabeled : array of shape (M, d) or None
            Unlabeled rows, or None if they are not in memory.

        Returns
        -------
        LabelPrior
            The prior adapted to the rows.
        """
        del X, codes, n_classes, X_unlabeled
        return self


@dataclass(frozen=True, eq=False)
class ExactPrior(LabelPrior):
    """Fix the label probabilities at known values: p_lo = p_hi = p (the strong prior).

    Parameters
    ----------
    probabilities : array of shape (K,)
        Probabilities in [0, 1] whose sum is 1 up to 1e-8.

    Examples
    --------
    >>> ExactPrior([0.25, 0.75]).intervals([10, 10])
    array([[0.25, 0.25],
           [0.75, 0.75]])
    """

    probabilities: FloatArray

    def __post_init__(self) -> None:
        probabilities = check_probability_vector(self.probabilities, "label_prior")
        object.__setattr__(self, "probabilities", read_only_copy(probabilities))

    def intervals(self, class_weights: ArrayLike) -> FloatArray:
        check_class_count(len(self.probabilities), len(check_class_weights(class_weights)))
        return np.column_stack([self.probabilities, self.probabilities])

    def __repr__(self) -> str:
        return f"ExactPrior({np.array2string(self.probabilities, precision=6, separator=', ', threshold=10)})"


@dataclass(frozen=True, eq=False)
class IntervalPrior(LabelPrior):
    """Restrict the label probabilities to given intervals.

    Parameters
    ----------
    bounds : array of shape (K, 2)
        Lower and upper bound for each class, in [0, 1]. At least one distribution must satisfy them.

    Examples
    --------
    >>> IntervalPrior([[0.1, 0.5], [0.5, 0.9]]).intervals([10, 10])
    array([[0.1, 0.5],
           [0.5, 0.9]])
    """

    bounds: FloatArray

    def __post_init__(self) -> None:
        bounds = check_intervals(self.bounds)
        check_admits_distribution(bounds)
        object.__setattr__(self, "bounds", read_only_copy(bounds))

    def intervals(self, class_weights: ArrayLike) -> FloatArray:
        check_class_count(len(self.bounds), len(check_class_weights(class_weights)))
        return self.bounds.copy()

    def __repr__(self) -> str:
        rows = np.array2string(self.bounds, precision=6, separator=", ", threshold=20).replace("\n", "")
        return f"IntervalPrior({rows})"


@dataclass(frozen=True)
class ClopperPearson(LabelPrior):
    """Compute two-sided Clopper–Pearson intervals for each class from the labels (the weak prior).

    With m of n labels in a class and confidence level 1 − a, the interval is [B(a/2; m, n−m+1), B(1−a/2; m+1, n−m)],
    where B is the quantile of the beta distribution. Each interval holds at its confidence level. There is no
    correction for the number of classes. Weights may make m and n fractional; the level is then nominal.

    Parameters
    ----------
    level : float, default=0.95
        Confidence level in (0, 1).

    Examples
    --------
    >>> ClopperPearson().intervals([5, 15]).round(3)
    array([[0.087, 0.491],
           [0.509, 0.913]])
    """

    level: float = 0.95

    def __post_init__(self) -> None:
        if check_positive_scalar(self.level, "level") >= 1:
            raise ParameterError("level", "must be a number below 1", repr(self.level), "Pass for example 0.95.")

    def intervals(self, class_weights: ArrayLike) -> FloatArray:
        m = check_class_weights(class_weights)
        m = m * min(1.0, _MOST_COUNTED / max(float(m.sum()), 1.0))
        n = float(m.sum())
        if n <= 0:
            raise ParameterError(
                "class_weights",
                "must be positive for some class: Clopper-Pearson intervals need labels",
                m,
                "Pass rows of positive weight.",
            )
        tail = (1.0 - self.level) / 2
        rest = np.maximum(n - m, 0.0)
        lo, hi = np.zeros_like(m), np.ones_like(m)
        # A bound is about (a/2)^(1/m) away from its end. Below _NO_COUNT this is 0 in double precision.
        seen, missed = m > _NO_COUNT, rest > _NO_COUNT
        lo[seen] = beta.ppf(tail, m[seen], rest[seen] + 1)
        hi[missed] = beta.isf(tail, m[missed] + 1, rest[missed])
        return np.column_stack([lo, hi])


@dataclass(frozen=True)
class HypergeometricPrior(LabelPrior):
    """Compute exact two-sided intervals for the class shares among N rows, n of which are labeled.

    The labeled rows must be a uniform random sample, without replacement, from these N rows. These are the
    hypergeometric counterparts of Clopper–Pearson intervals. They get shorter as the labeled fraction of the rows
    grows. Each interval holds at its confidence level.

    Parameters
    ----------
    n_rows : int or None, default=None
        The number N of rows. None: the number of labeled and unlabeled rows passed.
    level : float, default=0.95
        Confidence level in (0, 1).

    Examples
    --------
    >>> HypergeometricPrior(n_rows=40).intervals([5, 15]).round(3)
    array([[0.15 , 0.425],
           [0.575, 0.85 ]])
    """

    n_rows: int | None = None
    level: float = 0.95

    def __post_init__(self) -> None:
        ClopperPearson(self.level)  # checks the level
        if self.n_rows is not None:
            check_positive_integer(self.n_rows, "n_rows")

    def for_rows(
        self, X: FloatArray, codes: NDArray[np.intp], n_classes: int, X_unlabeled: FloatArray | None
    ) -> LabelPrior:
        del codes, n_classes
        if self.n_rows is not None:
            return self
        if X_unlabeled is None:
            raise ParameterError(
                "X_unlabeled",
                "must contain rows in memory, of the population of the labels, for HypergeometricPrior() to count",
                "none",
                "Pass $X_unlabeled, HypergeometricPrior(n_rows=...), or $label_prior='clopper-pearson'.",
            )
        return HypergeometricPrior(len(X) + len(X_unlabeled), self.level)

    def intervals(self, class_weights: ArrayLike) -> FloatArray:
        m = check_class_weights(class_weights)
        if self.n_rows is None:
            raise ParameterError(
                "n_rows",
                "must be given if HypergeometricPrior does not see the rows",
                "None",
                "Pass HypergeometricPrior(n_rows=...).",
            )
        counts = np.rint(m).astype(int)
        n = int(counts.sum())
        if np.abs(m - counts).max() > TOLERANCE or not 0 < n <= self.n_rows:
            raise ParameterError(
                "class_weights",
                f"must be whole numbers of labeled rows, 1 to {self.n_rows} in all, for HypergeometricPrior",
                m,
                "Pass rows without sample weights, and n_rows equal to the size of the pool.",
            )
        each, N = (1.0 + self.level) / 2, self.n_rows
        ends = [[hypergeometric_lower(x, n, N, each), hypergeometric_upper(x, n, N, each)] for x in counts.tolist()]
        return np.array(ends) / N


@dataclass(frozen=True)
class AssistedPrior(LabelPrior):
    """Compute intervals for the label shares that use the unlabeled rows, by a cross-fitted difference estimate.

    With p_k(x) from a logistic regression that did not see the row, the share of class k is estimated by

        mean over labels of (1[y = k] − b p_k(x)) + b · mean over all rows of p_k(x),

    where b in [0, 1] is the least-squares slope. This estimate varies less than the plain share by a factor g ≥ 1, so
    the n labels count as about g·n labels in a Clopper–Pearson interval. Only a fraction (n − 10)/n of the gain is
    used, and the labels count at most four times. The labels must be i.i.d. The coverage of the interval was measured
    (docs/bounds.md), not proved.

    Parameters
    ----------
    level : float, default=0.95
        Confidence level in (0, 1).
    n_folds : int, default=10
        Number of folds of the labeled rows. Each fold is held out of one regression.
    random_state : int, default=0
        Seed of the folds. It is fixed by default so that the same data give the same intervals.

    Examples
    --------
    >>> X = np.linspace(0.0, 1.0, 40)[:, None]
    >>> codes = np.repeat([0, 1], 20)
    >>> AssistedPrior().for_rows(X, codes, 2, np.linspace(0.0, 1.0, 200)[:, None]).intervals([20, 20]).round(2)
    array([[0.37, 0.63],
           [0.37, 0.63]])
    """

    level: float = 0.95
    n_folds: int = 10
    random_state: int = 0

    def __post_init__(self) -> None:
        ClopperPearson(self.level)  # checks the level
        check_positive_integer(self.n_folds, "n_folds")

    def for_rows(
        self, X: FloatArray, codes: NDArray[np.intp], n_classes: int, X_unlabeled: FloatArray | None
    ) -> LabelPrior:
        if X_unlabeled is None or not len(X_unlabeled):
            raise ParameterError(
                "X_unlabeled",
                "must contain rows in memory, of the population of the labels, for label_prior='assisted'",
                "none",
                "Pass $X_unlabeled, or $label_prior='clopper-pearson'.",
            )
        at_labels, everywhere = cross_fitted_shares(X, codes, n_classes, X_unlabeled, self.n_folds, self.random_state)
        found = []
        for k in range(n_classes):
            share, counted = difference_estimate((codes == k).astype(np.float64), at_labels[:, k], everywhere[k])
            found.append(ClopperPearson(self.level).intervals([share * counted, (1.0 - share) * counted])[0])
        return IntervalPrior(np.array(found))

    def intervals(self, class_weights: ArrayLike) -> FloatArray:
        raise ParameterError(
            "label_prior",
            f"{self!r} needs the rows, which are passed to for_rows(...)",
            f"their class weights {np.asarray(class_weights)}",
            "Pass it as $label_prior of a function that receives the rows.",
        )


@dataclass(frozen=True)
class NoPrior(LabelPrior):
    """Put no constraint on the label probabilities: [0, 1] for each class.

    Examples
    --------
    >>> NoPrior().intervals([5, 15])
    array([[0., 1.],
           [0., 1.]])
    """

    def intervals(self, class_weights: ArrayLike) -> FloatArray:
        return np.tile([0.0, 1.0], (len(check_class_weights(class_weights)), 1))


def resolve_prior(label_prior: LabelPrior | ArrayLike | str | None, *, other_population: bool = False) -> LabelPrior:
    """Return the label prior for an instance, None, a name or an array.

    Parameters
    ----------
    label_prior : LabelPrior, None, "auto", "clopper-pearson", array of shape (K,) or array of shape (K, 2)
        A prior, None for no constraint, a name, probabilities, or intervals. "auto" means "clopper-pearson", or None
        for another population, because the labels say nothing about its label probabilities.
    other_population : bool, default=False
        Whether the prior is for another population than that of the labels.

    Returns
    -------
    LabelPrior
        The label prior.

    Examples
    --------
    >>> resolve_prior("clopper-pearson")
    ClopperPearson(level=0.95)
    """
    if label_prior is None:
        return NoPrior()
    if isinstance(label_prior, LabelPrior):
        return label_prior
    choices = (
        "'auto', None, 'clopper-pearson', 'hypergeometric', 'assisted', probabilities of shape (K,), intervals of "
        "shape (K, 2) or a LabelPrior"
    )
    if isinstance(label_prior, type) and issubclass(label_prior, LabelPrior):
        name = label_prior.__name__
        raise ParameterError("label_prior", "must be an instance", f"the class {name}", f"Pass {name}(...).")
    if isinstance(label_prior, str):
        named: dict[str, LabelPrior] = {
            AUTO: NoPrior() if other_population else ClopperPearson(),
            "clopper-pearson": ClopperPearson(),
            "hypergeometric": HypergeometricPrior(),
            "assisted": AssistedPrior(),
        }
        if label_prior in named:
            return named[label_prior]
        raise ParameterError("label_prior", f"must be one of {choices}", repr(label_prior), "Pass one of these.")
    array = check_finite_array(label_prior, "label_prior")
    if array.ndim == 1:
        return ExactPrior(array)
    if array.ndim == 2:
        return IntervalPrior(array)
    raise ParameterError(
        "label_prior", f"must be one of {choices}", f"an array of shape {array.shape}", "Pass one of these."
    )
