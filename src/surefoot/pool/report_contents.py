"""The contents of a report: plain numbers and texts, no arrays and no drawings.

Column names, class names and cells come from the user's file. They are data here, and `page` escapes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.bounds.result import ErrorBound
from surefoot.pool.notes import ClassResult, Code, Note, verdict_on

Cell = tuple[str, str]  # a column name and the value in this column
# How a radius was set, by kind.
RADIUS_NAMES = {
    "auto": "set by a rule of thumb",
    "predictive": "set to predict well",
    "calibrated": "estimated from the labels",
    "number": "set by you",
}
# A weight vanishes in the worst case if at most this share of it is left.
_VANISHING = 0.02


@dataclass(frozen=True)
class RelabeledRow:
    """A row whose label the adversary changes.

    row : name of the row; position : its index among all rows, labeled rows first.
    labeled : whether `label` was given. Otherwise it is the model's prediction.
    confidence : the model's probability of `label`.
    adversary_label, adversary_share : the most probable changed label, and the total probability of changed labels.
    loss_share : part of the worst-case expected loss that comes from the row's changed labels.
    """

    row: str
    position: int
    labeled: bool
    label: str
    confidence: float
    adversary_label: str
    adversary_share: float
    loss_share: float
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Candidate:
    """An unlabeled row to label next.

    position : index in X_unlabeled; score : how much labeling the row changes the model, whichever label it gets.
    proba : (K,) probabilities of the model.
    nearest_distance, nearest_label : distance to the nearest labeled row, and its label as a text.
    farther_than : share of the unlabeled rows that are nearer to a labeled row.
    reason : explanation for the user.
    """

    position: int
    score: float
    proba: tuple[float, ...]
    nearest_distance: float
    nearest_label: str
    farther_than: float
    reason: str


@dataclass(frozen=True)
class NextRow:
    """A row to label next, with its name and cells."""

    row: str
    candidate: Candidate
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Column:
    """One column of the data: its kind, share of missing values, number of distinct values, and typical values."""

    name: str
    kind: str
    missing: float
    distinct: int
    typical: str


@dataclass(frozen=True)
class Data:
    """Numbers of rows and features, the columns (at most a hundred of `n_columns`), and notes on the cleaning."""

    n_labeled: int
    n_unlabeled: int
    n_features: int
    n_columns: int
    columns: tuple[Column, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """The result of a check of the data or of the fit.

    key : name of the check. caution : whether the reader should act. If False, the check found no problem.
    title, text : texts for the reader. items : affected rows or columns, each a name and a text.
    n_items : number of affected rows or columns, of which `items` may list only some.
    """

    key: str
    caution: bool
    title: str
    text: str
    items: tuple[Cell, ...] = ()
    n_items: int = 0


@dataclass(frozen=True)
class Head:
    """Title, file, label column, time and command (if given), the version of this package, and the seed."""

    title: str
    label_name: str
    source: str | None
    created: str | None
    version: str
    command: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class LabelShare:
    """Assumption about one class: its share of all rows lies in [low, high]. `n_labeled` rows have this label."""

    name: str
    n_labeled: int
    low: float
    high: float


@dataclass(frozen=True)
class Weight:
    """A feature's coefficient times its standard deviation, in this model and in one trained for the worst case.

    towards : the class that a larger value favors; worst : None without curves over the radius.
    """

    feature: str
    towards: str
    now: float
    worst: float | None


@dataclass(frozen=True)
class ColumnEffect:
    """How much a column matters to a nonlinear model.

    change : mean change in the predicted probability if the typical cell replaces the row's cell.
    """

    column: str
    change: float


@dataclass(frozen=True)
class Guarantee:
    """The two statements of the certificate, and their assumptions.

    risk, likelihood : the bound on the expected log loss, and exp(−risk).
    guessing : log K, the loss of equal probabilities for all classes; label_cost : κ, of changing one row's label.
    error : upper bound on the error rate over the same decision set.
    status : {"optimal", "separable", "stopped"}
    radius, minimal_radius : of the decision set.
    radius_kind : {"predictive", "auto", "calibrated", "number"}
    level, n_splits : of a calibrated radius, else None; learned_metric : whether the radius uses a metric learned from
        labels.
    confidence_threshold : of an "auto" radius, else None.
    prior_kind : {"clopper-pearson", "hypergeometric", "assisted", "exact", "intervals", "none"}; prior_level :
        confidence level of intervals estimated from the labels.
    """

    risk: float
    likelihood: float
    guessing: float
    label_cost: float
    error: float
    status: str
    radius: float
    minimal_radius: float
    radius_kind: str
    level: float | None
    n_splits: int | None
    learned_metric: bool
    confidence_threshold: float | None
    prior_kind: str
    prior_level: float | None
    shares: tuple[LabelShare, ...]

    @property
    def guaranteed(self) -> bool:
        """Return True if the radius was calibrated or given. Other rules need not cover the true distribution."""
        return self.radius_kind in ("calibrated", "number")

    @property
    def radius_name(self) -> str:
        return RADIUS_NAMES[self.radius_kind]

    @property
    def excess(self) -> float:
        return max(self.radius - self.minimal_radius, 0.0)

    @property
    def minimal(self) -> bool:
        """Return True if the radius is the smallest possible, up to rounding."""
        return self.excess <= 1e-6 * max(self.radius, 1e-12)

    @property
    def beats_guessing(self) -> bool:
        return self.risk < self.guessing

    @property
    def label_room(self) -> float:
        """Share of the labels that the radius allows to change; 1 or more means all."""
        return self.excess / self.label_cost

    @property
    def tied(self) -> bool:
        """Return True if the radius grows with the adversary's label shift: calibrated, and label shares not exact."""
        return self.radius_kind == "calibrated" and self.prior_kind != "exact"


@dataclass(frozen=True)
class BoundsBar:
    """The certificate as a bar: loss on the labeled rows, both bounds, and the sampling term.

    training : mean log loss on the labeled rows.
    lower, risk : bounds of the certificate.
    limit : the loss below which no classifier can be certified, None if unknown.
    sampled_mean, sampling_error : mean of the bound over future rows and its error; None without this bound.
    sampling_level : float; sampling_rows : int
    guarantee : whether the sampling rows were held out. If not, the mean is `risk`, and the error is estimated from the
        rows of the fit. It is then a rough guide without a guarantee.
    """

    training: float
    lower: float
    risk: float
    sampled_mean: float | None
    sampling_error: float | None
    sampling_level: float
    sampling_rows: int
    guarantee: bool
    limit: float | None = None

    @property
    def gap(self) -> float:
        return self.risk - self.lower

    @property
    def sampled(self) -> float | None:
        if self.sampled_mean is None or self.sampling_error is None:
            return None
        return self.sampled_mean + self.sampling_error


@dataclass(frozen=True)
class RadiusChart:
    """Certified loss as the radius grows, over `n_rows` of the `n_all` rows.

    excess : (m,) radius beyond the minimal one, increasing.
    this_model : (m,) upper bound on the loss of the model in this report.
    best_model : (m,) upper bound for a model trained at each radius; confidence : (m,) its median confidence.
    chosen : excess of the report's radius.
    """

    excess: tuple[float, ...]
    this_model: tuple[float, ...]
    best_model: tuple[float, ...]
    confidence: tuple[float, ...]
    chosen: float
    n_rows: int
    n_all: int


@dataclass(frozen=True)
class Bin:
    """Unlabeled rows whose confidence lies in [low, high): their number, and the share that the adversary relabels.

    relabeled : None without a worst case.
    """

    low: float
    high: float
    n_rows: int
    relabeled: float | None


@dataclass(frozen=True)
class PredictedClass:
    """Unlabeled rows predicted to be in one class: number, share, and mean confidence (None without rows)."""

    name: str
    n_rows: int
    share: float
    confidence: float | None


@dataclass(frozen=True)
class Confidence:
    """The probability of the most probable class, over the unlabeled rows."""

    median: float
    above_90: float
    below_60: float
    bins: tuple[Bin, ...]
    classes: tuple[PredictedClass, ...]


@dataclass(frozen=True)
class ReportedWorstCase:
    """The worst case behind the lower bound.

    moved_labeled, moved_unlabeled : share of the labeled (unlabeled) rows that the adversary relabels. The reference is
        the given label (the model's prediction).
    n_labeled, n_unlabeled : number of labeled (unlabeled) rows relabeled with probability above 1/2.
    loss : expected log loss of this model under the adversary; loss_moved : the part that comes from changed labels.
    label_shares : (K,) label probabilities that the adversary chose.
    flow : (K, K) share of the unlabeled rows by the model's prediction (rows) and the adversary's label (columns).
    rows : rows with the largest share of the loss, largest first; bins : unlabeled rows by confidence.
    n_looked_at : number of unlabeled rows in the worst-case problem.
    """

    moved_labeled: float
    moved_unlabeled: float
    n_labeled: int
    n_unlabeled: int
    loss: float
    loss_moved: float
    label_shares: tuple[float, ...]
    flow: tuple[tuple[float, ...], ...]
    rows: tuple[RelabeledRow, ...]
    bins: tuple[Bin, ...]
    n_looked_at: int

    @property
    def moved_part(self) -> float:
        return self.loss_moved / self.loss if self.loss > 0 else 0.0


@dataclass(frozen=True)
class Report:
    """The contents of the page.

    shares : label shares by class.
    guarantee, bounds, adversary : None without a worst case; radius : None without curves.
    bound : the cross-fitted bound, or None; by_class : its cross-validation results for each class.
    max_error : the largest acceptable error rate, None if not given.
    missing : one sentence per missing part, with the reason.
    weights : None for a nonlinear model, which has `effects`.
    findings : results of the checks, cautions first; next_command : the next command to run.
    """

    head: Head
    classes: tuple[str, ...]
    shares: tuple[LabelShare, ...]
    guarantee: Guarantee | None
    bounds: BoundsBar | None
    radius: RadiusChart | None
    confidence: Confidence
    adversary: ReportedWorstCase | None
    next_rows: tuple[NextRow, ...]
    data: Data
    findings: tuple[Finding, ...]
    bound: ErrorBound | None
    missing: tuple[str, ...]
    next_command: str | None
    weights: tuple[Weight, ...] | None
    by_class: tuple[ClassResult, ...] = ()
    max_error: float | None = None
    effects: tuple[ColumnEffect, ...] = ()

    @property
    def n_rows(self) -> int:
        return self.data.n_labeled + self.data.n_unlabeled

    @property
    def verdict(self) -> Note:
        """The verdict on the model, based on the bound on its error rate."""
        most = max(self.confidence.classes, key=lambda one: one.share)
        bound = None if self.bound is None else self.bound.value
        n_rows = self.data.n_unlabeled
        return verdict_on(bound, (most.name, most.share), self.most_frequent, n_rows, self.max_error)

    @property
    def is_useful(self) -> bool:
        """Return True if the model meets --max-error or, without this option, beats a constant prediction."""
        return self.verdict.code in (Code.VERDICT_BETTER, Code.VERDICT_MET)

    @property
    def most_frequent(self) -> tuple[str, float]:
        """The most frequent label and its share of the labels."""
        most = max(self.shares, key=lambda share: share.n_labeled)
        return most.name, most.n_labeled / self.data.n_labeled

    @property
    def accuracy(self) -> float | None:
        """Accuracy in cross-validation."""
        return None if self.bound is None else 1.0 - self.bound.n_errors / self.bound.n_labels

    @property
    def weights_vanish(self) -> bool:
        """Return True if no weight is left in the worst case."""
        left = [(one.worst, one.now) for one in self.weights or () if one.worst is not None]
        return bool(left) and all(abs(worst) < _VANISHING * abs(now) for worst, now in left)

    @property
    def contradicted(self) -> bool:
        """Return True if the error bound of a worst case without guarantee is below the cross-validated error."""
        stated = self.guarantee
        if stated is None or stated.guaranteed or self.accuracy is None:
            return False
        return 1 - self.accuracy > stated.error

    @property
    def cautions(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.caution)
