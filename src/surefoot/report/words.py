"""The promise and its assumptions in plain words. Plain texts: the page escapes them."""

from __future__ import annotations

from surefoot._printing import percent, rounded_down, rounded_up
from surefoot.pool.summary.contents import Adversary, Bounds, Confidence, Promise, RadiusCurve

_CALIBRATED = (
    "It is an estimate from {splits} random splits of the labeled rows. It is meant to cover the truth for {level} of "
    "samples, if the labeled rows were picked at random. How often it does was measured on 14 datasets. It is not a "
    "theorem."
)


def radius_assumption(promise: Promise, label_cost: float) -> list[str]:
    """What is assumed about the radius, and where it comes from."""
    if promise.tied:
        return [
            f"From the labeled rows to all rows with their true labels is at most {promise.excess:.4g} farther than "
            f"the features ({promise.minimal_radius:.4g}) and the change in label shares need. (Distance: how far the "
            f"labeled rows must be moved, on average, to become all rows, plus {label_cost:.4g} for each label that is "
            "changed.) So this is no one radius: it grows with the change in label shares.",
            _CALIBRATED.format(splits=promise.n_splits, level=percent(promise.level or 0)),
        ]
    first = (
        f"All rows with their true labels are no farther from the labeled rows than the radius, {promise.radius:.4g}. "
        f"(Distance: how far the labeled rows must be moved, on average, to become all rows, plus {label_cost:.4g} for "
        "each label that is changed.)"
    )
    if promise.radius_kind == "auto" and promise.minimal:
        return [
            first,
            "This is the smallest radius at which any labels fit: even there, half of the rows get an answer with less "
            f"than {percent(promise.confidence_threshold or 0)} confidence. So the rule of thumb found no larger one. "
            "Nothing proves that it covers the truth, and it leaves no room for error.",
        ]
    if promise.radius_kind == "auto":
        return [
            first,
            "This radius is a rule of thumb: the largest at which half of the rows still get an answer with "
            f"{percent(promise.confidence_threshold or 0)} confidence or more. It looks at no hidden label. Nothing "
            "proves that it covers the truth.",
        ]
    if promise.radius_kind == "predictive":
        return [
            first,
            "This radius was chosen for learning: a little above the smallest one, which predicts well. Nothing says "
            "that it covers the truth.",
        ]
    if promise.radius_kind == "calibrated":
        return [first, _CALIBRATED.format(splits=promise.n_splits, level=percent(promise.level or 0))]
    return [
        first,
        "You set this number. The promise is as good as your reason for it: nothing in the data can prove it.",
    ]


def distance_in_words(promise: Promise, label_cost: float) -> str:
    """How much room the radius leaves, as a share of labels."""
    spent = f"Of this radius, {promise.minimal_radius:.4g} is needed to get from the labeled rows to all rows at all."
    if promise.tied:
        share = min(promise.excess / label_cost, 1.0)
        return (
            f"The {promise.excess:.3g} are enough to change any {percent(share, 1)} of the labels, besides the change "
            "in label shares. Where rows of different classes lie close together, it is enough for more."
        )
    if promise.minimal:
        return f"{spent} Nothing is left to spend on labels."
    share = promise.excess / label_cost
    if share >= 1:
        return f"{spent} The rest, {promise.excess:.3g}, is enough to change every label."
    return (
        f"{spent} The rest, {promise.excess:.3g}, is enough to change any {percent(share, 1)} of the labels. Where "
        "rows of different classes lie close together, it is enough for more."
    )


def shares_assumption(promise: Promise) -> str:
    """What is assumed about label shares."""
    from_labels = {
        "clopper-pearson": "Clopper and Pearson",
        "hypergeometric": "hypergeometric",
        "assisted": "helped by the unlabeled rows, by a coverage that was measured and not proved",
    }
    if promise.prior_kind in from_labels:
        return (
            "The share of each class among all rows lies in its interval below. The intervals come from the labels "
            f"({from_labels[promise.prior_kind]}, {percent(promise.prior_level or 0)} each). They hold if the labeled "
            "rows were picked at random."
        )
    if promise.prior_kind == "exact":
        return "The shares of the classes among all rows are those below. You gave them; the labels do not prove them."
    if promise.prior_kind == "none":
        return "Nothing is assumed about how common each class is."
    return "The share of each class among all rows lies in its interval below. You gave these intervals."


def classes_assumption(classes: tuple[str, ...]) -> str:
    """That the labels show all classes, or that the others were named."""
    shown = ", ".join(classes[:8]) + (f" and {len(classes) - 8} more" if len(classes) > 8 else "")
    return (
        f"Every row is one of {shown}. A class that no label shows can be named when the model is learned (--classes)."
    )


def rows_assumption(bounds: Bounds, n_all: int, *, is_promise: bool = True) -> str:
    """What is promised of which rows."""
    if not is_promise:
        return f"The worst case is that of the {n_all:,} rows given. Rows to come may be harder."
    if bounds.guarantee:
        return (
            f"The promise is about the {n_all:,} rows given. {bounds.sampling_rows:,} more rows were kept apart, so "
            "that a promise about rows to come could be added: see the sampling term below."
        )
    return (
        f"The promise is about the {n_all:,} rows given: the labeled and the unlabeled ones. Rows to come may be "
        "harder. No rows were kept apart, so nothing is promised about them."
    )


def sampling_in_words(bounds: Bounds) -> str:
    """What the sampling term says."""
    level = percent(bounds.sampling_level)
    if bounds.sampling_error is None or bounds.sampled is None:
        return (
            f"Nothing can be said about rows to come at {level}: {bounds.sampling_rows:,} rows are too few, or the "
            "radius is so small that the bound hangs on single rows."
        )
    if bounds.guarantee:
        return (
            f"{bounds.sampling_rows:,} rows were kept apart. With {level} probability over their draw, the loss on "
            f"rows from the same source is at most {rounded_up(bounds.sampled, 3)}, if the assumptions hold for that "
            "source."
        )
    return (
        "The sampling term shows how far chance alone could move the bound on as many new rows from the same source "
        f"(one-sided, {level}). It is a rough guide. It is no guarantee, since the model has seen these rows."
    )


def curve_in_words(curve: RadiusCurve, promise: Promise) -> str:
    """Which rows the curve was computed on."""
    text = (
        "The scale counts from the minimal radius, below which no labels fit the assumptions. It is logarithmic: each "
        "step to the right multiplies what the worst case may spend."
    )
    if promise.minimal:
        text += " The chosen radius is the minimal one, beyond the left edge."
    if curve.n_rows < curve.n_all:
        return (
            f"{text} The curves were computed on {curve.n_rows:,} of the {curve.n_all:,} rows, drawn at random, so "
            "the ring, which is the certificate itself, may lie a little off."
        )
    return text


def confidence_in_words(confidence: Confidence) -> str:
    """Median confidence and the two ends."""
    return (
        f"Half of the unlabeled rows get an answer with at least {percent(confidence.median)} confidence. "
        f"With 90\N{NO-BREAK SPACE}% or more: {percent(confidence.above_90)} of them. "
        "With less than 60\N{NO-BREAK SPACE}%: "
        f"{percent(confidence.below_60)}."
    )


def adversary_in_words(adversary: Adversary, n_labeled: int, n_unlabeled: int) -> list[str]:
    """What the worst case does."""
    part = adversary.loss_moved / adversary.loss if adversary.loss > 0 else 0.0
    return [
        "The worst case is one particular way to label all rows that still fits the assumptions. Nobody says that it "
        "is true. It shows where the promise could break, and so where to look.",
        f"It disagrees with the model on {percent(adversary.moved_unlabeled)} of the {n_unlabeled:,} unlabeled rows, "
        f"and with the label given on {percent(adversary.moved_labeled)} of the {n_labeled:,} labeled rows. These "
        f"disagreements make up {percent(part)} of the worst expected loss, {rounded_down(adversary.loss, 3)}.",
    ]
