"""Query strategies: thin classes around the scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot._errors import ParameterError
from surefoot._validation import FloatArray
from surefoot.active.base import CandidatePool, QueryStrategy, classes_so_far
from surefoot.active.flexibility import check_impact
from surefoot.active.impact import (
    expected_model_change,
    gradient_impact,
    max_model_change,
    min_model_change,
    robust_model_change,
    spread_over,
)
from surefoot.costs.metrics import FeatureMetric
from surefoot.priors import LabelPrior

Impact = Literal["gradient"] | Callable[[Any, FloatArray], ArrayLike]


class RandomSampling(QueryStrategy):
    """Sample rows uniformly at random.

    Parameters
    ----------
    missing_label : NaN, None or a label, default=NaN
        Marks a row without a label.
    random_state : int, RandomState or None, default=None
        Seed of the sample.

    Examples
    --------
    >>> import numpy as np
    >>> RandomSampling(random_state=0).query([[0.0], [1.0], [2.0]], [0, np.nan, 1])
    array([1])
    """

    max_candidates = None

    def __init__(self, missing_label: Any = np.nan, random_state: Any = None) -> None:
        self.missing_label = missing_label
        self.random_state = random_state

    def is_random(self, n_labels: int) -> bool:
        """Return True, because each row is a random sample of the unlabeled rows.

        Parameters
        ----------
        n_labels : int
            Number of earlier labels.

        Returns
        -------
        bool
            True.
        """
        return True

    def _model(self, clf: Any, pool: CandidatePool, fit_clf: bool, sample_weight: ArrayLike | None) -> None:
        """Return no classifier, because all rows tie."""

    def _utilities(self, model: Any, pool: CandidatePool, positions: NDArray[np.intp]) -> FloatArray:
        return np.zeros(len(positions))


class ModelChange(QueryStrategy):
    """Score rows by their impacts f (m, K). This is the base class of four strategies.

    Parameters
    ----------
    impact : "gradient" or function(clf, X) -> array (N, K), default="gradient"
        "gradient": gradient norms, in closed form for linear logistic classifiers, by torch for torch modules.
    feature_norm : bool, default=True
        Whether the closed form includes the factor ‖x̃‖. The paper's appendix omits it for Min and Max.
    classes : array of shape (K,) or None, default=None
        All classes, if some classes may be missing from both the classifier and the labels.
    max_candidates : int or None, default=None
        Number of randomly sampled candidates to score (100 in the paper). None scores all candidates.
    missing_label : NaN, None or a label, default=NaN
        Marks a row without a label.
    random_state : int, RandomState or None, default=None
        Seed for sampling candidates and breaking ties.
    """

    def __init__(
        self,
        impact: Impact = "gradient",
        *,
        feature_norm: bool = True,
        classes: ArrayLike | None = None,
        max_candidates: int | None = None,
        missing_label: Any = np.nan,
        random_state: Any = None,
    ) -> None:
        self.impact = impact
        self.feature_norm = feature_norm
        self.classes = classes
        self.max_candidates = max_candidates
        self.missing_label = missing_label
        self.random_state = random_state

    def _impacts(self, clf: Any, rows: FloatArray) -> FloatArray:
        """Compute the (m, K) impacts of the rows."""
        classes = classes_so_far(self.classes, clf)
        if callable(self.impact):
            found = np.asarray(self.impact(clf, rows))
            return check_impact(found, len(rows), found.shape[-1] if classes is None else len(classes))
        if self.impact != "gradient":
            raise ParameterError(
                "impact", 'must be "gradient" or a function(clf, X) -> (N, K)', repr(self.impact), "Pass one of these."
            )
        return gradient_impact(clf, rows, classes=classes, feature_norm=self.feature_norm)


class ExpectedModelChange(ModelChange):
    """Select the rows with the largest expected impact under the classifier's probabilities (EMC).

    Parameters
    ----------
    impact : "gradient" or function(clf, X) -> array (N, K), default="gradient"
        "gradient": gradient norms, in closed form for linear logistic classifiers, by torch for torch modules.
    feature_norm : bool, default=True
        Whether the closed form includes the factor ‖x̃‖. The paper's appendix omits it for Min and Max.
    classes : array of shape (K,) or None, default=None
        All classes, if some classes may be missing from both the classifier and the labels.
    max_candidates : int or None, default=None
        Number of randomly sampled candidates to score (100 in the paper). None scores all candidates.
    missing_label : NaN, None or a label, default=NaN
        Marks a row without a label.
    random_state : int, RandomState or None, default=None
        Seed for sampling candidates and breaking ties.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = [[0.0], [1.0], [0.45], [0.1]], [0, 1, np.nan, np.nan]
    >>> ExpectedModelChange().query(X, y, LogisticRegression())
    array([2])
    """

    def _utilities(self, model: Any, pool: CandidatePool, positions: NDArray[np.intp]) -> FloatArray:
        rows = pool.rows(positions)
        proba = spread_over(model.predict_proba(rows), model.classes_, classes_so_far(self.classes, model))
        return expected_model_change(self._impacts(model, rows), proba)


class MinModelChange(ModelChange):
    """Select the rows with the largest impact that is certain for any label (Min MC).

    Parameters
    ----------
    impact : "gradient" or function(clf, X) -> array (N, K), default="gradient"
        "gradient": gradient norms, in closed form for linear logistic classifiers, by torch for torch modules.
    feature_norm : bool, default=True
        Whether the closed form includes the factor ‖x̃‖. The paper's appendix omits it for Min and Max.
    classes : array of shape (K,) or None, default=None
        All classes, if some classes may be missing from both the classifier and the labels.
    max_candidates : int or None, default=None
        Number of randomly sampled candidates to score (100 in the paper). None scores all candidates.
    missing_label : NaN, None or a label, default=NaN
        Marks a row without a label.
    random_state : int, RandomState or None, default=None
        Seed for sampling candidates and breaking ties.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = [[0.0], [1.0], [0.45], [0.1]], [0, 1, np.nan, np.nan]
    >>> MinModelChange().query(X, y, LogisticRegression())
    array([2])
    """

    def _utilities(self, model: Any, pool: CandidatePool, positions: NDArray[np.intp]) -> FloatArray:
        return min_model_change(self._impacts(model, pool.rows(positions)))


class MaxModelChange(ModelChange):
    """Select the rows with the largest impact over all labels (Max MC).

    Parameters
    ----------
    impact : "gradient" or function(clf, X) -> array (N, K), default="gradient"
        "gradient": gradient norms, in closed form for linear logistic classifiers, by torch for torch modules.
    feature_norm : bool, default=True
        Whether the closed form includes the factor ‖x̃‖. The paper's appendix omits it for Min and Max.
    classes : array of shape (K,) or None, default=None
        All classes, if some classes may be missing from both the classifier and the labels.
    max_candidates : int or None, default=None
        Number of randomly sampled candidates to score (100 in the paper). None scores all candidates.
    missing_label : NaN, None or a label, default=NaN
        Marks a row without a label.
    random_state : int, RandomState or None, default=None
        Seed for sampling candidates and breaking ties.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = [[0.0], [1.0], [0.45], [0.1]], [0, 1, np.nan, np.nan]
    >>> MaxModelChange().query(X, y, LogisticRegression())
    array([2])
    """

    def _utilities(self, model: Any, pool: CandidatePool, positions: NDArray[np.intp]) -> FloatArray:
        return max_model_change(self._impacts(model, pool.rows(positions)))


class RobustModelChange(ModelChange):
    """Select the rows with the largest impact that every distribution in the decision set guarantees.

    The scores follow section 6.2 of the paper. With exact label probabilities, this is the paper's DR (strong). With
    intervals, it is DR (weak). Distances are measured between the rows X as passed to query.

    Parameters
    ----------
    label_prior : "auto", "clopper-pearson", array (K,), array (K, 2), LabelPrior or None, default="auto"
        Label probabilities. "clopper-pearson" computes 95 % intervals from all current labels, which the queries have
        biased. The paper computes intervals from the first labels, which are random. To do the same, pass these
        intervals as an array.
    margin : float or None, default=None
        Added to the radius that a rule finds. None means 0.1·κ/N, see `label_flexibility`.
    radius : float, "ends" or "minimal", default="ends"
        Radius of the decision set, or the rule that finds it: see `label_flexibility`.
    label_cost : float or array of shape (K, K), default=1.0
        Cost κ of changing a label, or a matrix whose entry [k, c] is the cost of changing label c of a labeled row to
        k.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows: "euclidean", "manhattan", "chebyshev", an object of `surefoot.costs`, or a function.
    impact : "gradient" or function(clf, X) -> array (N, K), default="gradient"
        "gradient": gradient norms, in closed form for linear logistic classifiers, by torch for torch modules.
    feature_norm : bool, default=True
        Whether the closed form includes the factor ‖x̃‖. The paper's appendix omits it for Min and Max.
    classes : array of shape (K,) or None, default=None
        All classes, if some classes may be missing from both the classifier and the labels.
    max_candidates : int or None, default=None
        Number of randomly sampled candidates to score (100 in the paper). None scores all candidates.
    missing_label : NaN, None or a label, default=NaN
        Marks a row without a label.
    random_state : int, RandomState or None, default=None
        Seed for sampling candidates and breaking ties.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = [[0.0], [1.0], [0.45], [0.1]], [0, 1, np.nan, np.nan]
    >>> RobustModelChange(label_prior=[0.5, 0.5]).query(X, y, LogisticRegression())
    array([2])
    """

    def __init__(
        self,
        label_prior: LabelPrior | ArrayLike | str | None = "auto",
        margin: float | None = None,
        *,
        radius: float | Literal["ends", "minimal"] = "ends",
        label_cost: ArrayLike = 1.0,
        metric: FeatureMetric | str | Callable[..., float] = "euclidean",
        impact: Impact = "gradient",
        feature_norm: bool = True,
        classes: ArrayLike | None = None,
        max_candidates: int | None = None,
        missing_label: Any = np.nan,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            impact,
            feature_norm=feature_norm,
            classes=classes,
            max_candidates=max_candidates,
            missing_label=missing_label,
            random_state=random_state,
        )
        self.label_prior = label_prior
        self.margin = margin
        self.radius = radius
        self.label_cost = label_cost
        self.metric = metric

    def _utilities(self, model: Any, pool: CandidatePool, positions: NDArray[np.intp]) -> FloatArray:
        if pool.extra is not None:
            raise ParameterError(
                "candidates",
                "of RobustModelChange must be rows of X, which make up P_X",
                "rows",
                "Append them to X, with missing labels, and pass their indices.",
            )
        if not pool.labeled.any():
            raise ParameterError(
                "y",
                "must hold labels for RobustModelChange",
                "none",
                "Label some rows with RandomSampling first, or pass X= and y= in the plain interface.",
            )
        unlabeled = np.flatnonzero(~pool.labeled)
        return self._scores(
            self._impacts(model, pool.rows(positions)),
            pool.X[pool.labeled],
            pool.labels,
            X_unlabeled=pool.X[unlabeled],
            radius=self.radius,
            margin=self.margin,
            label_prior=self.label_prior,
            label_cost=self.label_cost,
            metric=self.metric,
            classes=classes_so_far(self.classes, model),
            candidates=np.searchsorted(unlabeled, positions),
        )

    def _scores(self, *arguments: Any, **keywords: Any) -> FloatArray:
        return robust_model_change(*arguments, **keywords)
