"""What is said of a table and of a model, in words for a person."""

from __future__ import annotations

from typing import Any

from surefoot._printing import count, rounded_down, rounded_up, share_at_least, share_at_most
from surefoot.cli.output import Output
from surefoot.losses import LOG_LOSS, ZERO_ONE
from surefoot.pool.appraisal import Appraisal
from surefoot.pool.choices import AUTO, CALIBRATED
from surefoot.pool.table import Pool
from surefoot.pool.worst import Worst

_KINDS = {
    "theorem": "a theorem under its assumptions",
    "measured": "coverage was measured on datasets, not proved",
    "conditional": "holds where the radius does",
}
NOT_A_PROMISE = "not a promise, the truth may lie outside"


def say_pool(output: Output, pool: Pool) -> None:
    """What was read."""
    shown = ", ".join(f"{name}: {(pool.labels == name).sum()}" for name in pool.classes)
    labeled = int(pool.labeled.sum())
    output.say(f"{pool.table.path.name}: {count(len(pool.rows), 'row')}", "bold")
    pairs = [
        ("labeled", f"{labeled} ({shown})"),
        ("unlabeled", str(len(pool.rows) - labeled)),
        ("columns", f"{pool.columns.counts}; {count(pool.rows.shape[1], 'feature')} in all"),
    ]
    if pool.columns.asked_out:
        pairs.append(("left out", f"{', '.join(pool.columns.asked_out)}, as asked"))
    output.rows(pairs)
    output.note(*pool.notes)


def pool_data(pool: Pool) -> dict[str, Any]:
    """The same for a program."""
    return {
        "rows": len(pool.rows),
        "labeled": int(pool.labeled.sum()),
        "label": pool.table.label,
        "classes": {name: int((pool.labels == name).sum()) for name in pool.classes},
        "columns": {**pool.columns.stored(), "left_out": pool.columns.left_out},
        "features": pool.rows.shape[1],
    }


def say_judged(output: Output, judged: Appraisal, classes: list[str]) -> None:
    """What can be said of a model, most useful first, each with its kind."""
    output.say("What you can say about this model", "bold")
    pairs = []
    bound = judged.crossfit
    if bound is not None and judged.accuracy is not None:
        in_groups = "" if bound.n_groups is None else f" in {bound.n_groups} groups"
        pairs.append(
            (
                "errors",
                f"at most {share_at_most(bound.value)}% on rows like the labeled ones, with {100 * bound.level:g}% "
                f"confidence (cross-fitted from {bound.n_labels} random labels{in_groups}, {bound.n_errors} wrong; "
                f"{_KINDS[bound.kind]})",
            )
        )
        pairs.append(("accuracy", f"about {100 * judged.accuracy:.0f}% expected, by cross-validation of the labels"))
    if judged.shares:
        answered = ", ".join(f"{name}: {100 * share:.1f}%" for name, share in judged.shares.items())
        pairs.append(("answers", f"{answered} of the unlabeled rows"))
    if judged.no_crossfit is not None:
        pairs.append(("errors", judged.no_crossfit))
    if judged.no_worst is not None:
        pairs.append(("worst case", judged.no_worst))
    output.rows(pairs)
    output.note(*judged.notes)
    if judged.worst is not None:
        say_worst(output, judged.worst, classes)


def say_worst(output: Output, worst: Worst, classes: list[str]) -> None:
    """The worst case over a set; under the name of a certificate only where the radius is calibrated or given."""
    certificate = worst.first
    if worst.promise:
        output.say("Certificate: the worst case over a set of possible truths", "bold")
    else:
        output.say(f"Worst case within radius {certificate.radius:.4f}: {NOT_A_PROMISE}", "bold")
    pairs = []
    error, log_loss = worst.certificates.get(ZERO_ONE), worst.certificates.get(LOG_LOSS)
    if error is not None:
        pairs.append(
            (
                "errors",
                f"at most {share_at_most(error.risk)}% of the rows in this file"
                f"{_forced(worst, share_at_least(error.lower) + '%')}; always {worst.constant!r}: at most "
                f"{share_at_most(worst.constant_error)}% over the same set",
            )
        )
    if log_loss is not None:
        lower = _forced(worst, rounded_down(log_loss.lower, 4))
        pairs.append(("log loss", f"at most {rounded_up(log_loss.risk, 4)}{lower}"))
    output.rows([*pairs, ("radius", radius_words(worst))])
    output.say("It holds if" if worst.promise else "It would hold if", "bold")
    output.rows(assumptions(worst, classes))
    if worst.promise and error is not None and error.risk >= worst.constant_error:
        output.note(
            "the certificate says no more of this model than of a constant answer: with so few labels the set is wide. "
            "More labels, or known class probabilities (--prior), narrow it."
        )
    if any(one.status == "stopped" for one in worst.certificates.values()):
        output.note("the solver stopped before the gap was within the tolerance; both bounds hold all the same.")


def _forced(worst: Worst, lower: str) -> str:
    return "" if worst.sample is not None else f" (some truth in the set forces {lower})"


def radius_words(worst: Worst) -> str:
    """Where the radius comes from, and which set it makes."""
    certificate = worst.first
    estimate, least = certificate.estimate, certificate.minimal_radius
    if worst.kind == CALIBRATED and estimate is not None:
        how = (
            f"estimated from {estimate.n_labeled} random labels to cover the truth in {100 * estimate.level:g}% of "
            "samples (measured, not proved)"
        )
        if worst.tied:
            return (
                f"tied to the label shares: {estimate.excess:.4f} beyond what the features and each change of the "
                f"shares need ({least:.4f} at the least); {how}"
            )
        return f"{certificate.radius:.4f} (minimal {least:.4f}); {how}"
    if worst.kind == AUTO:
        return f"{certificate.radius:.4f} (minimal {least:.4f}), by the rule of thumb 'auto'"
    return f"{certificate.radius:.4f} (minimal {least:.4f}), as given"


def assumptions(worst: Worst, classes: list[str]) -> list[tuple[str, str]]:
    """The assumptions behind a worst case, with their numbers."""
    shares = ", ".join(
        f"{name}: {100 * low:.1f}%" if low == high else f"{name}: {share_at_least(low)}% to {share_at_most(high)}%"
        for name, (low, high) in zip(classes, worst.first.label_intervals, strict=True)
    )
    return [
        ("1.", "the truth lies within the radius of the labeled rows,"),
        ("2.", f"the classes' shares of all rows are {shares},"),
        ("3.", "no other classes exist (--classes adds one that no label shows),"),
        ("4.", "and it is asked of the rows in this file, not of others yet to come."),
    ]
