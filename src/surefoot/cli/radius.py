"""`surefoot radius`: how far the adversary may go, from several sides."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot._printing import rounded_up
from surefoot.calibration import Calibrated
from surefoot.cli.fit import pool_data, say_pool
from surefoot.cli.output import Output
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.path import radius_path
from surefoot.pool.appraisal import radius_kind
from surefoot.pool.choices import AUTO, Choices
from surefoot.pool.learn_pool import Start, resolve_prior
from surefoot.pool.table import Pool, Table, TableError, clean_with
from surefoot.pool.table.asked import picked_rows
from surefoot.pool.table.pool import as_targets
from surefoot.radius import calibrate_radius, minimal_radius, transport_distance


def radius_of(output: Output, pool: Pool, choices: Choices, *, reference: Table | None, n_path: int) -> int:
    """Print the radii that the pool, its labels and a reference speak for."""
    say_pool(output, pool)
    start = Start.of(pool, picked_rows(pool.table))
    prior = resolve_prior(choices.prior, start)
    data: dict[str, Any] = pool_data(pool)
    with output.working("solving the transport problem"):
        least = minimal_radius(start.rows, start.y, X_unlabeled=start.rest, label_prior=prior, classes=start.classes)
    pairs = [("minimal", f"{least:.4f}: below it no distribution has these rows and class shares")]
    data["minimal"] = least
    if start.n_random >= 4:
        with output.working("estimating the radius"):
            data["calibrated"], words = _calibrated(start, choices, least)
        pairs.append(("calibrated", words))
    if reference is not None:
        distance = _distance(start, reference)
        data["reference"] = {"path": str(reference.path), "radius": distance}
        pairs.append(("reference", f"{distance:.4f}: the distance to {reference.path.name}, which this radius covers"))
    missing: list[str] = []
    data["default"] = radius_kind(choices, start, None, missing)
    for note in missing:
        output.note(note)
    pairs.append(
        (
            "fit takes",
            f"{'none' if data['default'] is None else 'the calibrated one'} for a worst case, a small one to learn",
        )
    )
    output.say("Radius", "bold")
    output.rows(pairs)
    if n_path:
        data["path"] = _say_path(output, start, prior, choices, n_path)
    return output.finish(data)


def _calibrated(start: Start, choices: Choices, least: float) -> tuple[dict[str, Any], str]:
    """The calibrated radius as data and in words; with label intervals it is tied to the label shares."""
    found = calibrate_radius(
        start.rows[start.random],
        start.y[start.random],
        label_prior=None,
        classes=start.classes,
        level=Calibrated().level,
        random_state=choices.seed,
    )
    how = f"from {found.n_labeled} random labels, level {found.level:g} (measured, not proved)"
    if isinstance(choices.prior, tuple):
        radius = least + found.excess
        data = {"radius": radius, "excess": found.excess, "level": found.level}
        return data, f"{radius:.4f} = minimal + {found.excess:.4f}, {how}"
    words = f"tied to the label shares: {found.excess:.4f} beyond what features and shares need, {how}"
    return {"tied_excess": found.excess, "level": found.level}, words


def _distance(start: Start, reference: Table) -> float:
    """W_c from the labeled rows to a labeled reference, cleaned as the pool is."""
    other = clean_with(reference, start.pool.cleaner, start.pool.columns)
    if not other.labeled.any():
        raise TableError(f"{reference.path} must hold labels; the column {reference.label!r} is empty. Fill it.")
    rows = other.rows[other.labeled]
    if set(other.classes) - set(start.pool.classes):
        unknown = sorted(set(other.classes) - set(start.pool.classes))[0]
        raise TableError(
            f"{reference.path} must hold classes of the pool; {unknown!r} is none. Name it with --classes, or correct "
            "it."
        )
    return transport_distance(start.rows, start.y, rows, as_targets(other.labels[other.labeled], start.pool.classes))


def _say_path(output: Output, start: Start, prior: Any, choices: Choices, n_path: int) -> list[dict[str, Any]]:
    """Worst loss and confidence along the radius."""
    rest, most = start.rest, 4000
    if len(rest) > most:
        rest = rest[np.sort(np.random.default_rng(choices.seed).choice(len(rest), most, replace=False))]
        output.note(f"the path is that of {most} unlabeled rows, drawn at random.")
    clf = RobustLogisticRegression(AUTO, prior, 1.0, "euclidean", 1e-3, start.classes, n_jobs=choices.n_jobs)
    with output.working("following the radius"):
        path = radius_path(clf, start.rows, start.y, X_unlabeled=rest, n_radii=n_path)
    excess = path.radii - path.minimal_radius
    rows = [
        [f"{path.radii[i]:.4f}", f"{excess[i]:.4f}", rounded_up(path.risk[i], 4), f"{path.median_confidence[i]:.3f}"]
        for i in range(len(path))
    ]
    output.say("Along the radius, a classifier learned at each", "bold")
    output.table(["radius", "beyond minimal", "worst loss", "median confidence"], rows, right=(0, 1, 2, 3))
    keys = ("radius", "excess", "risk", "median_confidence")
    return [
        dict(zip(keys, map(float, entry), strict=True))
        for entry in zip(path.radii, excess, path.risk, path.median_confidence, strict=True)
    ]
