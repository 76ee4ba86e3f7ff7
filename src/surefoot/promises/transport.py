"""The transport certificate as a bound among others: conditional on its radius."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surefoot.calibration import Calibrated
from surefoot.certify import certify
from surefoot.promises.judged import is_fitted, known_classes, observe
from surefoot.promises.question import Question
from surefoot.promises.result import CONDITIONAL, ErrorBound


def transport_bound(
    asked: Question, radius: float | str | Calibrated | None, certify_options: Mapping[str, Any] | None
) -> ErrorBound:
    """`certify` at a radius given, or estimated from the labels at the level asked for."""
    if asked.groups is not None:
        raise ValueError("groups are for the other methods; got method='transport'. Leave them out or pass 'crossfit'.")
    if not is_fitted(asked.classifier):
        raise ValueError("the transport bound needs a fitted classifier; got one that is not fitted. Fit it first.")
    classes = known_classes(asked.classifier, asked.y, asked.classes)
    ask = Calibrated(asked.level) if radius is None or radius == "calibrated" else radius
    certificate = certify(
        asked.classifier,
        asked.X,
        asked.y,
        X_unlabeled=asked.X_unlabeled,
        radius=ask,
        loss=asked.loss,
        classes=classes,
        clip=asked.clip,
        **(certify_options or {}),
    )
    if certificate.estimate is None:
        within = f"the truth lies within transport distance {certificate.radius:.4g} of the labeled rows"
    else:
        within = f"the radius, {certificate.estimate.meaning}"
    seen = observe(asked.classifier, asked.X, asked.y, classes, asked.loss, asked.clip)
    rows = len(asked.y) if asked.pool_size is None else asked.pool_size
    return ErrorBound(
        value=float(certificate.risk),
        kind=CONDITIONAL,
        method=f"transport: worst case over a set of radius {certificate.radius:.4g}",
        about=f"this classifier, on the {rows} rows given, whatever their labels within the set",
        level=asked.level,
        loss=certificate.loss,
        assumptions=(
            within,
            "the label shares lie in the intervals of label_prior, whose own level adds to that of the radius",
            "the rows need not be random draws, nor unseen by the classifier",
        ),
        n_labels=seen.n,
        n_errors=seen.n_errors,
        mean_loss=seen.mean,
        certificate=certificate,
    )
