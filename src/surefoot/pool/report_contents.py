"""What a report holds: plain numbers and texts, no arrays and no drawings.

Texts come from the user's file (names of columns and classes, cells): they are data here, and escaped by `page`.
"""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.bounds.result import ErrorBound
from surefoot.pool.notes import ClassResult, Code, Note, verdict_on

Cell = tuple[str, str]  # a column's name and the value in it
# How a radius was set, by its kind.
RADIUS_NAMES = {
    "auto": "set by a rule of thumb",
    "predictive": "set to predict well",
    "calibrated": "estimated from the labels",
    "number": "set by you",
}
# Against the worst case a weight has vanished if this share of it is left, or less.
_VANISHING = 0.02


@dataclass(frozen=True)
class RelabeledRow:
    """A row whose label the adversary changes.

    row : name of the row; position : its index among all rows, labeled rows first.
    labeled : whether `label` was given (else it is the model's answer).
    confidence : the model's probability of `label`.
    adversary_label, adversary_share : the most probable changed label, and the total probability of changed labels.
    loss_share : part of the worst expected loss that comes from its changed labels.
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

    position : into X_unlabeled; score : the impact that its label has whatever it is.
    proba : (K,) of the model.
    nearest_distance, nearest_label : to the nearest labeled row, and its label (as a text).
    farther_than : share of the unlabeled rows that are nearer to a labeled row.
    reason : in words.
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
    """A row to label next, as shown."""

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
    """Counts of rows and features, the columns (at most a hundred of `n_columns`), and notes of the cleaning."""

    n_labeled: int
    n_unlabeled: int
    n_features: int
    n_columns: int
    columns: tuple[Column, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """A check of the data or of the fit.

    key : names the check. caution : whether the reader should act; otherwise the check found nothing to worry about.
    title, text : in words. items : rows or columns concerned, each a name and a text. n_items : how many there are.
    """

    key: str
    caution: bool
    title: str
    text: str
    items: tuple[Cell, ...] = ()
    n_items: int = 0


@dataclass(frozen=True)
class Head:
    """Title, file, label column, time and command (where given), the version of this package, and the seed."""

    title: str
    label_name: str
    source: str | None
    created: str | None
    version: str
    command: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class LabelShare:
    """Assumption about one class: its share of all rows lies in [low, high]; `n_labeled` rows have this label."""

    name: str
    n_labeled: int
    low: float
    high: float


@dataclass(frozen=True)
class Weight:
    """A feature's weight: its coefficient times its standard deviation, now and when learned against the worst case.

    towards : the class favored by a larger value; worst : None without curves over the radius.
    """

    feature: str
    towards: str
    now: float
    worst: float | None


@dataclass(frozen=True)
class ColumnEffect:
    """How much a column matters to a model that is not linear.

    change : the mean change in the predicted probability if the cell of the column becomes the typical one.
    """

    column: str
    change: float


@dataclass(frozen=True)
class Guarantee:
    """The two statements of the certificate, and the assumptions behind them.

    risk, likelihood : the bound on the expected log loss, and exp(−risk).
    guessing : log K, the loss of equal probabilities for all classes; label_cost : κ, of changing one row's label.
    error : bound on the share of wrong answers over the same decision set.
    status : {"optimal", "separable", "stopped"}
    radius, minimal_radius : of the decision set.
    radius_kind : {"predictive", "auto", "calibrated", "number"}
    level, n_splits : of a calibrated radius, else None; learned_metric : whether it is in a metric learned from labels.
    confidence_threshold : of an "auto" radius, else None.
    prior_kind : {"clopper-pearson", "hypergeometric", "assisted", "exact", "intervals", "none"}; prior_level : of
        intervals that come from the labels.
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
        """Whether the radius was calibrated or given: others are rules that need not cover the truth."""
        return self.radius_kind in ("calibrated", "number")

    @property
    def radius_name(self) -> str:
        return RADIUS_NAMES[self.radius_kind]

    @property
    def excess(self) -> float:
        return max(self.radius - self.minimal_radius, 0.0)

    @property
    def minimal(self) -> bool:
        """Whether the radius is the smallest there is, to rounding."""
        return self.excess <= 1e-6 * max(self.radius, 1e-12)

    @property
    def beats_guessing(self) -> bool:
        return self.risk < self.guessing

    @property
    def label_room(self) -> float:
        """Share of the labels that the radius could pay to change, 1 or more for all."""
        return self.excess / self.label_cost

    @property
    def tied(self) -> bool:
        """Whether the radius grows with the adversary's label shift: estimated, and label shares not exact."""
        return self.radius_kind == "calibrated" and self.prior_kind != "exact"


@dataclass(frozen=True)
class BoundsBar:
    """The certificate as a bar: loss on the labeled rows, both bounds, and the sampling term.

    training : mean log loss on the labeled rows.
    lower, risk : of the certificate; limit : the loss below which no classifier can be certified, if it is known.
    sampled_mean, sampling_error : mean of the bound over future rows and its error; None if there is no such bound.
    sampling_level : float; sampling_rows : int
    guarantee : whether those rows were kept apart. If not, the mean is `risk`, the error that of the rows of the fit: a
        rough guide without a guarantee.
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
    this_model : (m,) bound on the loss of the model of this report.
    best_model : (m,) the same for a model learned at each radius; confidence : (m,) its median confidence.
    chosen : excess of the report's own radius.
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

    relabeled : None where the bin is not about a worst case.
    """

    low: float
    high: float
    n_rows: int
    relabeled: float | None


@dataclass(frozen=True)
class PredictedClass:
    """Unlabeled rows that the model gives to one class, their share, and its mean confidence in them (None if none)."""

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

    moved_labeled, moved_unlabeled : share of the labeled (unlabeled) rows that carry another label than the one given
        (than the model's answer).
    n_labeled, n_unlabeled : rows of each that are given another label more often than not.
    loss : expected log loss of this model under the adversary; loss_moved : the part that comes from changed labels.
    label_shares : (K,) label probabilities that the adversary chose.
    flow : (K, K) over the unlabeled rows, share with the model's answer k (rows) and the adversary's label c (columns).
    rows : those with the largest share of the loss, in order; bins : unlabeled rows by confidence.
    n_looked_at : unlabeled rows over which the worst case was solved.
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
    """All that the page shows.

    shares : of the labels, by class. guarantee, bounds, adversary : None without a worst case; radius : None without
    curves.
    bound : the cross-fitted bound, None without one; by_class : how its cross-validation does on each class.
    max_error : the error rate that is wanted at most, None if nobody said.
    missing : why a part is missing, a sentence each.
    weights : None for a model that is not linear, which has `effects`.
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
        """The verdict on the model, from the bound on its error rate."""
        most = max(self.confidence.classes, key=lambda one: one.share)
        bound = None if self.bound is None else self.bound.value
        n_rows = self.data.n_unlabeled
        return verdict_on(bound, (most.name, most.share), self.most_frequent, n_rows, self.max_error)

    @property
    def is_useful(self) -> bool:
        """Whether the model meets --max-error, or without it, is better than a constant prediction."""
        return self.verdict.code in (Code.VERDICT_BETTER, Code.VERDICT_MET)

    @property
    def most_frequent(self) -> tuple[str, float]:
        """The most frequent label, and its share of the labels."""
        most = max(self.shares, key=lambda share: share.n_labeled)
        return most.name, most.n_labeled / self.data.n_labeled

    @property
    def accuracy(self) -> float | None:
        """Accuracy in cross-validation."""
        return None if self.bound is None else 1.0 - self.bound.n_errors / self.bound.n_labels

    @property
    def weights_vanish(self) -> bool:
        """Whether nothing is left of any weight against the worst case."""
        left = [(one.worst, one.now) for one in self.weights or () if one.worst is not None]
        return bool(left) and all(abs(worst) < _VANISHING * abs(now) for worst, now in left)

    @property
    def contradicted(self) -> bool:
        """Whether a worst case without guarantee lies below what cross-validation finds."""
        stated = self.guarantee
        if stated is None or stated.guaranteed or self.accuracy is None:
            return False
        return 1 - self.accuracy > stated.error

    @property
    def cautions(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.caution)
