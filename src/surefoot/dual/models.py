"""Models: a linear model in its coordinates, a fixed classifier, or no model (plain transport).

A search holds a model without rows. `over` adds the rows of a block. Its arrays may be NumPy arrays or tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, svd

from surefoot._validation import FloatArray
from surefoot.kernels.arrays import arrays_of
from surefoot.problem.losses import CostGame

# Label probabilities of a smoothed response are at least this large, so that their logarithm is finite.
_LEAST_LABEL = 1e-150

# Points of the dual problem.


@dataclass(frozen=True)
class DualPoint:
    """A point (θ, α, β, λ): theta (K−1, p) relative to class 0, (0, 0) for fixed losses; beta (n,); lam (K,) net."""

    theta: FloatArray
    alpha: float
    lam: FloatArray
    beta: FloatArray


class Response(NamedTuple):
    """A best response as `soft_rows` expects it: share, and labels (V, K) and values (V,) of the game of a row."""

    share: float
    labels: FloatArray
    values: FloatArray


NO_RESPONSE = Response(0.0, np.empty((0, 0)), np.empty(0))


class ModelRows(Protocol):
    """The rows of a block as a model sees them: weights (B,), design matrix (B, p), losses of a classifier (B, K)."""

    @property
    def weights(self) -> Any: ...
    @property
    def design(self) -> Any: ...
    @property
    def losses(self) -> Any: ...


class Model(Protocol):
    """Losses at rows as a function of θ (K−1, p), or of θ (0, 0) if nothing is learned.

    responds : True if the losses belong to the best classifier at each dual point (see `dual.bounds.best_response`).
    """

    learns: ClassVar[bool]
    responds: ClassVar[bool]

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def scale(self) -> float:
        """The size of the losses, the unit of τ and α."""

    def design(self, rows: slice) -> Any:
        """Return the design matrix (B, p) of some rows."""

    def losses(self, theta: FloatArray, rows: slice) -> Any: ...
    def response(self, tau: float) -> Response:
        """Return the best response to the prices of a dual point, in the form that the kernels use."""

    def penalty_value(self, theta: FloatArray) -> float: ...
    def penalty_gradient(self, theta: FloatArray) -> FloatArray: ...
    def penalty_hessian(self) -> FloatArray:
        """Return the Hessian (K−1, K−1, p, p) of the penalty."""

    def restricted(self, rows: NDArray[np.intp]) -> Model: ...
    def over(self, rows: ModelRows) -> Model: ...


@dataclass(frozen=True)
class LinearModel:
    """Linear scores. X : (N, p) with an intercept column, penalty : (p,) the diagonal of R, n_classes : K ≥ 2.

    within : (N,) factors of the losses, 0 outside a group of rows, for rows in memory; None if all factors are 1.
    """

    X: FloatArray
    penalty: FloatArray
    n_classes: int
    within: FloatArray | None = None

    learns: ClassVar[bool] = True
    responds: ClassVar[bool] = False
    scale: ClassVar[float] = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_classes - 1, self.X.shape[1]

    def scores(self, theta: FloatArray, rows: slice) -> Any:
        """Return scores (B, K) of a chunk of rows. Class 0 is the reference with score 0."""
        xp = arrays_of(self.X)
        free = self.X[rows] @ xp.send(theta).T
        return xp.hstack(xp.zeros((len(free), 1)), free)

    def losses(self, theta: FloatArray, rows: slice) -> Any:
        losses = arrays_of(self.X).log_loss(self.scores(theta, rows))
        return losses if self.within is None else self.within[rows, None] * losses

    def response(self, tau: float) -> Response:
        return NO_RESPONSE

    def penalty_value(self, theta: FloatArray) -> float:
        return float(0.5 * np.sum(self.penalty_gradient(theta) * theta))

    def penalty_gradient(self, theta: FloatArray) -> FloatArray:
        return (theta - self._centre(theta)) * self.penalty

    def penalty_hessian(self) -> FloatArray:
        """Return G ⊗ R (K−1, K−1, p, p). The penalty is ½ Σ_t penalty_t θ_tᵀ G θ_t."""
        free = self.n_classes - 1
        coupling = np.eye(free) - (1.0 / self.n_classes if free > 1 else 0.0)
        return coupling[:, :, None, None] * np.diag(self.penalty)

    def design(self, rows: slice) -> Any:
        return self.X[rows]

    def restricted(self, rows: NDArray[np.intp]) -> LinearModel:
        within = None if self.within is None else self.within[rows]
        return replace(self, X=np.ascontiguousarray(self.X[rows]), within=within)

    def over(self, rows: ModelRows) -> LinearModel:
        return replace(self, X=rows.design)

    def _centre(self, theta: FloatArray) -> FloatArray:
        # With K ≥ 3 classes, the penalty applies to coefficients in the form that sums to zero over classes.
        return theta.sum(axis=0) / self.n_classes if len(theta) > 1 else np.zeros_like(theta[0])


@dataclass(eq=False)
class KeptLosses:
    """Losses (N, K) and probabilities exp(−ℓ) of a linear model at the last requested θ (K−1, p)."""

    theta: FloatArray | None = None
    last: tuple[FloatArray, FloatArray] = (np.empty((0, 0)), np.empty((0, 0)))

    def losses_at(self, model: Model, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return losses without the factors of a group of rows, because sets with other factors share the losses."""
        if isinstance(model, LinearModel) and model.within is not None:
            model = replace(model, within=None)
        if self.theta is None or not np.array_equal(self.theta, theta):
            losses = model.losses(theta, slice(None))
            self.theta, self.last = theta, (losses, np.exp(-losses))
        return self.last


class _NothingLearned:
    """A model without θ."""

    learns: ClassVar[bool] = False
    responds: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, int]:
        return 0, 0

    def response(self, tau: float) -> Response:
        return NO_RESPONSE

    def penalty_value(self, theta: FloatArray) -> float:
        return 0.0

    def penalty_gradient(self, theta: FloatArray) -> FloatArray:
        return np.zeros((0, 0))

    def penalty_hessian(self) -> FloatArray:
        return np.zeros((0, 0, 0, 0))

    def design(self, rows: slice) -> FloatArray:
        return np.empty((rows.stop - rows.start, 0))


@dataclass(frozen=True)
class FixedLosses(_NothingLearned):
    """A classifier that is not optimised: its losses (N, K), and the size of the losses if already known."""

    matrix: FloatArray
    size: float | None = None

    @property
    def scale(self) -> float:
        return max(float(np.ptp(self.matrix)), 1e-12) if self.size is None else self.size

    def losses(self, theta: FloatArray, rows: slice) -> Any:
        return self.matrix[rows]

    def restricted(self, rows: NDArray[np.intp]) -> FixedLosses:
        return replace(self, matrix=self.matrix[rows])

    def over(self, rows: ModelRows) -> FixedLosses:
        return replace(self, matrix=rows.losses)


@dataclass(frozen=True)
class FrozenModel(_NothingLearned):
    """A linear model with fixed coefficients."""

    linear: LinearModel
    theta: FloatArray

    scale: ClassVar[float] = 1.0

    def losses(self, theta: FloatArray, rows: slice) -> Any:
        return self.linear.losses(self.theta, rows)

    def restricted(self, rows: NDArray[np.intp]) -> FrozenModel:
        return replace(self, linear=self.linear.restricted(rows))

    def over(self, rows: ModelRows) -> FrozenModel:
        return replace(self, linear=self.linear.over(rows))


@dataclass(frozen=True)
class AnyClassifier(_NothingLearned):
    """All classifiers: at each dual point, the best response to the adversary's prices a (B, K).

    game : the game of a matrix of costs; None for the log loss.
    """

    n_classes: int
    game: CostGame | None = None

    responds: ClassVar[bool] = True

    @classmethod
    def with_costs(cls, n_classes: int, costs: FloatArray | None) -> AnyClassifier:
        return cls(n_classes, None if costs is None else CostGame.from_costs(costs))

    @property
    def scale(self) -> float:
        return 1.0 if self.game is None else float(np.ptp(self.game.costs)) or 1.0

    def losses(self, theta: FloatArray, rows: slice) -> FloatArray:
        """Return zeros: the kernels add the best response."""
        return np.zeros((rows.stop - rows.start, self.n_classes))

    def response(self, tau: float) -> Response:
        if self.game is None:
            return Response(1.0 / (1.0 + tau), np.empty((0, self.n_classes)), np.empty(0))
        return Response(1.0, self.game.labels, self.game.values)

    def rule(self, prices: Any) -> Any:
        """Return the predicted probabilities (B, K) that minimise the largest loss plus price."""
        xp = arrays_of(prices)
        return xp.softmax(prices) if self.game is None else xp.send(self.game.rule(xp.fetch(prices)))

    def response_losses(self, prices: Any, tau: float) -> Any:
        """Return losses (B, K) of the rule. At τ > 0, their softmax over labels is the smoothed response."""
        xp = arrays_of(prices)
        if self.game is None:
            return xp.log_loss(prices / (1.0 + tau))
        if tau == 0:
            return self.rule(prices) @ xp.send(self.game.costs.T)
        labels = xp.send(self.game.labels)
        value = prices @ labels.T + xp.send(self.game.values)
        top = xp.largest(value, 1)[:, None]
        share = xp.exp((value - top) / tau)
        total = share.sum(axis=1, keepdims=True)
        return top + tau * (xp.log(total) + xp.log(((share / total) @ labels).clip(_LEAST_LABEL))) - prices

    def least_loss(self, q: Any) -> Any:
        """Return the smallest expected loss (B,) of any prediction under label probabilities q (B, K)."""
        xp = arrays_of(q)
        if self.game is None:
            return xp.entr(q.clip(0.0)).sum(axis=1)
        return -xp.largest(-(q @ xp.send(self.game.costs)), 1)

    def restricted(self, rows: NDArray[np.intp]) -> AnyClassifier:
        return self

    def over(self, rows: ModelRows) -> AnyClassifier:
        return self


@dataclass(frozen=True)
class NoLosses(_NothingLearned):
    """Plain transport: one label, and zero loss at every row. `weights` (N,) are the row weights."""

    weights: FloatArray

    scale: ClassVar[float] = 1.0

    def losses(self, theta: FloatArray, rows: slice) -> Any:
        return arrays_of(self.weights).zeros((len(self.weights[rows]), 1))

    def restricted(self, rows: NDArray[np.intp]) -> NoLosses:
        return NoLosses(self.weights[rows])

    def over(self, rows: ModelRows) -> NoLosses:
        return NoLosses(rows.weights)


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Features minus their mean, divided by their scale, in a basis, with a constant column.

    mean, scale : (d,), infinite for constant features; basis : (d, r), or None if the rows span all features.
    """

    mean: FloatArray
    scale: FloatArray
    basis: FloatArray | None
    fit_intercept: bool

    @classmethod
    def as_given(cls, d: int, fit_intercept: bool) -> Coordinates:
        """Return coordinates that leave features unchanged, as in the paper's Algorithm 1."""
        return cls(np.zeros(d), np.ones(d), None, fit_intercept)

    def design(self, rows: Any) -> Any:
        """Return the design matrix (B, p) of rows (B, d)."""
        xp = arrays_of(rows)
        unit = (rows - xp.send(self.mean)) / xp.send(self.scale)
        if self.basis is not None:
            unit = unit @ xp.send(self.basis)
        return xp.hstack(unit, xp.zeros((len(rows), 1)) + 1.0) if self.fit_intercept else unit

    def coefficients(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return coef_ and intercept_ for the original features. With K ≥ 3 classes, they sum to zero over classes."""
        slopes = theta[:, :-1] if self.fit_intercept else theta
        if self.basis is not None:
            slopes = slopes @ self.basis.T
        coef = slopes / self.scale
        intercept = theta[:, -1] if self.fit_intercept else np.zeros(len(theta))
        intercept = intercept - coef @ self.mean
        if len(theta) > 1:
            coef, intercept = np.vstack([np.zeros(coef.shape[1]), coef]), np.append(0.0, intercept)
            coef, intercept = coef - coef.mean(axis=0), intercept - intercept.mean()
        return coef, intercept

    def penalty(self, l2: float, *, standardized: bool = False) -> FloatArray:
        """Return the diagonal (p,) of the penalty ½ l2 ‖θ‖², for original or standardised features.

        A basis is valid for one penalty only. It is orthonormal for standardised features, or after division by their
        scale for original features.
        """
        p = len(self.scale) if self.basis is None else self.basis.shape[1]
        penalty = np.zeros(p + int(self.fit_intercept))
        if standardized:
            penalty[:p] = l2
        elif self.basis is None:
            penalty[:p] = l2 / self.scale**2
        else:
            penalty[:p] = l2 * ((self.basis / self.scale[:, None]) ** 2).sum(axis=0)
        return penalty

    def model(self, rows: FloatArray, n_classes: int, l2: float, *, standardized: bool = False) -> LinearModel:
        """Return a linear model over rows (N, d)."""
        return LinearModel(self.design(rows), self.penalty(l2, standardized=standardized), n_classes)


@dataclass
class RowTotals:
    """Sums over rows, and largest values. Both can be combined over blocks."""

    sums: tuple[FloatArray, ...]
    largest: tuple[float, ...] = ()

    def __iadd__(self, other: RowTotals) -> RowTotals:
        for mine, theirs in zip(self.sums, other.sums, strict=True):
            np.add(mine, theirs, out=mine)
        self.largest = tuple(max(pair) for pair in zip(self.largest, other.largest, strict=True))
        return self


class FeatureSums(Protocol):
    """The interface of `FeatureBlock`: sums over weighted rows that define coordinates."""

    def sizes(self) -> RowTotals: ...
    def means(self, size: FloatArray) -> RowTotals: ...
    def second_moments(self, size: FloatArray, mean: FloatArray) -> RowTotals: ...


@dataclass(frozen=True, eq=False)
class FeatureBlock:
    """Rows (B, d) with weights, before the coordinates are known."""

    rows: Any
    weights: Any

    def sizes(self) -> RowTotals:
        """Return Σ m, and the largest |x| of each feature."""
        xp = arrays_of(self.rows)
        largest = xp.fetch(xp.largest(abs(self.rows), 0)) if len(self.rows) else np.zeros(self.rows.shape[1])
        return RowTotals((np.array([float(self.weights.sum())]),), tuple(float(value) for value in largest))

    def means(self, size: FloatArray) -> RowTotals:
        xp = arrays_of(self.rows)
        return RowTotals((xp.fetch(self.weights @ (self.rows / xp.send(size))),))

    def second_moments(self, size: FloatArray, mean: FloatArray) -> RowTotals:
        xp = arrays_of(self.rows)
        unit = self.rows / xp.send(size) - xp.send(mean)
        return RowTotals((xp.fetch(xp.tall_product(unit, self.weights[:, None] * unit)),))


def standard_coordinates(features: FeatureSums, l2: float, fit_intercept: bool) -> Coordinates:
    """Return coordinates with mean 0 and deviation 1 per feature under the row weights. Constant features become 0.

    Features may be collinear (more features than rows, one-hot codes). If no penalty then chooses among equivalent
    coefficients, the coordinates of the span of the rows are used. The coefficients have the least norm after
    standardisation, and do not depend on rounding. With a penalty l2 on the original features, the optimum also lies in
    the span. The span is then used for rows in memory with fewer rows than features, so that no step costs d² or more.
    """
    size = np.array(features.sizes().largest)
    size[size == 0] = 1.0
    mean = features.means(size).sums[0] if fit_intercept else np.zeros(len(size))
    if isinstance(features, FeatureBlock) and np.count_nonzero(features.weights) <= len(size):
        deviation = np.sqrt(features.weights @ (features.rows / size - mean) ** 2)
        centred = _centred(size, mean, deviation, fit_intercept)
        return replace(centred, basis=_spanned_by_few(features, centred, as_given=l2 > 0))
    moments = features.second_moments(size, mean).sums[0]
    deviation = np.sqrt(moments.diagonal())
    centred = _centred(size, mean, deviation, fit_intercept)
    if l2 > 0:
        return centred
    varying = np.isfinite(centred.scale)
    unit = np.where(varying, deviation, 1.0)
    return replace(centred, basis=_spanned(moments / np.outer(unit, unit), ~varying))


def _centred(size: FloatArray, mean: FloatArray, deviation: FloatArray, fit_intercept: bool) -> Coordinates:
    """Return coordinates without a basis, from the mean and deviation (d,) of features divided by their size."""
    scale = np.where(deviation <= 1e-12, np.inf, deviation * size)
    return Coordinates(mean * size, scale, None, fit_intercept)


def _spanned_by_few(features: FeatureBlock, centred: Coordinates, *, as_given: bool) -> FloatArray | None:
    """Compute a basis of the span of fewer rows than features from the rows themselves, which keeps more digits.

    as_given : True if the basis is orthonormal for the original features, up to one factor; False if it is orthonormal
    for the standardised features.
    """
    kept, varying = features.weights > 0, np.isfinite(centred.scale)
    scale = centred.scale.copy()
    if as_given:
        scale[varying] = np.sqrt((scale[varying] ** 2).mean()) if varying.any() else 1.0
    unit = (features.rows[kept] - centred.mean) / scale
    _, singular, right = svd(np.sqrt(features.weights[kept])[:, None] * unit, full_matrices=False)
    basis = right[singular > 1e-10 * max(singular.max(initial=0.0), 1e-300)].T
    if as_given:
        return basis * np.divide(centred.scale, scale, out=np.zeros_like(scale), where=varying)[:, None]
    return None if basis.shape[1] == unit.shape[1] else basis


def _spanned(correlation: FloatArray, constant: NDArray[np.bool_]) -> FloatArray | None:
    """Return an orthonormal basis (d, r) of the span of the rows, or None if the rows span all features."""
    varying = ~constant
    values, vectors = eigh(correlation * np.outer(varying, varying))
    basis = vectors[:, values > 1e-13 * max(values.max(initial=0.0), 1e-300)]
    return None if basis.shape[1] == len(correlation) else basis
