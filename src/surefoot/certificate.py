"""Certificates: what was promised about the worst case, from above and from below."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np

from surefoot._validation import FloatArray

_MEANING = {
    "optimal": "the gap is within the tolerance",
    "separable": "no finite coefficients attain the minimum; both bounds hold all the same",
    "stopped": "the solver stopped before the gap was within the tolerance; both bounds hold all the same",
}


@dataclass(frozen=True, eq=False)
class Certificate:
    """Two-sided bound on the worst expected loss over a decision set.

    Attributes
    ----------
    risk : float
        Upper bound: no distribution in the set gives this classifier a larger expected loss.
    lower : float
        Lower bound: some distribution in the set, exposed as `worst_case_` by RobustLogisticRegression, gives every
        classifier of the same kind (for a fixed classifier: that one) at least this loss. With a penalty, l2 > 0, it
        holds for this classifier alone: the gap is then that of the penalised problem, and `lower` is `risk` less the
        gap. A classifier with larger coefficients may have a smaller worst loss.
    radius, minimal_radius : float
        Radius of the set, and the smallest radius at which it is not empty.
    label_intervals : array of shape (K, 2)
        Interval of each class's probability.
    loss : str
        Name of the loss that is bounded.
    status : {"optimal", "separable", "stopped"}
        How the solver ended; the bounds hold in every case.
    """

    risk: float
    lower: float
    radius: float
    minimal_radius: float
    label_intervals: FloatArray
    loss: str
    status: str

    @property
    def gap(self) -> float:
        """Certified distance to the optimum of the min–max problem, its penalty included: risk − lower."""
        return self.risk - self.lower

    @property
    def likelihood(self) -> float:
        """exp(−risk): for the log loss, a lower bound on the (geometric mean) likelihood."""
        return float(np.exp(-self.risk))

    def _rows(self) -> list[tuple[str, str]]:
        intervals = ", ".join(f"[{lo:.4g}, {hi:.4g}]" for lo, hi in self.label_intervals)
        rows = [
            ("risk", f"{self.risk:.6g}  (worst expected {self.loss} is at most this)"),
            ("lower", f"{self.lower:.6g}  (some distribution in the set forces this much)"),
            ("gap", f"{self.gap:.2e}"),
            ("likelihood", f"{self.likelihood:.6g}"),
            ("radius", f"{self.radius:.6g}  (minimal: {self.minimal_radius:.6g})"),
            ("label intervals", intervals),
            ("status", f"{self.status}: {_MEANING[self.status]}"),
        ]
        return rows if self.loss == "log_loss" else [row for row in rows if row[0] != "likelihood"]

    def __repr__(self) -> str:
        return "Certificate\n" + "\n".join(f"  {name:<16}{text}" for name, text in self._rows())

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(text)}</td></tr>'
            for name, text in self._rows()
        )
        return f"<table><caption>Certificate</caption><tbody>{cells}</tbody></table>"


@dataclass(frozen=True, eq=False)
class WorstCase:
    """The distribution behind a certificate's lower bound.

    Attributes
    ----------
    label_proba : array of shape (N, K)
        q_jk = μ(y=k | x_j); the rows of X first, then those of X_unlabeled.
    row_weights : array of shape (N,)
        μ(x_j), the feature marginal.
    transport_cost : float
        Cost of an explicit transport plan to the labeled distribution: an upper bound of its distance.
    """

    label_proba: FloatArray
    row_weights: FloatArray
    transport_cost: float

    @property
    def label_probabilities(self) -> FloatArray:
        """(K,) μ(y=k)."""
        return self.row_weights @ self.label_proba

    def __repr__(self) -> str:
        N, K = self.label_proba.shape
        marginal = ", ".join(f"{p:.4g}" for p in self.label_probabilities)
        return f"WorstCase({N} rows, {K} classes, label probabilities ({marginal}), cost {self.transport_cost:.6g})"
