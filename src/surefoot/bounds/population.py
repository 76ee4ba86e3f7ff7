"""Compare the labeled rows with another population: transport distance, a classifier, each feature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import ks_2samp, mannwhitneyu
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.utils.validation import _get_feature_names

from surefoot._errors import ParameterError
from surefoot._printing import PrintsAsTable, visible
from surefoot._validation import FloatArray, check_labeled_rows
from surefoot.backends.compute import Compute
from surefoot.costs.metrics import FeatureMetric
from surefoot.problem.placement import check_problem
from surefoot.problem.rows import Unlabeled
from surefoot.solvers.transport import solve_transport

# If there are more target rows, the test and the feature statistics use a random sample of this size.
# The minimal radius always uses all rows.
_MOST_ROWS = 5000
_FEWEST_LABELED = 4
_N_SPLITS = 10
_LISTED = 5


@dataclass(frozen=True)
class MovedFeature:
    """Shift of one feature.

    Attributes
    ----------
    name : str
        Name of the feature, or its index.
    distance : float
        Largest difference of the two distribution functions (Kolmogorov–Smirnov distance), from 0 to 1.
    difference : float
        Median of the target minus median of the labeled rows, in units of the labeled rows' interquartile range. If
        that range is 0, the unit is the standard deviation; if all values are equal, it is 1.
    p_value : float
        p-value of the Kolmogorov–Smirnov test, times the number of features.
    """

    name: str
    distance: float
    difference: float
    p_value: float


@dataclass(frozen=True, eq=False, repr=False)
class Shift(PrintsAsTable):
    """Shift between the labeled rows and a target population.

    Attributes
    ----------
    minimal_radius : float
        Transport distance between the features of the labeled rows and of the target. It is the smallest radius of a
        decision set with the target's feature marginal.
    within_labeled : float
        Average transport distance between random halves of the labeled rows. This is the distance to expect without a
        shift, at half the number of labels.
    separability : float
        Area under the ROC curve of a classifier that separates target rows from labeled rows, on rows it has not seen:
        0.5 for no separation, 1 for perfect separation.
    p_value : float
        p-value of the test that both are samples of one population. The rows must be random samples on both sides.
    features : tuple of MovedFeature
        All features, largest shift first.
    n_labeled : int
        Number of labeled rows.
    n_target : int
        Number of target rows.
    """

    minimal_radius: float
    within_labeled: float
    separability: float
    p_value: float
    features: tuple[MovedFeature, ...]
    n_labeled: int
    n_target: int

    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            ("rows", f"{self.n_labeled} labeled, {self.n_target} of the target"),
            (
                "minimal radius",
                f"{self.minimal_radius:.4g}  (between random halves of the labeled rows: {self.within_labeled:.4g})",
            ),
            ("separability", f"{self.separability:.3f} (area under the ROC curve; 0.5 means none)"),
            ("p-value", f"{self.p_value:.3g}  ({self.in_words})"),
        ]
        for at, one in enumerate(self.features[:_LISTED]):
            text = f"{visible(one.name)}: KS distance {one.distance:.3f}, median {one.difference:+.2f} IQR"
            rows.append(("largest shifts" if at == 0 else "", f"{text}, p {one.p_value:.2g}"))
        return rows

    @property
    def in_words(self) -> str:
        """Interpretation of the p-value."""
        if self.p_value <= 0.05:
            return "two populations: bounds for the labeled population do not hold for the target"
        return "no shift detected; a small sample can hide one"


def shift(
    X: ArrayLike,
    y: ArrayLike,
    X_target: ArrayLike | Unlabeled,
    *,
    metric: FeatureMetric | str | Callable[..., float] = "euclidean",
    classifier: Any = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    compute: Compute | None = None,
) -> Shift:
    """Measure the shift between the labeled rows and the rows of another population.

    A classifier is trained on a random half of all rows to separate target rows from labeled rows. A Mann–Whitney test
    compares its scores on the second half. The halves are then swapped. The p-value is twice the smaller p-value.

    Parameters
    ----------
    X : array of shape (n, d)
        Labeled rows, at least four.
    y : array of shape (n,)
        Their labels.
    X_target : array of shape (M, d), Unlabeled or None
        Rows of the target population, at least four. A memory map, `ParquetRows`, or a Dask array or dataframe also
        works.
    metric : str, FeatureMetric or callable, default="euclidean"
        Distance d between rows.
    classifier : classifier or None, default=None
        Classifier with predict_proba that separates target rows from labeled rows. The default is a random forest.
    random_state : int, default=0
        Seed of the halves, the forest and the sample of target rows. The fixed default gives the same result for the
        same data.
    n_jobs : int or None, default=None
        Number of threads over blocks of rows.
    compute : Compute or None, default=None
        Device for sums over blocks of rows, such as a GPU, and memory limit. None: in memory up to 2^24 distances, in
        blocks beyond.

    Returns
    -------
    Shift
        Minimal radius, test result and features, printed as a table.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(40, 2)), np.arange(40) % 2
    >>> found = shift(X, y, rng.normal(size=(100, 2)) + [2.0, 0.0])
    >>> found.features[0].name, found.p_value < 0.01
    ('feature 0', True)
    """
    rows, _ = check_labeled_rows(X, y)
    # without label intervals the radius does not depend on the labels, so one class is enough
    problem = check_problem(
        X,
        np.zeros(len(rows)),
        X_target=X_target,
        classes=[0, 1],
        label_prior=None,
        metric=metric,
        compute=compute,
        n_jobs=n_jobs,
    )
    labeled, n_target = problem.data.rows, problem.n_rows
    target = problem.sample(_MOST_ROWS, random_state).data.everything
    if min(len(labeled), len(target)) < _FEWEST_LABELED:
        raise ParameterError(
            "X",
            f"and X_target must have at least {_FEWEST_LABELED} rows each",
            f"{len(labeled)} and {len(target)}",
            "Pass more rows.",
        )
    rng = np.random.default_rng(random_state)
    told, p = _told_apart(labeled, target, classifier, random_state, rng)
    between = problem.data.distances_between_labeled()
    return Shift(
        problem.minimal.value,
        float(np.mean([_half_distance(between, rng) for _ in range(_N_SPLITS)])),
        told,
        p,
        _moved(labeled, target, _get_feature_names(X)),
        len(labeled),
        n_target,
    )


def _told_apart(
    labeled: FloatArray, target: FloatArray, classifier: Any, seed: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the area under the ROC curve on held-out rows and the p-value, by two-fold cross-fitting."""
    if classifier is None:
        classifier = RandomForestClassifier(100, min_samples_leaf=3, class_weight="balanced", random_state=seed)
    rows = np.vstack([labeled, target])
    is_target = np.arange(len(rows)) >= len(labeled)
    fold = np.empty(len(rows), dtype=np.intp)
    for side in (is_target, ~is_target):
        fold[side] = rng.permutation(np.arange(int(side.sum())) % 2)
    areas, p_values = [], []
    for held in (fold == 0, fold == 1):
        model = clone(classifier).fit(rows[~held], is_target[~held])
        scores = model.predict_proba(rows[held])[:, 1]
        theirs, ours = scores[is_target[held]], scores[~is_target[held]]
        found = mannwhitneyu(theirs, ours, alternative="greater")
        areas.append(float(found.statistic) / (len(theirs) * len(ours)))
        p_values.append(float(found.pvalue))
    return float(np.mean(areas)), min(1.0, 2.0 * min(p_values))


def _half_distance(between: FloatArray, rng: np.random.Generator) -> float:
    """Return the transport distance between two random halves of the labeled rows, given distances (n, n)."""
    A, B = np.array_split(rng.permutation(len(between)), 2)
    return solve_transport(
        np.ascontiguousarray(between[np.ix_(A, B)]), np.full(len(A), 1 / len(A)), np.full(len(B), 1 / len(B))
    ).cost


def _moved(labeled: FloatArray, target: FloatArray, names: NDArray[Any] | None) -> tuple[MovedFeature, ...]:
    found = []
    for at in range(labeled.shape[1]):
        ours, theirs = labeled[:, at], target[:, at]
        tested = ks_2samp(ours, theirs, method="asymp")
        spread = float(np.subtract(*np.quantile(ours, [0.75, 0.25]))) or float(ours.std()) or 1.0
        name = f"feature {at}" if names is None else str(names[at])
        difference = float(np.median(theirs) - np.median(ours)) / spread
        p = min(1.0, float(tested.pvalue) * labeled.shape[1])
        found.append(MovedFeature(name, float(tested.statistic), difference, p))
    return tuple(sorted(found, key=lambda one: -one.distance))
