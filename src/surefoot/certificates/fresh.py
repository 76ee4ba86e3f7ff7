"""Certificates over the distribution of fresh rows: the dual point of a fit plus its sampling error.

    E_P ℓ ≤ αε + Σ w β + Σ_k (λ̄_k p_hi_k − λ_k p_lo_k) + E_{P_X} Φ(x)    for every P in the set with feature marginal
    P_X

This holds for any dual point chosen without looking at the fresh rows. E_{P_X} Φ is estimated by its mean over the
fresh rows plus ε(N_u) (paper, the out-of-sample bound).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from surefoot._errors import ParameterError
from surefoot._printing import PrintsAsTable, bound_in_words
from surefoot._validation import (
    FloatArray,
    check_finite_array,
    check_more_rows,
    check_positive_scalar,
    check_unit_scalar,
)
from surefoot.costs.metrics import FeatureMetric, Precomputed
from surefoot.dual.bounds import dual_constant, largest_row_value, row_values
from surefoot.dual.models import DualPoint
from surefoot.problem.distances import row_chunks
from surefoot.problem.losses import LOG_LOSS, log_loss_matrix
from surefoot.problem.rows import fingerprints
from surefoot.problem.sets import DecisionSet

# The paper's ε(N_u): a one-sided bound on how far the mean over fresh rows falls below the expectation.

NORMAL: Literal["normal"] = "normal"
BERNSTEIN: Literal["bernstein"] = "bernstein"

# sup_x |P(S ≤ x) − Φ(x)| ≤ C E|X|³ / (σ³ √m) for means of m i.i.d. variables (Shevtsova, 2011)
BERRY_ESSEEN = 0.4748


def normal_term(values: FloatArray, level: float) -> float:
    """One-sided normal bound with the Berry–Esseen correction: z σ/√m with Φ(−z) + C ρ/(σ³ √m) = 1 − level.

    σ and ρ = E|φ − Eφ|³ are sample moments, so the level holds up to their error. The term is infinite if the
    correction alone exceeds 1 − level, because m rows are then too few for a guarantee at this level.

    Parameters
    ----------
    values : (m,) values of φ at fresh rows.
    """
    m = len(values)
    if m < 2:
        return np.inf
    centred = values - values.mean()
    sigma = float(np.sqrt(centred @ centred / (m - 1)))
    third = float(np.mean(np.abs(centred) ** 3))
    # ρ ≥ σ³ for every distribution (Lyapunov), so equal values do not make few rows sufficient
    skewness = third / sigma**3 if sigma > 0 else 1.0
    left = (1.0 - level) - BERRY_ESSEEN * skewness / np.sqrt(m)
    return float(norm.isf(left)) * sigma / np.sqrt(m) if left > 0 else np.inf


def bernstein_term(values: FloatArray, level: float, low: float, high: float) -> float:
    """Empirical Bernstein bound (Maurer and Pontil, 2009, theorem 4) for φ in [low, high] and any m ≥ 2.

    The term is √(2 V log(2/δ)/m) + 7 (high − low) log(2/δ) / (3 (m − 1)), with sample variance V and δ = 1 − level. It
    holds for every distribution on the interval, without moment assumptions.
    """
    m = len(values)
    if m < 2:
        return np.inf
    log = np.log(2.0 / (1.0 - level))
    variance = float(np.var(values, ddof=1))
    return float(np.sqrt(2.0 * variance * log / m) + 7.0 * (high - low) * log / (3.0 * (m - 1)))


class LossFunction(Protocol):
    """Losses (M, K) of a classifier at rows; picklable."""

    def __call__(self, rows: Any) -> FloatArray: ...


@dataclass(frozen=True, eq=False, repr=False)
class FreshCertificate(PrintsAsTable):
    """Hold an upper bound on the expected loss over the distribution of fresh rows.

    Suppose that the fresh rows are sampled independently from P_X and were not used in the fit. Suppose also that the
    true distribution P has feature marginal P_X, label probabilities in the intervals, and W_c(P, P̂_l) ≤ radius. Then
    E_P ℓ ≤ risk with probability at least `level` over the sample of fresh rows ("normal": up to the error of the
    sample moments).

    Attributes
    ----------
    risk : float
        The bound: mean + sampling_error, or the largest loss if that is smaller.
    likelihood : float
        The bound as a likelihood, exp(−risk).
    mean : float
        The dual value with the fresh rows in place of the rows of the fit.
    sampling_error : float
        The term ε(N_u), infinite if there are too few rows for the method.
    level : float
        Probability that the bound holds.
    method : {"normal", "bernstein"}
        How the sampling error was bounded.
    n_rows : int
        Number of fresh rows, N_u.
    reused_rows : int
        Number of fresh rows that equal rows of the fit. If there are any, the level is void.
    guarantee : bool
        Whether the level is valid: no row is reused, or `assume_fresh` was set.
    loss : str
        Name of the bounded loss.
    radius : float
        Radius of the decision set.
    """

    risk: float
    mean: float
    sampling_error: float
    level: float
    method: str
    n_rows: int
    reused_rows: int
    guarantee: bool
    loss: str
    radius: float

    @property
    def likelihood(self) -> float:
        """The bound as a likelihood, exp(−risk)."""
        return float(np.exp(-self.risk))

    @property
    def statement(self) -> str:
        """The bound in words, or the reason why there is none."""
        if not self.guarantee:
            return (
                f"no sampling guarantee: {self.reused_rows} of the {self.n_rows} rows coincide with rows of the fit, "
                "to which the bound was adapted"
            )
        if not np.isfinite(self.risk):
            other = ' or method="bernstein"' if self.method == NORMAL else ""
            return (
                f"no guarantee: {self.n_rows} rows are too few for this method at level {self.level:.4g}; pass "
                f"more rows, a lower level,{other}"
            ).rstrip(",")
        return f"with probability {self.level:.4g} over the fresh rows, {bound_in_words(self.loss, self.risk)}"

    def _rows(self) -> list[tuple[str, str]]:
        how = {
            NORMAL: "one-sided normal with the Berry-Esseen correction, sample moments",
            BERNSTEIN: "empirical Bernstein, bounded losses",
        }
        capped = self.risk < self.mean + self.sampling_error
        total = "the largest possible loss, below mean + sampling error" if capped else "= mean + sampling error"
        return [
            ("risk", f"{self.risk:.6g}  ({total})"),
            ("mean", f"{self.mean:.6g}  (over {self.n_rows} fresh rows)"),
            ("sampling error", f"{self.sampling_error:.6g}  ({how[self.method]})"),
            ("level", f"{self.level:.4g}"),
            ("radius", f"{self.radius:.6g}"),
            ("meaning", self.statement),
        ]


@dataclass(frozen=True, eq=False)
class SetBound:
    """A decision set without its rows, and one of its dual points. `floor` is the smallest Φ at the rows of the fit."""

    decision_set: DecisionSet
    point: DualPoint
    floor: float

    def values(self, distances: FloatArray, losses: FloatArray) -> FloatArray:
        """Return the (M,) dual values at the fresh rows, constant included."""
        parts = [
            row_values(self.decision_set, distances[part], losses[part], self.point)
            for part in row_chunks(*distances.shape)
        ]
        return self.constant + np.concatenate(parts)

    @property
    def constant(self) -> float:
        return dual_constant(self.decision_set, self.point)

    def range(self, largest_loss: float) -> tuple[float, float]:
        """Return bounds on the values. Values are clipped at the floor, which can only raise their mean."""
        high = self.constant + largest_row_value(self.decision_set, self.point, largest_loss)
        return min(self.constant + self.floor, high), high


@dataclass(frozen=True, eq=False)
class RowBound:
    """Everything needed to evaluate the upper bound of a certificate at rows that were not in the fit.

    anchors : (n, d) labeled rows in the order of the decision set; sets : one per decision set of a union, where the
    largest bound counts; losses_at : function that returns the losses of the classifier at rows, or None;
    largest_loss : None if losses are unbounded; used : fingerprints of the rows of the fit.
    """

    anchors: FloatArray
    metric: FeatureMetric
    sets: tuple[SetBound, ...]
    losses_at: LossFunction | None
    largest_loss: float | None
    used: NDArray[np.uint64]
    loss: str
    radius: float

    def on_fresh_rows(
        self,
        X_fresh: Any,
        *,
        level: float,
        method: str,
        losses: ArrayLike | None,
        largest_loss: float | None,
        assume_fresh: bool,
    ) -> FreshCertificate:
        """See `Certificate.on_fresh_rows`."""
        level = check_unit_scalar(level, "level")
        if not 0 < level < 1:
            raise ParameterError(
                "level", "must lie strictly between 0 and 1", repr(level), "Pass a value such as 0.95."
            )
        if largest_loss is not None:
            bound = replace(self, largest_loss=check_positive_scalar(largest_loss, "largest_loss"))
            return bound.on_fresh_rows(
                X_fresh, level=level, method=method, losses=losses, largest_loss=None, assume_fresh=assume_fresh
            )
        method = self._method(method)
        rows = check_more_rows(X_fresh, "X_fresh", self.anchors.shape[1])
        if len(rows) == 0:
            raise ParameterError(
                "X_fresh", "must have at least one row", "none", "Pass rows that took no part in the fit."
            )
        at_rows = self._losses(X_fresh, losses, len(rows))
        distances = self._distances(rows)
        mean, error = max(
            (self._over(one, distances, at_rows, level, method) for one in self.sets),
            key=sum,
        )
        risk = mean + error
        if self.largest_loss is not None and np.isfinite(risk):
            risk = min(risk, self.largest_loss)
        reused = int(np.isin(fingerprints(rows), self.used).sum())
        holds = assume_fresh or reused == 0
        return FreshCertificate(risk, mean, error, level, method, len(rows), reused, holds, self.loss, self.radius)

    def _over(
        self, one: SetBound, distances: FloatArray, losses: FloatArray, level: float, method: str
    ) -> tuple[float, float]:
        values = one.values(distances, losses)
        if method == NORMAL or self.largest_loss is None:
            return float(values.mean()), normal_term(values, level)
        low, high = one.range(self.largest_loss)
        values = np.maximum(values, low)
        return float(values.mean()), bernstein_term(values, level, low, high)

    def _method(self, method: str) -> str:
        if method not in ("auto", NORMAL, BERNSTEIN):
            raise ParameterError(
                "method", 'must be "auto", "normal" or "bernstein"', repr(method), "Pass one of these."
            )
        if method == BERNSTEIN and self.largest_loss is None:
            raise ParameterError(
                "method",
                'must not be "bernstein" if the losses have no known bound',
                '"bernstein"',
                'Pass "normal", a bound as largest_loss=, or a certificate of certify(...), which clips probabilities.',
            )
        if method != "auto":
            return method
        return NORMAL if self.largest_loss is None or self.loss == LOG_LOSS else BERNSTEIN

    def _losses(self, X_fresh: Any, losses: ArrayLike | None, M: int) -> FloatArray:
        K = self.sets[0].decision_set.n_classes
        if losses is None and self.losses_at is None:
            raise ParameterError(
                "losses",
                "must be given for fresh rows if the certificate was made from a matrix of losses",
                "None",
                f"Pass losses=, of shape ({M}, {K}).",
            )
        found = self.losses_at(X_fresh) if losses is None and self.losses_at is not None else losses
        matrix = check_finite_array(found, "losses", ndim=2)
        if matrix.shape != (M, K):
            raise ParameterError(
                "losses", f"must have shape (M, K) = ({M}, {K})", matrix.shape, "Pass one row per row."
            )
        if self.largest_loss is not None and matrix.max() > self.largest_loss:
            raise ParameterError(
                "losses",
                f"must not exceed largest_loss={self.largest_loss!r}",
                repr(float(matrix.max())),
                "Pass a larger largest_loss.",
            )
        return matrix

    def _distances(self, rows: FloatArray) -> FloatArray:
        if isinstance(self.metric, Precomputed):
            raise ParameterError(
                "metric",
                "must be a function of two rows to measure fresh rows",
                "a certificate made with precomputed distances",
                "Certify with a metric, or with a function of two rows.",
            )
        return self.metric.distances(rows, self.anchors)


@dataclass(frozen=True, eq=False)
class LinearLosses:
    """Log loss of a linear classifier: coef (1, d) or (K, d), intercept (1,) or (K,)."""

    coef: FloatArray
    intercept: FloatArray

    def __call__(self, rows: Any) -> FloatArray:
        return log_loss_matrix(np.asarray(rows, dtype=np.float64) @ self.coef.T + self.intercept)
