"""The dual objective as a torch module. A network minimizes it instead of the mean loss.

αε + Σ_i w_i β_i + Σ_k σ_k(λ_k) + mean_j max_{k,i} [ ℓ_jk − α c((x_j, k), z_i) − β_i − λ_k ]

The mean is over the rows j of a batch (paper, eq. worst-case-dual), and ℓ is the log loss of the network's logits. The
max over anchors separates by class. Memory holds the distances (B, n) of a batch to the anchors and arrays (B, K, C),
never (B, n, K).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from surefoot._errors import ParameterError, UnlabeledRowsWarning
from surefoot._validation import FloatArray, check_positive_scalar
from surefoot.certificates.certificate import Certificate
from surefoot.costs.learned import resolve_metric
from surefoot.costs.metrics import Chebyshev, Euclidean, FeatureMetric, Manhattan
from surefoot.dual.models import DualPoint
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.priors import LabelPrior
from surefoot.problem.placement import check_problem
from surefoot.problem.rows import Unlabeled
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.minimal_radius import check_radius

# The dual variables of a network start at the optimum of a robust linear classifier.


def linear_certificate(
    rows: FloatArray, y: ArrayLike, unlabeled: FloatArray | None, weights: FloatArray, **keywords: Any
) -> Certificate:
    """Certify a robust linear classifier to a gap of 1e-2. `row_bound` holds the sets and their dual points."""
    U = None if unlabeled is None else Unlabeled(unlabeled)
    clf = RobustLogisticRegression(**keywords, tol=1e-2)
    with warnings.catch_warnings():
        for category in (ConvergenceWarning, UnlabeledRowsWarning):  # not relevant to a network that starts here
            warnings.simplefilter("ignore", category)
        return clf.fit(rows, y, sample_weight=weights, X_unlabeled=U).certificate_


PRECOMPUTED = "precomputed"
_NORMS: dict[type[FeatureMetric], float] = {Euclidean: 2.0, Manhattan: 1.0, Chebyshev: np.inf}


class DualLoss(nn.Module):
    """The dual objective on a batch, with parameters α, β and λ. Minimize it jointly with the network's weights.

    The object holds the labels. A batch contains only features and logits of rows sampled from the feature marginal,
    labeled or unlabeled. After every optimizer step, call `project_()`, which projects α onto [0, ∞). At any values of
    the parameters, the mean of the objective over all rows is an upper bound on the network's worst expected loss.

    Parameters
    ----------
    decision_set : DecisionSet
        Anchors, label costs, intervals and radius. Its rows are not stored. `from_labeled` builds a decision set.
    anchors : tensor or array of shape (n, e), or None
        The labeled rows in the order of the decision set, in the space where distances are measured. None with
        metric="precomputed".
    metric : str, FeatureMetric or callable, default="euclidean"
        "euclidean", "manhattan", "chebyshev"; a function of tensors (features (B, e), anchors (n, e)) -> (B, n); or
        "precomputed". With "precomputed", pass the distances (B, n) as features.

    Attributes
    ----------
    alpha : torch.nn.Parameter, a scalar
        Multiplier α of the radius. α, β and λ start at zero. They stay float32 even if the network is cast to half
        precision.
    beta : torch.nn.Parameter of shape (n,)
        Multipliers β of the anchors' weights.
    lam : torch.nn.Parameter of shape (K,)
        Net multipliers of the label intervals, the paper's λ̄ − λ.

    Examples
    --------
    >>> loss = DualLoss.from_labeled([[0.0], [1.0]], [0, 1], X_unlabeled=[[0.1], [0.9]], radius=0.3)
    >>> loss(torch.tensor([[0.1], [0.9]]), torch.zeros(2, 2)).item() > 0
    True
    """

    anchors: Tensor
    anchor_weights: Tensor
    label_cost: Tensor
    intervals: Tensor

    def __init__(
        self,
        decision_set: DecisionSet,
        anchors: Tensor | ArrayLike | None,
        metric: FeatureMetric | str | Callable[..., Any] = "euclidean",
    ) -> None:
        super().__init__()
        ds = decision_set
        self.radius = check_positive_scalar(ds.radius, "radius", allow_zero=True)
        self.n_classes = ds.n_classes
        self.metric = _torch_metric(metric)
        n = len(ds.anchor_weights)
        if (anchors is None) != isinstance(self.metric, str):
            raise ParameterError(
                "anchors",
                'must be given, or metric must be "precomputed", but not both',
                f"anchors={'None' if anchors is None else 'an array'} and metric={metric!r}",
                "Leave one out.",
            )
        if anchors is not None:
            rows = torch.as_tensor(np.asarray(anchors), dtype=torch.float32)
            if rows.ndim != 2 or len(rows) != n:
                raise ParameterError(
                    "anchors",
                    f"must have shape (n, e) with n = {n}, a row per anchor",
                    tuple(rows.shape),
                    "Pass the labeled rows in the order of the decision set.",
                )
            self.register_buffer("anchors", rows)
        for name, values in [
            ("anchor_weights", ds.anchor_weights),
            ("label_cost", ds.present_label_cost),
            ("intervals", ds.intervals),
        ]:
            self.register_buffer(name, torch.as_tensor(values, dtype=torch.float32))
        # the anchors of each class lie between two successive offsets
        self._groups = [(int(a), int(b)) for a, b in pairwise(ds.class_offsets)]
        self.alpha = nn.Parameter(torch.zeros(()))
        self.beta = nn.Parameter(torch.zeros(n))
        self.lam = nn.Parameter(torch.zeros(ds.n_classes))

    @classmethod
    def from_labeled(
        cls,
        X: ArrayLike,
        y: ArrayLike,
        *,
        X_unlabeled: ArrayLike | Unlabeled | None = None,
        radius: float,
        label_prior: LabelPrior | ArrayLike | str | None = "auto",
        label_cost: ArrayLike = 1.0,
        metric: FeatureMetric | str | Callable[..., float] = "euclidean",
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        start: bool = True,
    ) -> DualLoss:
        """Build the objective around labeled rows, all in the space where distances are measured.

        Parameters
        ----------
        X : array of shape (n, e)
            Labeled rows.
        y : array of shape (n,)
            Their labels.
        X_unlabeled : array of shape (M, e), Unlabeled or None, default=None
            Unlabeled rows. X and X_unlabeled together make up the feature marginal P_X.
        radius : float
            Radius of the decision set. A radius below the minimal radius raises InfeasibleRadiusError.
        label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
            Label probabilities, with classes in sorted order: 95 % intervals from y ("clopper-pearson"), exact values
            (K,), intervals (K, 2), or None for no constraint.
        label_cost : float or array of shape (K, K), default=1.0
            Cost κ of changing a label, or a matrix whose entry [k, c] is the cost of changing label c of a labeled row
            to k.
        metric : str or FeatureMetric, default="euclidean"
            "euclidean", "manhattan" or "chebyshev". For other metrics, build the decision set yourself.
        classes : array of shape (K,) or None, default=None
            All classes, if some classes may be missing from y.
        sample_weight : array of shape (n,) or None, default=None
            Number of times each labeled row counts. None: once each.
        start : bool, default=True
            Whether to start α, β and λ at the optimum of a robust linear classifier on the same rows. From zero, a
            network takes thousands of steps to find their size. False starts at zero, as in the paper.

        Returns
        -------
        DualLoss
            The objective to minimize.
        """
        if not isinstance(_torch_metric(metric), float):
            raise ParameterError(
                "metric",
                "must be a norm in from_labeled",
                repr(metric),
                "Pass its name, or build the decision set with "
                "surefoot.problem.sets.build_decision_set and call DualLoss(decision_set, anchors, "
                "metric).",
            )
        problem = check_problem(
            X,
            y,
            X_unlabeled=X_unlabeled,
            sample_weight=sample_weight,
            classes=classes,
            metric=metric,
            label_prior=label_prior,
            label_cost=label_cost,
            memory_only=True,
        )
        member = problem.at_radius(check_positive_scalar(radius, "radius", allow_zero=True))[0]
        data, ds = problem.data, member.decision_set
        check_radius(ds, member.minimal)
        loss = cls(ds, problem.anchors, metric)
        if start:
            loss.set_duals_from(
                linear_certificate(
                    data.rows,
                    data.classes[data.codes],
                    data.unlabeled,
                    data.weights,
                    radius=ds.radius,
                    label_prior=ds.intervals,
                    label_cost=ds.label_cost,
                    metric=data.metric,
                    classes=data.classes,
                )
            )
        return loss

    def forward(self, features: Tensor, logits: Tensor, weights: Tensor | None = None) -> Tensor:
        """Compute the objective on a batch.

        Distances have no gradient, because the decision set is fixed (see docs/neural-networks.md). The objective is
        computed in float32, the precision of the parameters, even under autocast.

        Parameters
        ----------
        features : Tensor of shape (B, e), or (B, n)
            Rows in the space of the anchors. With metric="precomputed": their distances to the anchors.
        logits : Tensor of shape (B, K), or (B,) for two classes
            The network's outputs at the rows.
        weights : Tensor of shape (B,) or None, default=None
            Weights of the rows, divided by their sum. None: equal weights.

        Returns
        -------
        Tensor
            A scalar with gradients for the logits and for α, β and λ.
        """
        with torch.autocast(device_type=logits.device.type, enabled=False):
            losses = self.losses(logits)
            prices = self.alpha * self.distances(features) + self.beta
            least = torch.stack([prices[:, a:b].amin(dim=1) for a, b in self._groups], dim=1)  # (B, C)
            values = (losses - self.lam)[:, :, None] - self.alpha * self.label_cost - least[:, None, :]
            phi = values.amax(dim=(1, 2))
            mean = phi.mean() if weights is None else (weights @ phi) / weights.sum()
            return self.constant() + mean

    def constant(self) -> Tensor:
        """Compute the part of the objective that does not depend on the rows: αε + Σ w β + Σ_k σ_k(λ_k).

        Returns
        -------
        Tensor
            A scalar.
        """
        support = torch.where(self.lam >= 0, self.lam * self.intervals[:, 1], self.lam * self.intervals[:, 0]).sum()
        return self.alpha * self.radius + self.anchor_weights @ self.beta + support

    def losses(self, logits: Tensor) -> Tensor:
        """Compute the log losses in the precision of the parameters.

        Parameters
        ----------
        logits : Tensor of shape (B, K), or (B,) for two classes
            The network's outputs.

        Returns
        -------
        Tensor of shape (B, K)
            The loss at each row if its label were k.
        """
        scores = logits.to(self.beta.dtype)
        if scores.ndim == 1 or scores.shape[-1] == 1:
            scores = scores.reshape(-1, 1)
            scores = torch.cat([torch.zeros_like(scores), scores], dim=1)
        if scores.shape[1] != self.n_classes:
            raise ParameterError(
                "logits",
                f"must have a column per class, {self.n_classes}",
                f"shape {tuple(logits.shape)}",
                "Give the network's last layer that many outputs.",
            )
        return -torch.log_softmax(scores, dim=1)

    def distances(self, features: Tensor) -> Tensor:
        """Compute the distances to the anchors, without gradient.

        Parameters
        ----------
        features : Tensor of shape (B, e), or (B, n)
            Rows in the space of the anchors. With metric="precomputed": the distances themselves.

        Returns
        -------
        Tensor of shape (B, n)
            Distances.
        """
        with torch.no_grad():
            if isinstance(self.metric, str):
                found = features
            elif callable(self.metric):
                found = self.metric(features, self.anchors)
            else:
                rows = features.to(self.anchors.dtype)
                mode = "donot_use_mm_for_euclid_dist"  # exact for nearby rows
                found = torch.cdist(rows, self.anchors, p=self.metric, compute_mode=mode)
        if found.shape != (len(features), len(self.beta)):
            raise ParameterError(
                "distances",
                f"must have shape (B, n) = ({len(features)}, {len(self.beta)})",
                tuple(found.shape),
                "Pass features in the space of the anchors, or distances to all anchors.",
            )
        return found.detach().to(self.beta.dtype)

    @torch.no_grad()
    def project_(self) -> DualLoss:
        """Project α onto [0, ∞), in place. Call it after every optimizer step. β and λ may have any sign.

        Returns
        -------
        DualLoss
            The loss itself.
        """
        self.alpha.clamp_(min=0.0)
        return self

    @property
    def point(self) -> DualPoint:
        """The dual variables α, β and λ in the format of the exact solver."""
        beta, lam = (p.detach().double().cpu().numpy() for p in (self.beta, self.lam))
        return DualPoint(np.zeros((0, 0)), self.alpha.item(), lam, beta)

    @torch.no_grad()
    def set_duals_from(self, certificate: Certificate | DualPoint) -> DualLoss:
        """Set α, β and λ from a certificate over the same set, or from a point of the exact solver, in place.

        The certificate of `certify(network, ...)` makes them optimal for the current network.

        Parameters
        ----------
        certificate : Certificate or DualPoint
            A certificate or point over the same anchors and classes.

        Returns
        -------
        DualLoss
            The loss itself.
        """
        point = certificate if isinstance(certificate, DualPoint) else _only_point(certificate)
        if len(point.beta) != len(self.beta) or len(point.lam) != len(self.lam):
            raise ParameterError(
                "certificate",
                f"must be over the same anchors and classes, ({len(self.beta)}, {len(self.lam)})",
                f"({len(point.beta)}, {len(point.lam)})",
                "Certify with the same labeled rows and metric.",
            )
        self.alpha.fill_(max(point.alpha, 0.0))
        self.beta.copy_(torch.as_tensor(point.beta))
        self.lam.copy_(torch.as_tensor(point.lam))
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> DualLoss:
        """Apply `.to()`, `.half()` and similar calls, but keep the dual variables in at least single precision."""

        def keeping(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            lowered = moved.is_floating_point() and moved.element_size() < 4
            return tensor.to(moved.device, torch.float32) if lowered else moved

        return super()._apply(keeping, recurse)

    def extra_repr(self) -> str:
        """Return the text that `print` shows."""
        return f"{len(self.beta)} anchors, {self.n_classes} classes, radius={self.radius:.6g}"


def _only_point(certificate: Certificate) -> DualPoint:
    bound = certificate.row_bound
    if bound is None or len(bound.sets) != 1:
        raise ParameterError(
            "certificate",
            "must be over one decision set",
            f"one over {'a ball' if bound is None else f'a union of {len(bound.sets)}'}",
            "Certify with a number as $radius.",
        )
    return bound.sets[0].point


def _torch_metric(metric: Any) -> str | float | Callable[[Tensor, Tensor], Tensor]:
    """Return the p of a p-norm, a function of tensors, or the string "precomputed"."""
    if isinstance(metric, str) and metric == PRECOMPUTED:
        return PRECOMPUTED
    if callable(metric) and not isinstance(metric, type | FeatureMetric):
        return metric
    found = _NORMS.get(type(resolve_metric(metric)))
    if found is None:
        raise ParameterError(
            "metric",
            "must be a norm, a function of tensors or 'precomputed' in a torch loop",
            repr(metric),
            "Pass metric='precomputed' and the distances as features.",
        )
    return found
