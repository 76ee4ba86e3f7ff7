"""A certificate in words, and as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot.certificates.certificate import Certificate
from surefoot.cli.learn_pool import AUTO, CALIBRATED, Fit, constant_error, constant_loss, says_little
from surefoot.cli.output import Output, percent
from surefoot.losses import LOG_LOSS, ZERO_ONE

_LOSS = {"log_loss": "log loss", "zero_one": "share of errors", "cost": "cost"}


def certificate_data(
    certificate: Certificate, classes: list[str], *, error: float | None = None, radius_kind: str | None = None
) -> dict[str, Any]:
    """Numbers and texts of a certificate, as stored with the model and printed with --json."""
    estimate = certificate.estimate
    data: dict[str, Any] = {
        "loss": certificate.loss,
        "risk": certificate.risk,
        "lower": certificate.lower,
        "gap": certificate.gap,
        "status": certificate.status,
        "radius": certificate.radius,
        "minimal_radius": certificate.minimal_radius,
        "label_intervals": {
            name: [float(low), float(high)]
            for name, (low, high) in zip(classes, certificate.label_intervals, strict=True)
        },
    }
    if certificate.loss == LOG_LOSS:
        data["likelihood"] = certificate.likelihood
        data["constant_answer"] = constant_loss(certificate.label_intervals)
    if certificate.loss == ZERO_ONE or error is not None:
        data["constant_error"] = constant_error(certificate.label_intervals)
    if error is not None:
        data["error"] = error
    if radius_kind is not None:
        data["radius_from"] = radius_kind
    if estimate is not None:
        data["calibration"] = {
            "level": estimate.level,
            "excess": estimate.excess,
            "splits": len(estimate.splits),
            "labels": estimate.n_labeled,
        }
    return {name: float(value) if isinstance(value, np.floating) else value for name, value in data.items()}


def say_fit(output: Output, fit: Fit) -> None:
    """What was promised, and under which assumptions."""
    certificate, classes = fit.certificate, fit.start.pool.classes
    constant = constant_loss(certificate.label_intervals)
    output.say("Certificate", "bold")
    pairs = [
        (
            "log loss",
            f"at most {certificate.risk:.4f} in the worst case; the best constant answer has {constant:.4f}",
        )
    ]
    if fit.error is not None:
        pairs.append(
            (
                "errors",
                f"at most {percent(fit.error)} of the rows in the worst case; the best constant answer has "
                f"{percent(constant_error(certificate.label_intervals))}",
            )
        )
    pairs += [
        ("gap", f"{certificate.gap:.1e}: no linear classifier has a worst case more than this below"),
        ("radius", f"{certificate.radius:.4f} (minimal {certificate.minimal_radius:.4f}), {_radius_words(fit)}"),
    ]
    output.rows(pairs)
    output.say("It holds if", "bold")
    output.rows(assumptions(certificate, classes))
    if says_little(certificate):
        output.note(
            "the certificate says little: the same answer for every row has nearly as good a one. Label more rows, or "
            "pass known class probabilities as --prior."
        )
    if certificate.status == "stopped":
        output.note("the solver stopped before the gap was within the tolerance; both bounds hold all the same.")


def assumptions(certificate: Certificate, classes: list[str]) -> list[tuple[str, str]]:
    """The three assumptions behind a certificate, with their numbers."""
    shares = ", ".join(
        f"{name} {percent(low)}" if low == high else f"{name} {percent(low)} to {percent(high)}"
        for name, (low, high) in zip(classes, certificate.label_intervals, strict=True)
    )
    return [
        ("1.", "the truth lies within the radius of the labeled rows,"),
        ("2.", f"the classes' shares of all rows are {shares},"),
        ("3.", "and it is asked of the rows in this file, not of others yet to come."),
    ]


def say_certificate(output: Output, certificate: Certificate, classes: list[str]) -> None:
    """The certificate of any classifier."""
    what = _LOSS.get(certificate.loss, certificate.loss)
    value = percent(certificate.risk) if certificate.loss == "zero_one" else f"{certificate.risk:.4f}"
    lower = percent(certificate.lower) if certificate.loss == "zero_one" else f"{certificate.lower:.4f}"
    intervals = certificate.label_intervals
    constant = percent(constant_error(intervals)) if certificate.loss == ZERO_ONE else f"{constant_loss(intervals):.4f}"
    output.say("Certificate", "bold")
    pairs = [
        (what, f"at most {value} in the worst case (some distribution in the set forces {lower})"),
        ("", f"the best constant answer has {constant}"),
        ("radius", f"{certificate.radius:.4f} (minimal {certificate.minimal_radius:.4f})"),
    ]
    if certificate.estimate is not None:
        pairs.append(("", certificate.estimate.meaning))
    output.rows(pairs)
    output.say("It holds if", "bold")
    output.rows(assumptions(certificate, classes))


def _radius_words(fit: Fit) -> str:
    estimate = fit.certificate.estimate
    if fit.radius_kind == CALIBRATED and estimate is not None:
        return (
            f"estimated from {estimate.n_labeled} random labels to cover the truth in {percent(estimate.level)} of "
            "samples (measured, not proved)"
        )
    if fit.radius_kind == AUTO:
        return f"the largest with median confidence {fit.clf.confidence:.2g}: a rule of thumb, no coverage promised"
    return "as given"
