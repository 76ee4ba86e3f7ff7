"""Random problems for the adversary at single rows, and the linear program that settles them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reference.label_flexibility import worst_impact_reference
from surefoot.active.flexibility import LabelFlexibility, replace_excess
from surefoot.problem.sets import DecisionSet, build_decision_set
from surefoot.solvers.minimal import solve_minimal_radius

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """Labeled rows, unlabeled rows, and the keywords of `label_flexibility`."""

    X: Array
    y: NDArray[np.intp]
    U: Array
    K: int
    keywords: dict[str, object]

    @property
    def decision_set(self) -> DecisionSet:
        return build_decision_set(self.X, self.y, self.K, X_unlabeled=self.U, **self.keywords)  # type: ignore[arg-type]

    @property
    def kappa(self) -> float:
        """The largest label cost."""
        return float(self.decision_set.label_cost.max())

    @property
    def unit(self) -> float:
        """Mass of one unlabeled row."""
        return float(self.decision_set.row_weights[-1])

    def flexibility(self, excess: float) -> LabelFlexibility:
        """At a radius of the minimal one plus excess."""
        rows = len(self.X) + np.arange(len(self.U))
        found = LabelFlexibility(self.decision_set, rows, np.arange(self.K), 0.0)
        return replace_excess(found, "minimal", excess, has_prior=True)

    def reference(self, row: int, impact: Array, excess: float) -> float:
        """The linear program's score of an unlabeled row, at the same radius but for rounding."""
        ds = self.decision_set
        radius = solve_minimal_radius(ds).value + excess + 1e-11  # at the minimal radius HiGHS may find the set empty
        return worst_impact_reference(
            impact, len(self.X) + row, ds.distances, ds.row_weights, ds.anchor_weights, ds.anchor_labels, ds.label_cost,
            ds.intervals, radius,
        )  # fmt: skip


def draw(
    seed: int,
    K: int,
    prior: str,
    *,
    N: int = 60,
    cost: str = "scalar",
    weighted: bool = False,
    grid: bool = False,
    missing: bool = False,
) -> Problem:
    """A random problem with N rows in all.

    prior: "strong" (exact, away from the frequencies), "frequencies", "weak" (intervals), "clopper-pearson", "none" or
    "zero" (a class that cannot occur). grid: rows on a grid, so that plans and distances tie; missing: the last class
    has no labeled row.
    """
    rng = np.random.default_rng([seed, K])
    n = int(rng.integers(K, 13))
    shown = K - 1 if missing else K
    y = rng.permutation(np.concatenate([np.arange(shown), rng.integers(0, shown, n - shown)]))
    rows = rng.integers(0, 4, size=(N, 2)).astype(float) if grid else rng.normal(size=(N, 2))
    rows[:n] += 0 if grid else 0.7 * y[:, None]
    p = rng.dirichlet(np.full(K, 3.0))
    zero = np.where(np.arange(K) == rng.integers(K), 0.0, p)
    priors = {
        "strong": p,
        "frequencies": np.bincount(y, minlength=K) / n,
        "weak": np.column_stack([0.9 * p, np.minimum(1.1 * p, 1.0)]),
        "none": None,
        "zero": zero / zero.sum(),
    }
    matrix = rng.uniform(0.2, 2.0, size=(K, K)) * (1 - np.eye(K))
    keywords: dict[str, object] = {
        "label_prior": priors.get(prior, prior),
        "label_cost": matrix if cost == "matrix" else float(rng.uniform(0.2, 2.0)),
        "sample_weight": rng.uniform(0.2, 3.0, size=n) if weighted else None,
    }
    return Problem(rows[:n], y, rows[n:], K, keywords)
