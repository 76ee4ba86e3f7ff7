"""Checked data: labeled rows, unlabeled rows, and the decision set they span."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot._memory import check_fits
from surefoot._types import FloatArray
from surefoot._validation import check_labeled_rows, check_weights, encode_labels
from surefoot.costs import FeatureMetric, Precomputed, resolve_metric
from surefoot.priors import LabelPrior
from surefoot.problem.sets import DecisionSet, build_decision_set


@dataclass(frozen=True, eq=False)
class LabeledData:
    """Labeled rows (n, d), their codes (n,) and weights (n,), unlabeled rows (M, d) or None, and the metric."""

    rows: FloatArray
    codes: NDArray[np.intp]
    weights: FloatArray
    unlabeled: FloatArray | None
    classes: NDArray[Any]
    metric: FeatureMetric

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
        """(N, d) all rows, the labeled ones first."""
        return self.rows if self.unlabeled is None else np.vstack([self.rows, self.unlabeled])

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
        )

    def distances_between_labeled(self) -> FloatArray:
        """(n, n)."""
        if isinstance(self.metric, Precomputed):
            return self.metric.matrix[: len(self.rows)]
        n = len(self.rows)
        fix = "Pass a number as radius, or estimate one by calibrate_radius on a random sample of the labeled rows."
        check_fits(n, n, "the distances between labeled rows, from which a radius is estimated,", fix)
        return self.metric.distances(self.rows, self.rows)


def fingerprints(rows: FloatArray) -> NDArray[np.uint64]:
    """(N,) a 64-bit number per row, equal for equal rows."""
    bits = np.ascontiguousarray(rows + 0.0).view(np.uint64)  # −0.0 becomes 0.0
    odd = np.random.default_rng(20211).integers(1 << 63, size=rows.shape[1], dtype=np.uint64) * np.uint64(
        2
    ) + np.uint64(1)
    mixed = (bits ^ (bits >> np.uint64(31))) * odd
    return np.asarray((mixed ^ (mixed >> np.uint64(29))).sum(axis=1, dtype=np.uint64))
