"""The first words of the page: may I use this model, for what, and what next; and the features that weigh most."""

from __future__ import annotations

from surefoot._printing import at_most, percent, rounded_up
from surefoot.pool.summary.answers import CARE, CONSTANT, UNKNOWN, USE, how_to_use
from surefoot.pool.summary.contents import Report
from surefoot.report.html import Html, el, join, table

# Against the worst case a weight has vanished if this share of it is left, or less.
_VANISHING = 0.02
_ALL_VANISH = (
    "Here all of them vanish: the set is so wide that the same answer for every row is the best against its worst "
    "case. The change then says nothing of single columns; more labels, or known shares of the classes, would."
)


def opening_section(report: Report) -> Html:
    """One paragraph, the numbers behind it, and the next command."""
    said = report.said
    cards = []
    if said.crossfit is not None and said.accuracy is not None:
        cards += [
            (
                "Errs on at most",
                at_most(said.crossfit),
                f"of rows like the labeled ones, with {percent(said.level or 0)} confidence: cross-fitted from "
                f"{said.n_labels:,} random labels, measured and not proved",
            ),
            (
                "Expected accuracy",
                percent(said.accuracy),
                f"by cross-validation: {said.n_errors:,} of {said.n_labels:,} labels wrong",
            ),
        ]
    if report.promise.radius_kind != "predictive":  # at the radius of learning a worst case says nothing of the truth
        kind = "certified" if report.promise.is_promise else "not a promise"
        worst = f"of these rows, in the worst case ({kind}); log loss {rounded_up(report.promise.risk, 3)}"
        cards.append(("At most", at_most(report.promise.error), f"errors {worst}"))
    listed = [
        el("li", el("span", first), el("b", number), el("span", text), class_="figure-card")
        for first, number, text in cards
    ]
    command = Html("")
    if said.next_command:
        command = el("pre", el("code", said.next_command), class_="command", tabindex="0")
    return el(
        "section",
        el("h2", "What you can say about this model", id="short-heading"),
        el("p", verdict(report), class_="lead"),
        command,
        el("ul", *listed, class_="figures") if listed else Html(""),
        join([el("p", text[0].upper() + text[1:]) for text in said.missing]),
        id="short",
        aria_labelledby="short-heading",
    )


def verdict(report: Report) -> str:
    """May I use this model, for what, and what next."""
    text, use = _may_use(report), _use(report)
    if not report.said.next_command:
        return text
    if use == USE:
        return f"{text} Next, let it answer the rows of the table, or of any other with the same columns:"
    return f"{text} Next, label rows; this command asks for those that help most:"


def _use(report: Report) -> str:
    said = report.said
    return how_to_use(said.crossfit, max(one.share for one in report.confidence.classes), said.constant_share)


def _may_use(report: Report) -> str:
    said, use = report.said, _use(report)
    answers = {one.name: one.share for one in report.confidence.classes}
    most = max(answers, key=lambda name: answers[name])
    if use == CONSTANT:
        return (
            f"Do not use this model yet: it answers {most} for every row, so that it is no better than that answer "
            "alone. More labels, above all of other classes, may help."
        )
    if use == UNKNOWN or said.crossfit is None or said.accuracy is None:
        return (
            "How often this model errs cannot be said yet. Use it to choose the rows to label next, not to decide "
            "anything."
        )
    errors = f"errs on about {percent(1 - said.accuracy)} of rows like the labeled ones"
    if said.n_errors == 0:
        errors = f"got all {said.n_labels:,} labels right in cross-validation"
    if use == CARE:
        return (
            f"With care only: this model {errors}, but with {said.n_labels:,} labels that may be as much as always "
            f"answering {said.constant} would ({percent(1 - said.constant_share)}). Label more rows before you rely "
            "on it."
        )
    return (
        f"You may use this model for rows like the labeled ones, if these were drawn at random: it {errors}, and errs "
        f"on at most {at_most(said.crossfit)} of such rows with {percent(said.level or 0)} confidence; always "
        f"answering {said.constant} would err on {percent(1 - said.constant_share)}. For rows from elsewhere, or for "
        "labels that were chosen, only the worst case speaks."
    )


def _signed(value: float, *, plus: bool = False) -> str:
    """A number to two digits, with a true minus sign."""
    value = round(value, 2) + 0.0  # no negative zero
    return (f"{value:+.2f}" if plus and value else f"{value:.2f}").replace("-", "\N{MINUS SIGN}")


def weights_section(report: Report) -> Html:
    """The features of largest weight, now and when learned against the worst case."""
    rows = [
        [
            one.feature,
            one.towards,
            _signed(one.now),
            "" if one.worst is None else _signed(one.worst),
            "" if one.worst is None else _signed(one.worst - one.now, plus=True),
        ]
        for one in report.weights
    ]
    listed = (
        table(
            "Features of largest weight",
            ["Feature", "Speaks for", "Weight", "Against the worst case", "Change"],
            rows,
            numeric=[2, 3, 4],
        )
        if rows
        else el("p", "No feature has any weight: the model gives the same answer to every row.")
    )
    vanish = bool(report.weights) and all(
        one.worst is not None and abs(one.worst) < _VANISHING * abs(one.now) for one in report.weights
    )
    return el(
        "section",
        el("h2", "Which columns matter", id="weights-heading"),
        el(
            "p",
            "The weight is the coefficient in the score of the class, per standard deviation of the feature. Beside it "
            "stands that of a model learned against the worst case: a weight that vanishes there rests on labels that "
            "the assumptions do not protect.",
        ),
        el("p", _ALL_VANISH) if vanish else Html(""),
        listed,
        id="weights",
        aria_labelledby="weights-heading",
    )
