"""The sections of the page, from the contents of a report."""

from __future__ import annotations

from surefoot._printing import at_least, at_most, percent, rounded_down, rounded_up
from surefoot.pool.summary.contents import RADIUS_NAMES, Cell, Finding, NextRow, Promise, Report
from surefoot.report import words
from surefoot.report.charts import both_widths, certificate_bar, confidence_line, histogram, radius_lines
from surefoot.report.html import Html, el, join, table

# Tables of label by label are shown up to this many classes.
_MOST_CLASSES = 8


def section(name: str, heading: str, *parts: Html) -> Html:
    """A section with its heading of level 2."""
    return el("section", el("h2", heading, id=f"{name}-heading"), *parts, id=name, aria_labelledby=f"{name}-heading")


def paragraphs(*texts: str) -> Html:
    """One paragraph per text."""
    return join([el("p", text) for text in texts])


def legend(*entries: tuple[str, str, str]) -> Html:
    """What the parts of a drawing are: a swatch's class, a name, and a value."""
    items = [
        el("li", el("span", class_=f"swatch {kind}", aria_hidden="true"), el("span", name), el("b", value))
        for kind, name, value in entries
    ]
    return el("ul", *items, class_="legend")


def numbers(summary: str, content: Html) -> Html:
    """A table that opens on demand."""
    return el("details", el("summary", summary), content)


def promise_section(report: Report) -> Html:
    """The promise in words and numbers, and its assumptions."""
    promise, n_all = report.promise, report.data.n_labeled + report.data.n_unlabeled
    figures = [
        ("At most", at_most(promise.error), "of the rows get a wrong answer"),
        ("At least", at_least(promise.likelihood), "probability for the true label, on average"),
        (
            "At most",
            rounded_up(promise.risk, 3),
            f"expected log loss (guessing:\N{NO-BREAK SPACE}{promise.guessing:.3f})",
        ),
    ]
    cards = [
        el("li", el("span", bound), el("b", number), el("span", text), class_="figure-card")
        for bound, number, text in figures
    ]
    lead = f"Whatever the true labels of these {n_all:,} rows are, if the four assumptions below hold:"
    heading = "What is promised in the worst case"
    if not promise.is_promise:
        heading = f"The worst case within radius {promise.radius:.4g}: not a promise"
        lead = f"The truth may lie outside. If all four assumptions held, then for these {n_all:,} rows:"
    if promise.beats_guessing and not report.contradicted:
        verdict = Html("")
    elif report.contradicted:
        verdict = el(
            "p",
            f"Cross-validation finds more errors than this, about {percent(1 - (report.said.accuracy or 0.0))}: the "
            "truth very likely lies outside this set.",
            class_="notice",
        )
    else:
        verdict = el(
            "p",
            "This bound is no better than that of guessing. The model may be good, but this is not shown here.",
            class_="notice",
        )
    items = [
        ("The radius is large enough", [*words.radius_assumption(promise, report.radius.label_cost), _room(report)]),
        ("The label shares are right", [words.shares_assumption(promise)]),
        ("There are no other classes", [words.classes_assumption(report.classes)]),
        (
            "These rows are the ones that count",
            [words.rows_assumption(report.bounds, n_all, is_promise=promise.is_promise)],
        ),
    ]
    listed = [el("li", el("h4", heading), paragraphs(*texts)) for heading, texts in items]
    return section(
        "promise",
        heading,
        el("p", lead, class_="lead"),
        el("ul", *cards, class_="figures"),
        verdict,
        paragraphs(
            "These bounds are computed for this model, not estimated from held-out rows. (The average is the geometric "
            "mean.)"
        ),
        el("h3", "Under which assumptions", class_="over-list"),
        el("ol", *listed, class_="assumptions"),
        _shares_table(report),
    )


def _room(report: Report) -> str:
    return words.distance_in_words(report.promise, report.radius.label_cost)


def _shares_table(report: Report) -> Html:
    rows = [
        [
            share.name,
            f"{share.n_labeled:,}",
            percent(share.low, 1) if share.low == share.high else f"{at_least(share.low)} to {at_most(share.high)}",
            percent(answer.share, 1),
            percent(chosen, 1),
        ]
        for share, answer, chosen in zip(
            report.promise.shares, report.confidence.classes, report.adversary.label_shares, strict=True
        )
    ]
    head = ["Class", "Labeled rows", "Assumed share of all rows", "Share in the model's answers", "In the worst case"]
    return table("Label shares: assumed, answered, and in the worst case", head, rows, numeric=range(1, 5))


def certificate_section(report: Report) -> Html:
    """The certificate as a bar."""
    bounds, guessing = report.bounds, report.promise.guessing
    description = (
        f"Loss on the labeled rows {bounds.training:.4g}, lower bound {bounds.lower:.4g}, upper bound "
        f"{bounds.risk:.4g}, guessing {guessing:.4g}."
    )
    drawing = both_widths(
        "bar", "The certificate as a bar", description, lambda width: certificate_bar(bounds, guessing, width)
    )
    error = "none" if bounds.sampling_error is None else f"{bounds.sampling_error:.4f}"
    kind = "Sampling term" if bounds.guarantee else "Sampling term (rough)"
    entries = [
        ("f-training", "Loss on the labeled rows", f"{bounds.training:.4f}"),
        (
            "f-adversary",
            f"Worst case, up to {rounded_down(bounds.lower, 4)}",
            f"+{max(bounds.lower - bounds.training, 0):.4f}",
        ),
        ("f-gap", f"Gap, up to the bound of {rounded_up(bounds.risk, 4)}", f"+{bounds.risk - bounds.lower:.4f}"),
        ("f-sampling", kind, error if error == "none" else f"+{error}"),
    ]
    rows = [
        ["Loss on the labeled rows (training)", f"{bounds.training:.6g}"],
        ["Lower bound", f"{bounds.lower:.6g}"],
        ["Upper bound", f"{bounds.risk:.6g}"],
        ["Gap", f"{bounds.risk - bounds.lower:.2e}"],
        [kind, "none" if bounds.sampling_error is None else f"{bounds.sampling_error:.6g}"],
        ["Guessing", f"{guessing:.6g}"],
    ]
    return section(
        "certificate",
        "The certificate" if report.promise.is_promise else "The worst case as a bar",
        paragraphs(
            "The bar is the expected log loss: 0 is perfect, and equal probabilities for all classes give "
            f"{guessing:.3f}. No labels that fit the assumptions push it past the upper bound. Some push it up to the "
            "lower bound. The smaller the gap, the more exactly the worst case is known."
        ),
        el("figure", drawing, legend(*entries)),
        paragraphs(words.sampling_in_words(bounds)),
        numbers("Numbers of the certificate", table("The certificate", ["Part", "Log loss"], rows, numeric=[1])),
    )


def _which_radius(promise: Promise) -> str:
    """The number that was chosen: a radius, or what lies beyond the change of label shares."""
    if promise.tied:
        return f"What the truth needs beyond its features and label shares, {promise.excess:.4g},"
    return f"The radius, {promise.radius:.4g},"


def radius_section(report: Report) -> Html:
    """The certified loss over the radius, and confidence."""
    curve, promise = report.radius, report.promise
    steps = list(zip(curve.excess, curve.this_model, curve.best_model, curve.confidence, strict=True))
    drawing = both_widths(
        "radius-path",
        "Certified loss over the radius",
        f"From {steps[0][1]:.3f} at {curve.excess[0]:.3g} beyond the minimal radius to {steps[-1][1]:.3f} at "
        f"{curve.excess[-1]:.3g}, for this model. The chosen radius is {curve.chosen:.3g} beyond the minimal one.",
        lambda width: radius_lines(curve, promise.risk, promise.guessing, width),
    )
    second = both_widths(
        "radius-confidence",
        "Median confidence over the radius",
        f"From {percent(steps[0][3])} at the smallest radius shown to {percent(steps[-1][3])} at the largest.",
        lambda width: confidence_line(curve, width),
    )
    rows = [
        [
            f"{excess:.3g}" + (" (chosen)" if excess == curve.chosen else ""),
            rounded_up(a, 4),
            rounded_up(b, 4),
            percent(c),
        ]
        for excess, a, b, c in steps
    ]
    head = ["Radius beyond the minimal one", "This model", "Model learned there", "Its median confidence"]
    return section(
        "radius",
        "The radius",
        paragraphs(
            f"{_which_radius(promise)} was {RADIUS_NAMES[promise.radius_kind]}. It is the one number "
            "that the data cannot prove. If you think that the truth is farther away, read the bound farther to the "
            "right; if nearer, farther to the left."
        ),
        el(
            "figure",
            el("figcaption", "Bound on the expected log loss"),
            drawing,
            legend(
                ("l-this", "This model", f"{rounded_up(promise.risk, 3)} (ring)"),
                ("l-best", "A model learned for each radius", ""),
            ),
        ),
        el("figure", el("figcaption", "Median confidence of a model learned for each radius"), second),
        paragraphs(words.curve_in_words(curve, promise)),
        numbers("Numbers over the radius", table("Over the radius", head, rows, numeric=range(4))),
    )


def confidence_section(report: Report) -> Html:
    """How sure the model is of its answers."""
    confidence = report.confidence
    drawing = both_widths(
        "confidence-chart",
        "Confidence of the model over the unlabeled rows",
        words.confidence_in_words(confidence),
        lambda width: histogram(confidence.bins, confidence.median, width, relabeled=False),
    )
    answers = [
        [
            one.name,
            f"{one.n_rows:,}",
            percent(one.share, 1),
            "none" if one.confidence is None else percent(one.confidence),
        ]
        for one in confidence.classes
    ]
    bins = [[f"{percent(one.low)} to {percent(one.high)}", f"{one.n_rows:,}"] for one in confidence.bins]
    return section(
        "confidence",
        "How confident the model is",
        paragraphs(
            words.confidence_in_words(confidence),
            "Confidence is what the model says of its own answers. It is no promise: surefoot score compares it with "
            "true labels.",
        ),
        el("figure", el("figcaption", "Unlabeled rows by confidence"), drawing),
        table(
            "Answers for the unlabeled rows", ["Class", "Rows", "Share", "Mean confidence"], answers, numeric=[1, 2, 3]
        ),
        numbers(
            "Numbers of rows by confidence", table("Rows by confidence", ["Confidence", "Rows"], bins, numeric=[1])
        ),
    )


def adversary_section(report: Report) -> Html:
    """The worst case: how many labels it changes, and where."""
    adversary, bins = report.adversary, report.confidence.bins
    texts = words.adversary_in_words(adversary, report.data.n_labeled, report.data.n_unlabeled)
    drawing = both_widths(
        "adversary-chart",
        "Where the worst case changes labels",
        f"Unlabeled rows by confidence; in all, the worst case changes {percent(adversary.moved_unlabeled)} of labels.",
        lambda width: histogram(bins, None, width, relabeled=True),
    )
    rows = [
        [
            row.row,
            f"{row.label} ({'given' if row.labeled else 'model'})",
            percent(row.confidence),
            row.adversary_label,
            percent(row.adversary_share),
            percent(row.loss_share, 2),
        ]
        for row in adversary.rows
    ]
    head = ["Row", "Label", "Model's confidence in it", "Changed to", "Changed share", "Share of the loss"]
    by_bin = [
        [
            f"{percent(one.low)} to {percent(one.high)}",
            f"{one.n_rows:,}",
            percent(one.relabeled, 1) if one.n_rows else "",
        ]
        for one in bins
    ]
    listed = (
        table("Rows whose change costs most", head, rows, numeric=[2, 4, 5])
        if rows
        else paragraphs("The worst case changes no label.")
    )
    return section(
        "adversary",
        "Which rows the worst case relabels",
        paragraphs(*texts),
        el(
            "figure",
            el("figcaption", "Unlabeled rows by confidence, and the part that is relabeled"),
            drawing,
            legend(
                ("f-kept", "Label as the model says", percent(1 - adversary.moved_unlabeled)),
                ("f-moved", "Relabeled", percent(adversary.moved_unlabeled)),
            ),
        ),
        listed,
        paragraphs(
            "A row may be changed in part: the worst case is a probability for each label. If such a row matters, ask "
            "an expert for its label."
        ),
        numbers(
            "Numbers of relabeled rows by confidence",
            table("Relabeled by confidence", ["Confidence", "Rows", "Relabeled"], by_bin, numeric=[1, 2]),
        ),
        _flow(report),
    )


def _flow(report: Report) -> Html:
    if len(report.classes) > _MOST_CLASSES:
        return Html("")
    rows = [
        [name, *[percent(share, 1) for share in shares]]
        for name, shares in zip(report.classes, report.adversary.flow, strict=True)
    ]
    return numbers(
        "From which label to which",
        table(
            "Share of the unlabeled rows, by the model's answer (rows) and the worst case's label (columns)",
            ["Model's answer", *report.classes],
            rows,
            numeric=range(1, len(report.classes) + 1),
        ),
    )


def next_section(report: Report) -> Html:
    """The rows to label next, each with why."""
    if not report.next_rows:
        return section("next", "Rows to label next", paragraphs("No unlabeled row is left."))
    cards = [_next_row(row) for row in report.next_rows]
    return section(
        "next",
        "Rows to label next",
        paragraphs(
            "A label for one of these rows would change the model much, whatever the label turns out to be. Of rows "
            "that do, they are typical ones of different kinds, most useful first."
        ),
        el("ol", *cards, class_="cards"),
    )


def _next_row(row: NextRow) -> Html:
    return el("li", el("h3", row.row), el("p", row.candidate.reason), _cells(row.cells))


def _cells(cells: tuple[Cell, ...]) -> Html:
    shown = [el("div", el("dt", name), el("dd", value)) for name, value in cells if name]
    more = [el("p", value, class_="more") for name, value in cells if not name]
    return join([el("dl", *shown, class_="cells"), *more])


def data_section(report: Report) -> Html:
    """Counts, what was done to the data, and its columns."""
    data = report.data
    facts = [
        ("Labeled rows", f"{data.n_labeled:,}"),
        ("Unlabeled rows", f"{data.n_unlabeled:,}"),
        ("Classes", f"{len(report.classes):,}"),
        ("Columns", f"{data.n_columns:,}"),
        ("Features of the model", f"{data.n_features:,}"),
    ]
    rows = [
        [one.name, one.kind, percent(one.missing, 1) if one.missing else "none", f"{one.distinct:,}", one.typical]
        for one in data.columns
    ]
    notes = el("ul", *[el("li", note) for note in data.notes]) if data.notes else Html("")
    left = data.n_columns - len(data.columns)
    return section(
        "data",
        "Data",
        el("dl", *[el("div", el("dt", name), el("dd", value)) for name, value in facts], class_="facts"),
        join([el("h3", "What was done to it"), notes]) if data.notes else Html(""),
        table("Columns", ["Column", "Kind", "Missing", "Distinct values", "Values"], rows, numeric=[2, 3]),
        paragraphs(f"{left:,} more columns are not shown.") if left else Html(""),
    )


def warnings_section(report: Report) -> Html:
    """Checks with a result first, then those that found nothing."""
    clear = [finding for finding in report.findings if not finding.caution]
    first = (
        "Nothing in the checks below calls for action."
        if not report.cautions
        else f"{len(report.cautions)} of {len(report.findings)} checks call for a look."
    )
    return section(
        "warnings", "Warnings", paragraphs(first), *[_finding(finding) for finding in (*report.cautions, *clear)]
    )


def _finding(finding: Finding) -> Html:
    mark = "Look at this" if finding.caution else "Fine"
    items = [el("li", el("b", name), f": {text}") for name, text in finding.items]
    left = finding.n_items - len(finding.items)
    if items and left > 0:
        items.append(el("li", f"and {left:,} more"))
    listed = el("ul", *items) if items and finding.caution else Html("")
    return el(
        "article",
        el("h3", el("span", mark, class_="pill"), Html(" "), finding.title),
        el("p", finding.text),
        listed,
        class_="finding caution" if finding.caution else "finding",
    )
