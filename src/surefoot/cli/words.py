"""What is said of a model: in words for a person, and as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot._printing import rounded_down, rounded_up, share_at_least, share_at_most
from surefoot.bounds.result import ErrorBound
from surefoot.certificates.certificate import Certificate
from surefoot.cli.output import Output
from surefoot.losses import LOG_LOSS, ZERO_ONE
from surefoot.pool.appraisal import Appraisal, Worst
from surefoot.pool.choices import AUTO, CALIBRATED

_KINDS = {
    "theorem": "a theorem under its assumptions",
    "measured": "coverage was measured on datasets, not proved",
    "conditional": "holds where the radius does",
}
NOT_A_PROMISE = "not a promise, the truth may lie outside"


def certificate_data(
    certificate: Certificate, classes: list[str], *, promise: bool, tied: bool, sampled: bool = False
) -> dict[str, Any]:
    """Numbers and texts of a certificate. A set tied to label shares has no one radius: its excess has a name."""
    estimate = certificate.estimate
    radius = {"tied_excess": None if estimate is None else estimate.excess} if tied else {"radius": certificate.radius}
    data: dict[str, Any] = {
        "promise": promise,
        "loss": certificate.loss,
        "risk": certificate.risk,
        "lower": None if sampled else certificate.lower,
        "gap": None if sampled else certificate.gap,
        "status": certificate.status,
        **radius,
        "minimal_radius": certificate.minimal_radius,
        "label_intervals": {
            name: [float(low), float(high)]
            for name, (low, high) in zip(classes, certificate.label_intervals, strict=True)
        },
    }
    if certificate.loss == LOG_LOSS:
        data["likelihood"] = certificate.likelihood
    if estimate is not None:
        data["calibration"] = {
            "level": estimate.level,
            "excess": estimate.excess,
            "splits": len(estimate.splits),
            "labels": estimate.n_labeled,
        }
    return {name: float(value) if isinstance(value, np.floating) else value for name, value in data.items()}


def worst_data(worst: Worst, classes: list[str]) -> dict[str, Any]:
    """The worst case: the certificate of its last loss, and the share of errors beside that of a constant answer."""
    certificate = worst.certificates.get(LOG_LOSS, worst.first)
    data = certificate_data(
        certificate, classes, promise=worst.promise, tied=worst.tied, sampled=worst.sample is not None
    )
    error = worst.risk(ZERO_ONE)
    if error is not None:
        data["error"] = error
    return {
        **data,
        "constant_answer": worst.constant,
        "constant_error": worst.constant_error,
        "radius_from": worst.kind,
    }


def bounds_data(judged: Appraisal) -> list[dict[str, Any]]:
    """Each bound with its kind, in the order in which they are said."""
    found = [] if judged.crossfit is None else [_crossfit_data(judged.crossfit)]
    if judged.worst is None:
        return found
    kind = "conditional" if judged.worst.promise else "rule of thumb"
    for name, certificate in judged.worst.certificates.items():
        found.append(
            {
                "method": "transport",
                "kind": kind,
                "loss": name,
                "value": certificate.risk,
                "promise": judged.worst.promise,
                "radius_from": judged.worst.kind,
            }
        )
    return found


def _crossfit_data(bound: ErrorBound) -> dict[str, Any]:
    return {
        "method": "crossfit",
        "kind": bound.kind,
        "loss": bound.loss,
        "value": bound.value,
        "promise": True,
        "level": bound.level,
        "labels": bound.n_labels,
        "errors": bound.n_errors,
        "statement": bound.statement,
    }


def say_judged(output: Output, judged: Appraisal, classes: list[str], shares: dict[str, float] | None = None) -> None:
    """What can be said of a model, most useful first, each with its kind."""
    output.say("What you can say about this model", "bold")
    pairs = []
    bound = judged.crossfit
    if bound is not None and judged.accuracy is not None:
        pairs.append(
            (
                "errors",
                f"at most {share_at_most(bound.value)}% on rows like the labeled ones, with {100 * bound.level:g}% "
                f"confidence (cross-fitted from {bound.n_labels} random labels, {bound.n_errors} wrong; "
                f"{_KINDS[bound.kind]})",
            )
        )
        pairs.append(("accuracy", f"about {100 * judged.accuracy:.0f}% expected, by cross-validation of the labels"))
    if shares is not None:
        answered = ", ".join(f"{name}: {100 * share:.1f}%" for name, share in shares.items())
        pairs.append(("answers", f"{answered} of the unlabeled rows"))
    output.rows([*pairs, *map(_absent, judged.missing)])
    if judged.worst is not None:
        say_worst(output, judged.worst, classes)


def _absent(why: str) -> tuple[str, str]:
    """A line for what is missing, such as "no worst case: 9 classes are too many"."""
    what, _, reason = why.partition(": ")
    return ("worst case" if what == "no worst case" else "errors"), f"{what}: {reason}"


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
