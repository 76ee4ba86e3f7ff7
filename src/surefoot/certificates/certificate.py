"""Certificates: an upper and a lower bound on the worst case."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._printing import Bar, PrintsAsTable, at_most, bound_in_words, rounded_down, rounded_up, visible
from surefoot._validation import FloatArray
from surefoot.certificates.calibration import RadiusEstimate
from surefoot.certificates.fresh import FreshCertificate, RowBound
from surefoot.costs.metrics import FeatureMetric
from surefoot.problem.rows import Unlabeled

if TYPE_CHECKING:
    from surefoot.plots import CertificateDisplay

_MEANING = {
    "optimal": "the gap is within the tolerance",
    "separable": "the coefficients have no finite optimum; both bounds are valid",
    "stopped": "the solver stopped before the gap reached the tolerance; both bounds are valid",
}


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(PrintsAsTable):
    """Hold the upper and lower bound on the worst expected loss over a decision set.

    Attributes
    ----------
    risk : float
        Upper bound on the expected loss of this classifier under every distribution in the set.
    lower : float
        Lower bound. Under the distribution `worst_case`, every classifier of the same kind has at least this expected
        loss (for `certify`: the certified classifier). With a penalty (l2 > 0), the bound holds for this classifier
        only. The gap is then the gap of the penalized problem, and `lower` is `risk` minus the gap. A classifier with
        larger coefficients may have a smaller worst-case loss.
    gap : float
        Difference between the bounds, `risk` − `lower`.
    likelihood : float
        Certified likelihood exp(−`risk`).
    radius : float
        Radius of the set. With an estimated radius and label intervals, the set is a union. Its radius at label
        probabilities p is larger by κ·TV(p, p̂), minus the part already included in the minimal radius.
    minimal_radius : float
        The smallest radius at which the set is not empty; 0 for a Wasserstein ball.
    label_intervals : array of shape (K, 2)
        Interval for the probability of each class.
    loss : str
        Name of the bounded loss.
    status : {"optimal", "separable", "stopped"}
        How the solver ended. The bounds are valid in every case.
    worst_case : WorstCase or None
        The distribution that attains `lower`; None for a Wasserstein ball.
    estimate : RadiusEstimate or None
        How the radius was estimated from the labels, or None. An estimated radius is not proved to cover the true
        distribution.
    row_bound : RowBound or None
        The dual point that proves `risk`, used by `on_fresh_rows`; None for a Wasserstein ball. Internal.
    stages : tuple of str
        Stages of the solver in the order they ran. The last stage found the result. Usually "path" alone, which ends at
        a "vertex" for fixed losses and at an "interior point" in learning (see docs/solver.md).
    guaranteed : bool
        Whether the radius was given or calibrated. Rules such as "predictive" and "auto" may find a radius that does
        not cover the true distribution. The bounds then hold over the set only, with no guarantee for the true
        distribution.
    groups : dict of Certificate, or None
        Certificate of each group of rows, over the same set. None without `groups`.
    metric : FeatureMetric or None
        Distance between rows that the radius refers to.
    label_cost : float, array of shape (K, K) or None
        Cost of changing a label that the radius refers to.
    limit : float or None
        Lower bound on the certified loss of every classifier over the same set (docs/minimax.md). None if not computed.
    """

    risk: float
    lower: float
    radius: float
    minimal_radius: float
    label_intervals: FloatArray
    loss: str
    status: str
    worst_case: WorstCase | None = None
    estimate: RadiusEstimate | None = None
    row_bound: RowBound | None = None
    stages: tuple[str, ...] = ()
    groups: Mapping[Any, Certificate] | None = None
    guaranteed: bool = True
    metric: FeatureMetric | None = None
    label_cost: float | FloatArray | None = None
    limit: float | None = None

    @property
    def worst_group(self) -> Any:
        """The group with the largest risk, or None without groups."""
        return None if not self.groups else max(self.groups.items(), key=lambda item: item[1].risk)[0]

    @property
    def gap(self) -> float:
        """Certified distance to the optimum of the min–max problem, including its penalty: risk − lower."""
        return self.risk - self.lower

    @property
    def likelihood(self) -> float:
        """Certified likelihood exp(−risk). For the log loss: a lower bound on the geometric mean of the likelihood."""
        return float(np.exp(-self.risk))

    @property
    def statement(self) -> str:
        """The upper bound in words."""
        return bound_in_words(self.loss, self.risk)

    def on_fresh_rows(
        self,
        X_fresh: ArrayLike,
        *,
        level: float = 0.95,
        method: str = "auto",
        losses: ArrayLike | None = None,
        largest_loss: float | None = None,
        assume_fresh: bool = False,
    ) -> FreshCertificate:
        """Bound the expected loss over the distribution of fresh rows, including the sampling error ε(N_u).

        The bound keeps the dual point of this certificate. It replaces the mean over the rows of the fit by the mean
        over X_fresh (paper, the out-of-sample bound).

        Parameters
        ----------
        X_fresh : array of shape (M, d)
            Unlabeled rows that were used neither in the fit nor to train the classifier.
        level : float, default=0.95
            Probability, over the random sample X_fresh, that the bound holds.
        method : {"auto", "normal", "bernstein"}, default="auto"
            "normal": one-sided normal bound with the Berry–Esseen correction. "bernstein": empirical Bernstein bound,
            valid for any number of rows but only for bounded losses. "auto": "bernstein" for bounded losses other than
            the log loss, otherwise "normal".
        losses : array of shape (M, K) or None, default=None
            Losses at the fresh rows. Required if the certificate was made from a matrix of losses.
        largest_loss : float or None, default=None
            A number that the losses never exceed. Required if the certificate cannot bound the losses itself (a matrix
            of losses, or the log loss of a linear classifier).
        assume_fresh : bool, default=False
            Rows equal to rows of the fit count as reused, which voids the confidence level. Pass True if you know that
            these rows are new, for example because the features take few values.

        Returns
        -------
        FreshCertificate
            The bound, its parts and its meaning.
        """
        if self.row_bound is None:
            raise ValueError(
                "this certificate cannot be re-evaluated: over a Wasserstein ball the features may move, so the bound "
                "uses no unlabeled rows. Use certify(...) or RobustLogisticRegression."
            )
        return self.row_bound.on_fresh_rows(
            X_fresh, level=level, method=method, losses=losses, largest_loss=largest_loss, assume_fresh=assume_fresh
        )

    def save(
        self,
        path: str | Path,
        X: ArrayLike,
        y: ArrayLike,
        *,
        X_unlabeled: ArrayLike | Unlabeled | None = None,
        X_target: ArrayLike | Unlabeled | None = None,
        losses: ArrayLike | None = None,
        classes: ArrayLike | None = None,
    ) -> list[Path]:
        """Save the certificate as evidence for `surefoot.verify`: the claim and the dual point that proves it.

        Arrays with more than 1000 numbers go into a second file, NAME.npz. The certificates of groups are not saved.

        Parameters
        ----------
        path : path
            The file to write, ending in .json.
        X : array of shape (n, d)
            Labeled rows, as passed to `certify` or `fit`. If you passed X_metric to `certify`, pass its rows here.
        y : array of shape (n,)
            Their labels.
        X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
            Unlabeled rows, as passed to `certify` or `fit`.
        X_target : array of shape (M, d), Unlabeled or None, default=None
            Rows of another population, as passed to `certify` or `fit`.
        losses : array of shape (N, K) or None, default=None
            Losses at all rows. Required if the certificate was made from a matrix of losses or with X_metric.
        classes : array of shape (K,) or None, default=None
            All classes, if some classes are missing from y.

        Returns
        -------
        list of Path
            The files written.
        """
        from surefoot.certificates import evidence

        return evidence.save_certificate(self, path, X, y, X_unlabeled, X_target, losses, classes)

    def plot(self, *, ax: Any = None) -> CertificateDisplay:
        """Plot the certificate as one bar: the lower bound and the gap.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to plot on. None creates a new figure.

        Returns
        -------
        plots.CertificateDisplay
            The plotted display.
        """
        from surefoot.plots import CertificateDisplay

        return CertificateDisplay.from_certificate(self, ax=ax)

    def _title(self) -> str:
        if self.guaranteed:
            return super()._title()
        return (
            f"Worst case within radius {self.radius:.4g} (no guarantee: the true distribution may lie outside this set)"
        )

    def _rows(self) -> list[tuple[str, str]]:
        intervals = ", ".join(f"[{lo:.4g}, {hi:.4g}]" for lo, hi in self.label_intervals)
        rows = [
            ("risk", f"{rounded_up(self.risk, 6)}  (the worst expected {self.loss} is at most this)"),
            ("lower", f"{rounded_down(self.lower, 6)}  (attained by a distribution in the set)"),
            ("gap", f"{self.gap:.2e}"),
            *self._limit(),
            ("likelihood", f"{self.likelihood:.6g}"),
            ("radius", f"{self.radius:.6g}  (minimal: {self.minimal_radius:.6g})"),
            *self._ground_cost(),
            ("label intervals", intervals),
            ("status", f"{self.status}: {_MEANING[self.status]}"),
        ]
        if len([name for name in self.stages if name not in ("vertex", "interior point")]) > 1:
            rows.append(("stages", ", then ".join(self.stages)))
        if self.estimate is not None:
            rows.insert(5, ("radius from", self.estimate.meaning))
            if np.any(self.label_intervals[:, 0] < self.label_intervals[:, 1]):
                rows.insert(6, ("", "the radius grows with the label shift, by label cost times total variation"))
        for name, one in (self.groups or {}).items():
            mark = "  (the worst)" if name == self.worst_group else ""
            rows.append((f"group {visible(str(name))}", f"{one.risk:.6g}  (lower bound {one.lower:.6g}){mark}"))
        return rows if self.loss == "log_loss" else [row for row in rows if row[0] != "likelihood"]

    def _bars(self) -> list[Bar]:
        if self.loss == "zero_one":
            return [Bar("worst case", self.lower, self.risk, f"at most {at_most(self.risk)}")]
        found = [Bar("worst case", self.lower, self.risk, f"at most {rounded_up(self.risk, 4)}")]
        if self.loss == "log_loss":
            guess = math.log(len(self.label_intervals))
            found.append(Bar("guessing", guess, guess, f"{guess:.4f}, equal probabilities"))
        return found

    def _limit(self) -> list[tuple[str, str]]:
        if self.limit is None:
            return []
        return [("limit", f"{rounded_down(self.limit, 6)}  (no classifier has a smaller worst case over this set)")]

    def _ground_cost(self) -> list[tuple[str, str]]:
        if self.metric is None:
            return []
        one = isinstance(self.label_cost, float)
        cost = f"label cost {self.label_cost:.4g}" if one else "a matrix of label costs"
        return [("ground cost", f"{type(self.metric).__name__.removesuffix('Metric')} metric, {cost}")]


@dataclass(frozen=True, eq=False)
class WorstCase:
    """Hold the distribution that attains the lower bound of a certificate.

    Attributes
    ----------
    label_proba : array of shape (N, K)
        Label probabilities q_jk = μ(y=k | x_j), for the rows of X followed by X_unlabeled.
    row_weights : array of shape (N,)
        The feature marginal μ(x_j).
    transport_cost : float
        Cost of an explicit transport plan to the labeled distribution, an upper bound on its transport distance.
    """

    label_proba: FloatArray
    row_weights: FloatArray
    transport_cost: float

    @property
    def label_probabilities(self) -> FloatArray:
        """Label probabilities (K,), μ(y=k)."""
        return self.row_weights @ self.label_proba

    def __repr__(self) -> str:
        N, K = self.label_proba.shape
        marginal = ", ".join(f"{p:.4g}" for p in self.label_probabilities)
        return f"WorstCase({N} rows, {K} classes, label probabilities ({marginal}), cost {self.transport_cost:.6g})"
