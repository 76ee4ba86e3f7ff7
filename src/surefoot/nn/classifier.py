"""A robust network for scikit-learn. Skorch trains it on the dual objective, and the exact solver certifies it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from skorch import NeuralNet
from skorch.utils import to_tensor
from torch import Tensor, nn
from torch.utils.data import WeightedRandomSampler

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray, check_finite_array, check_positive_scalar
from surefoot.certificates.calibration import CalibratedRadius, resolve_radius
from surefoot.certificates.certification import certify
from surefoot.costs.learned import resolve_metric
from surefoot.costs.metrics import Euclidean, FeatureMetric
from surefoot.estimators.base import check_labeled
from surefoot.nn.dual_loss import PRECOMPUTED, DualLoss, linear_certificate
from surefoot.priors import LabelPrior
from surefoot.problem.losses import probabilities
from surefoot.problem.rows import (
    LabeledData,
    Unlabeled,
    check_unlabeled,
    move_unlabeled,
    settle_ground_cost,
    unwrap,
    warn_about_unlabeled,
)

# Frozen copies of networks: further training must not change a certified network.

_BATCH = 4096


@dataclass(frozen=True, eq=False)
class EmbeddingMetric(FeatureMetric):
    """Distance between the embeddings of x and x'.

    A network is copied, so that further training does not change the metric. A function must not change either.

    Parameters
    ----------
    embedding : torch.nn.Module or callable
        Maps rows (N, d) to (N, e): float32 tensors to tensors, or arrays to arrays.
    metric : FeatureMetric, default=Euclidean()
        Distance between embedded rows.

    Examples
    --------
    >>> EmbeddingMetric(lambda rows: 2.0 * rows).distances([[1.0]], [[0.0]])
    array([[2.]])
    """

    embedding: Any
    metric: FeatureMetric = field(default_factory=Euclidean)

    def __post_init__(self) -> None:
        if not callable(self.embedding):
            raise ParameterError(
                "embedding", "must be a torch module or a function of rows", repr(self.embedding), "Pass one of these."
            )
        if isinstance(self.embedding, nn.Module):
            object.__setattr__(self, "embedding", frozen_copy(self.embedding))

    def transform(self, rows: ArrayLike) -> FloatArray:
        """Embed rows.

        Parameters
        ----------
        rows : array of shape (N, d)
            Rows.

        Returns
        -------
        array of shape (N, e)
            Embedded rows.
        """
        X = check_finite_array(rows, "rows", ndim=2)
        found = run_module(self.embedding, X) if isinstance(self.embedding, nn.Module) else self.embedding(X)
        embedded = check_finite_array(found, "the result of embedding", ndim=2)
        if len(embedded) != len(X):
            raise ParameterError(
                "embedding", f"must give a row per row, {len(X)}", len(embedded), "Return an array of shape (N, e)."
            )
        return embedded

    def distances(self, rows: ArrayLike, anchors: ArrayLike) -> FloatArray:
        return self.metric.distances(self.transform(rows), self.transform(anchors))


@dataclass(frozen=True, eq=False)
class FrozenNet:
    """A network as a fitted classifier with `predict_proba`, for `certify` and fresh certificates."""

    module: nn.Module
    classes_: NDArray[Any]

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        return probabilities(run_module(self.module, np.asarray(X, dtype=np.float64)))


def frozen_copy(module: nn.Module) -> nn.Module:
    """Return a copy on the CPU, in evaluation mode, without gradients."""
    bare = getattr(module, "_orig_mod", module)  # of torch.compile
    return copy.deepcopy(bare).cpu().eval().requires_grad_(False)


def run_module(module: nn.Module, rows: FloatArray) -> FloatArray:
    """Return the outputs of a module on the CPU for rows (N, d), in float64, computed in batches."""
    outputs = []
    with torch.no_grad():
        for start in range(0, max(len(rows), 1), _BATCH):
            batch = torch.from_numpy(rows[start : start + _BATCH].astype(np.float32))
            outputs.append(module(batch).double().numpy())
    return np.concatenate(outputs)


class WorstOf(nn.Module):
    """The largest of several dual objectives, for a union of decision sets (a calibrated radius with label intervals).

    The gradient of the network comes from the largest objective. The dual variables of each set get the gradient of
    their own objective.

    Parameters
    ----------
    losses : sequence of DualLoss
        One per decision set.

    Examples
    --------
    >>> parts = [
    ...     DualLoss.from_labeled([[0.0], [1.0]], [0, 1], radius=radius, label_prior=[0.5, 0.5])
    ...     for radius in (0.1, 0.3)
    ... ]
    >>> rows, logits = torch.tensor([[0.0], [1.0]]), torch.zeros(2, 2)
    >>> bool(torch.isclose(WorstOf(parts)(rows, logits), max(part(rows, logits) for part in parts)))
    True
    """

    def __init__(self, losses: Sequence[DualLoss]) -> None:
        super().__init__()
        if not losses:
            raise ParameterError("losses", "must hold at least one DualLoss", "none", "Pass a list of them.")
        self.parts = nn.ModuleList(losses)

    @property
    def losses(self) -> list[DualLoss]:
        """The objectives, one per decision set."""
        return [part for part in self.parts if isinstance(part, DualLoss)]

    def forward(self, features: Tensor, logits: Tensor, weights: Tensor | None = None) -> Tensor:
        """Compute the largest objective on a batch.

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
            The largest objective, a scalar. The dual variables of each set get the gradient of their own objective.
        """
        if len(self.parts) == 1:
            return self.parts[0](features, logits, weights)
        values = torch.stack([part(features, logits, weights) for part in self.parts])
        alone = torch.stack([part(features, logits.detach(), weights) for part in self.parts])
        worst = torch.zeros_like(values).scatter(0, values.argmax(dim=0, keepdim=True), 1.0)
        others = ((1.0 - worst) * alone).sum()
        return (worst * values).sum() + others - others.detach()

    def project_(self) -> WorstOf:
        """Project every α onto [0, ∞), in place. Call it after every optimizer step.

        Returns
        -------
        WorstOf
            The loss itself.
        """
        for part in self.losses:
            part.project_()
        return self


# Parameters of skorch with a different default here.
_DEFAULTS: dict[str, Any] = {
    "criterion": WorstOf,
    "optimizer": torch.optim.Adam,
    "lr": 0.01,
    "max_epochs": 50,
    "batch_size": 100,
    "train_split": None,
    "iterator_train__shuffle": True,
    "verbose": 0,
}


class RobustNetClassifier(ClassifierMixin, NeuralNet):
    """Train a network to minimize its worst expected log loss over a decision set, and certify it.

    min over weights of  max_μ E_μ[ℓ(x, y)]

    The decision sets are the same as for `RobustLogisticRegression`. Training takes stochastic steps on the dual
    (`DualLoss`). The exact solver then computes the certificate for the trained network. The certificate holds even if
    training did not converge. It does not cover other networks: `lower` bounds the worst-case loss of this network.

    Interrupting the training (Ctrl-C) keeps and certifies the current network.

    Parameters
    ----------
    module : torch module class or instance
        Maps float32 rows (B, d) to logits (B, K). For two classes, one output of shape (B, 1) or (B,) is the logit of
        the second class.
    radius : float, "calibrated" or CalibratedRadius, default="calibrated"
        Radius of the decision set. "calibrated" estimates it from the labels, see `calibrate_radius`. "auto" is not
        supported, because it would train one network per radius.
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities, with classes in sorted order: 95 % intervals from y ("clopper-pearson"), exact values (K,),
        intervals (K, 2), or None for no constraint.
    label_cost : float or array of shape (K, K), default=1.0
        Cost κ of changing a label, or a matrix whose entry [k, c] is the cost of changing label c of a labeled row to
        k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", an object of `surefoot.costs`, or a function.
    embedding : torch module, function or None, default=None
        Distances are measured between embedding(x) and embedding(x'). The embedding is copied and stays fixed.
        docs/neural-networks.md explains the meaning of the certificate in this case.
    classes : array of shape (K,) or None, default=None
        All classes, if some classes may be missing from y.
    tol : float, default=1e-6
        Certified gap of the certificate, absolute, in units of the loss. The default is the same as in `certify`.
    random_state : int or None, default=0
        Seed of the weights and batches. The fixed default gives the same certificate for the same data. The state of
        torch's global generator does not change. None does not set a seed.
    **kwargs : Any
        Parameters of skorch's NeuralNet: `lr=0.01`, `max_epochs=50`, `batch_size=100`, `optimizer=torch.optim.Adam`,
        `device="cpu"`, `verbose=0`, `callbacks`, `compile`, `module__...`, `optimizer__...` and others.

    Attributes
    ----------
    certificate_ : Certificate
        Upper and lower bound on the worst expected loss of the network.
    worst_case_ : WorstCase
        The distribution that attains the lower bound.
    radius_ : float
        Radius of the decision set.
    classes_ : array of shape (K,)
        Classes in sorted order.
    module_ : torch.nn.Module
        The trained network.
    history_ : skorch.history.History
        Skorch's record of each epoch. `train_loss` is the dual objective, an estimate of the bound during training.

    Examples
    --------
    >>> import torch
    >>> from surefoot.nn import RobustNetClassifier
    >>> net = RobustNetClassifier(torch.nn.Linear(1, 2), radius=0.5, label_prior=[0.5, 0.5], max_epochs=2)
    >>> net.fit([[0.0], [1.0]], [0, 1], X_unlabeled=[[0.1], [0.9], [1.1]]).certificate_.status
    'optimal'
    """

    module_: Any  # set by skorch

    def __init__(
        self,
        module: Any,
        *,
        radius: float | str | CalibratedRadius = "calibrated",
        label_prior: LabelPrior | ArrayLike | str | None = "auto",
        label_cost: ArrayLike = 1.0,
        metric: FeatureMetric | str | Callable[..., float] = "euclidean",
        embedding: Any = None,
        classes: ArrayLike | None = None,
        tol: float = 1e-6,
        random_state: int | None = 0,
        **kwargs: Any,
    ) -> None:
        self.radius = radius
        self.label_prior = label_prior
        self.label_cost = label_cost
        self.metric = metric
        self.embedding = embedding
        self.classes = classes
        self.tol = tol
        self.random_state = random_state
        super().__init__(module, **{**_DEFAULTS, **kwargs})

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_unlabeled: ArrayLike | Unlabeled | None = None,
    ) -> RobustNetClassifier:
        """Train on labeled and unlabeled rows, then certify.

        Parameters
        ----------
        X : array of shape (n, d)
            Labeled rows, and possibly rows without a label.
        y : array of shape (n,)
            Their labels. -1, None or NaN mark a row without a label, as for `RobustLogisticRegression`.
        sample_weight : array of shape (n,) or None, default=None
            Number of times each labeled row counts, among the labeled rows and in the feature marginal.
        X_unlabeled : array of shape (M, d), Unlabeled or None, default=None
            Unlabeled rows, bare or in an `Unlabeled`.

        Returns
        -------
        RobustNetClassifier
            The estimator itself, fitted.
        """
        radius, tol = resolve_radius(self.radius), check_positive_scalar(self.tol, "tol")
        X, y, sample_weight, X_unlabeled = move_unlabeled(X, y, sample_weight, X_unlabeled, self.classes)
        rows, codes, weights = check_labeled(self, X, y, sample_weight, self.classes)
        bare, wrapped = unwrap(X_unlabeled)
        U = None if bare is None else check_unlabeled(self, rows, bare)
        if U is not None:
            warn_about_unlabeled(rows, U, len(U), wrapped=wrapped)
        data = LabeledData(rows, codes, weights, U, self.classes_, self._distance())
        problem: dict[str, Any] = {
            "radius": radius,
            "label_prior": self.label_prior,
            "label_cost": self.label_cost,
            "metric": data.metric,  # each problem below learns a learned metric from the same labels
            "classes": self.classes_,
        }
        with self._seeded():
            self._train(data, problem)
        self.certificate_ = certify(
            FrozenNet(frozen_copy(self.module_), self.classes_),
            rows,
            self.classes_[codes],
            X_unlabeled=None if U is None else Unlabeled(U),
            sample_weight=weights,
            tol=tol,
            **problem,
        )
        self.worst_case_, self.radius_ = self.certificate_.worst_case, self.certificate_.radius
        return self

    def _train(self, data: LabeledData, problem: dict[str, Any]) -> None:
        """Train from the dual point of a linear classifier. The targets are the distances of the rows."""
        started = linear_certificate(data.rows, data.classes[data.codes], data.unlabeled, data.weights, **problem)
        if started.row_bound is None:
            raise RuntimeError("the linear classifier's certificate has no dual point")
        anchors = started.row_bound.sets[0].decision_set.anchor_rows
        if anchors is None:
            raise RuntimeError("the decision set does not know its anchors' rows")
        everything = data.everything
        settled, _ = settle_ground_cost(data, self.label_cost, len(everything), everything.__getitem__)
        distances = settled.metric.labeled_distances(everything, data.rows, anchors)
        weights = np.append(data.weights, np.ones(len(everything) - len(data.rows)))
        # skorch does not treat names that end in _ as parameters
        self.sets_ = started.row_bound.sets
        self.row_weights_ = None if np.ptp(weights) == 0 else weights
        try:
            if self.warm_start and self.initialized_:
                self._initialize_criterion()
                self._initialize_optimizer()
            super().fit(everything.astype(np.float32), distances.astype(np.float32))
        finally:
            del self.sets_, self.row_weights_

    def initialize_module(self) -> RobustNetClassifier:
        """Initialize as in skorch. An instance is copied, so that every fit starts from the given weights."""
        super().initialize_module()
        if self.module_ is self.module:
            self.module_ = copy.deepcopy(self.module)
        return self

    def initialize_criterion(self) -> RobustNetClassifier:
        """Use the dual objective of the data as criterion."""
        if not hasattr(self, "sets_"):
            raise ParameterError(
                "y",
                "must be given, since the dual objective is built from the data",
                "none yet",
                "Call fit(X, y, X_unlabeled=U).",
            )
        if self.criterion is not WorstOf:
            raise ParameterError(
                "criterion", "is the dual objective and cannot be chosen", repr(self.criterion), "Leave it out."
            )
        losses = (DualLoss(one.decision_set, None, PRECOMPUTED).set_duals_from(one.point) for one in self.sets_)
        self.criterion_ = WorstOf(list(losses))
        return self

    def get_iterator(self, dataset: Any, training: bool = False) -> Any:
        """Return batches. In training with unequal weights, rows are sampled from the feature marginal."""
        weights = getattr(self, "row_weights_", None)
        if not training or weights is None:
            return super().get_iterator(dataset, training=training)
        keywords = {"batch_size": self.batch_size, **self.get_params_for("iterator_train"), "shuffle": False}
        return self.iterator_train(dataset, sampler=WeightedRandomSampler(weights, len(weights)), **keywords)

    def get_loss(self, y_pred: Tensor, y_true: Tensor, X: Any = None, training: bool = False) -> Tensor:
        """Return the dual objective of a batch. y_true holds the distances to the anchors."""
        distances = to_tensor(y_true, device=self.device)
        if distances.ndim != 2:
            raise ParameterError(
                "y",
                "must be the labels of fit(X, y, X_unlabeled=U), by which a network is trained",
                f"targets of shape {tuple(distances.shape)}, from partial_fit?",
                "Call fit with warm_start=True to go on training.",
            )
        return self.criterion_(distances, y_pred)

    def train_step(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """Take an optimizer step, then project."""
        step = super().train_step(batch, **fit_params)
        self.criterion_.project_()
        return step

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Predict the probability of each class at each row.

        Parameters
        ----------
        X : array of shape (N, d)
            Rows with the same features as in `fit`.

        Returns
        -------
        array of shape (N, K)
            Probabilities, with columns in the order of `classes_`.
        """
        check_is_fitted(self, "certificate_")
        rows: FloatArray = validate_data(self, X, reset=False, dtype=np.float64)
        logits = [out.double().numpy() for out in self.forward_iter(rows.astype(np.float32))]
        return probabilities(np.concatenate(logits))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the most probable class of each row.

        Parameters
        ----------
        X : array of shape (N, d)
            Rows with the same features as in `fit`.

        Returns
        -------
        array of shape (N,)
            Predicted classes.
        """
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _distance(self) -> FeatureMetric:
        metric = resolve_metric(self.metric)
        return metric if self.embedding is None else EmbeddingMetric(self.embedding, metric)

    @contextmanager
    def _seeded(self) -> Iterator[None]:
        if self.random_state is None:
            yield
            return
        with torch.random.fork_rng():
            torch.manual_seed(self.random_state)
            yield
