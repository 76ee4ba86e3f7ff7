"""The transport certificate as a bound among others: conditional on its radius."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from surefoot._errors import ParameterError
from surefoot.bounds._arguments import Arguments, is_fitted, known_classes
from surefoot.bounds.clusters import share_intervals
from surefoot.bounds.observed_losses import ObservedLosses, observe
from surefoot.bounds.result import CONDITIONAL, ErrorBound
from surefoot.calibration import Calibrated
from surefoot.certificates.certificate import Certificate
from surefoot.certification import certify
from surefoot.priors import AUTO, NoPrior, resolve_prior

_ANY_ROWS = "the rows need not be random draws, nor unseen by the classifier"
_FROM_LABELS = ("auto", "clopper-pearson", "hypergeometric", "assisted")


def transport_bound(
    asked: Arguments,
    radius: float | str | Calibrated | None,
    certify_options: Mapping[str, Any] | None,
    *,
    X_target: Any = None,
) -> ErrorBound:
    """`certify` at a radius given, or estimated from the labels at the level asked for."""
    if not is_fitted(asked.classifier):
        raise ParameterError(
            "classifier", "must be fitted for the transport bound", "one that is not fitted", "Fit it first."
        )
    classes = known_classes(asked.classifier, asked.y, asked.classes)
    ask = Calibrated(asked.level) if radius is None or radius == "calibrated" else radius
    options = dict(certify_options or {})
    if asked.clusters.repeat and X_target is None and options.get("label_prior", AUTO) in (AUTO, "clopper-pearson"):
        options["label_prior"] = share_intervals(asked.y, classes, asked.clusters.numbers)
    certificate = certify(
        asked.classifier,
        asked.X,
        asked.y,
        X_unlabeled=asked.X_unlabeled,
        X_target=X_target,
        radius=ask,
        loss=asked.loss,
        classes=classes,
        clip=asked.clip,
        groups=asked.groups,
        **options,
    )
    other = X_target is not None
    worst = certificate.worst_case
    number = "" if worst is None else f"{len(worst.row_weights)} "
    where = f"{number}rows of X_target" if other else f"{number}rows given"
    seen = observe(asked.classifier, asked.X, asked.y, classes, asked.loss, asked.clip)
    whole = ErrorBound(
        value=float(certificate.risk),
        kind=CONDITIONAL,
        method=f"transport: worst case over a set of radius {certificate.radius:.4g}",
        about=f"this classifier, on the {where}, whatever their labels within the set",
        level=asked.level,
        loss=certificate.loss,
        assumptions=(_within(certificate), _label_shares(options.get("label_prior", AUTO), other), _ANY_ROWS),
        **seen.counts,
        certificate=certificate,
    )
    return whole if certificate.groups is None else _by_group(whole, certificate, seen, asked, other)


def _by_group(
    whole: ErrorBound,
    certificate: Certificate,
    seen: ObservedLosses,
    asked: Arguments,
    other: bool,
) -> ErrorBound:
    """The largest of the groups' bounds: all are over one set, so they hold together without a share of the level."""
    groups = asked.groups(asked.X) if callable(asked.groups) else asked.groups
    labeled = np.full(seen.n, None) if other else np.asarray(groups)[: seen.n]
    found = {}
    for name, one in (certificate.groups or {}).items():
        some = seen.at(labeled == name)
        found[name] = replace(
            whole,
            value=float(one.risk),
            about=f"{whole.about}, group {name}",
            **some.counts,
            certificate=one,
        )
    return replace(whole, value=max(bound.value for bound in found.values()), groups=found)


def _within(certificate: Certificate) -> str:
    if certificate.estimate is None:
        return f"the truth lies within transport distance {certificate.radius:.4g} of the labeled rows"
    return f"the radius, {certificate.estimate.meaning}"


def _label_shares(label_prior: Any, other_population: bool) -> str:
    """What is assumed of the label shares, in words."""
    if isinstance(resolve_prior(label_prior, other_population=other_population), NoPrior):
        return "nothing is assumed of the label shares" + (" of X_target" if other_population else "")
    if not other_population:
        return "the label shares lie in the intervals of label_prior, whose own level adds to that of the radius"
    if isinstance(label_prior, str) and label_prior in _FROM_LABELS:
        return (
            "the label shares of X_target lie in intervals from the labels of the other population, as label_prior "
            "was told to assume; under a real shift that may well be false (docs/bounds.md)"
        )
    return "the label shares of X_target lie in the intervals given as label_prior"
