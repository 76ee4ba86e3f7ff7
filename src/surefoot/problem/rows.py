"""Checked data: labeled rows, unlabeled rows, and the decision set they span."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot._errors import ParameterError
from surefoot._memory import check_fits
from surefoot._types import FloatArray
from surefoot._validation import check_labeled_rows, check_weights, encode_labels
from surefoot.costs import FeatureMetric, Precomputed
from surefoot.costs.learned import resolve_metric
from surefoot.priors import LabelPrior
from surefoot.problem.sets import DecisionSet, build_decision_set


@dataclass(frozen=True, eq=False)
class LabeledData:
    """Labeled rows (n, d), their codes (n,) and weights (n,), unlabeled rows (M, d) or None, and the metric.

    target : whether the unlabeled rows are those of another population, and alone make up the feature marginal.
    rule : the GroundRule by which metric and label cost were found, so that some of the labels can find them again.
    """

    rows: FloatArray
    codes: NDArray[np.intp]
    weights: FloatArray
    unlabeled: FloatArray | None
    classes: NDArray[Any]
    metric: FeatureMetric
    target: bool = False
    rule: Any = None

    @classmethod
    def check(
        cls,
        X: ArrayLike,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None,
        classes: ArrayLike | None,
        metric: FeatureMetric | str | Callable[..., float],
    ) -> LabeledData:
        """Labeled rows as arguments of a function, each refused with the rule that it breaks."""
        rows, labels = check_labeled_rows(X, y)
        weights = check_weights(sample_weight, "sample_weight", len(rows))
        known, codes = encode_labels(labels, classes)
        return cls(rows, codes, weights, None, known, resolve_metric(metric))

    @property
    def n_labeled(self) -> int:
        return len(self.rows)

    @cached_property
    def everything(self) -> FloatArray:
        """(N, d) the rows of the feature marginal: all, the labeled ones first; or those of the target population."""
        if self.unlabeled is None:
            return self.counted_rows
        return self.unlabeled if self.target else np.vstack([self.rows, self.unlabeled])

    @property
    def counted_rows(self) -> FloatArray:
        """The labeled rows that count in the feature marginal: all, or none beside a target population."""
        return self.rows[:0] if self.target else self.rows

    @property
    def counted_weights(self) -> FloatArray:
        """Their weights."""
        return self.weights[:0] if self.target else self.weights

    def decision_set(
        self, label_prior: LabelPrior | ArrayLike | str | None, label_cost: ArrayLike, radius: float = np.inf
    ) -> DecisionSet:
        return build_decision_set(
            self.rows,
            self.codes,
            len(self.classes),
            X_unlabeled=self.unlabeled,
            sample_weight=self.weights,
            radius=radius,
            label_prior=label_prior,
            label_cost=label_cost,
            metric=self.metric,
            target=self.target,
        )

    def distances_between_labeled(self) -> FloatArray:
        """(n, n)."""
        if isinstance(self.metric, Precomputed):
            if self.target:
                raise ParameterError(
                    "radius",
                    "can be estimated from distances between labeled rows only",
                    "precomputed distances to X_target",
                    "Pass a number as $radius, or a metric.",
                )
            return self.metric.matrix[: len(self.rows)]
        n = len(self.rows)
        fix = "Pass a number as radius, or estimate one by calibrate_radius on a random sample of the labeled rows."
        check_fits(n, n, "the distances between labeled rows, from which a radius is estimated,", fix)
        return self.metric.distances(self.rows, self.rows)


def fingerprints(rows: FloatArray) -> NDArray[np.uint64]:
    """(N,) a 64-bit number per row, equal for equal rows."""
    bits = np.ascontiguousarray(rows + 0.0).view(np.uint64)  # −0.0 becomes 0.0
    mixed = (bits ^ (bits >> np.uint64(31))) * fingerprint_factors(rows.shape[1])
    return np.asarray((mixed ^ (mixed >> np.uint64(29))).sum(axis=1, dtype=np.uint64))


def fingerprint_factors(n_features: int) -> NDArray[np.uint64]:
    """(d,) odd numbers, one per feature."""
    half = np.random.default_rng(20211).integers(1 << 63, size=n_features, dtype=np.uint64)
    return half * np.uint64(2) + np.uint64(1)
