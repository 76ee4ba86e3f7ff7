"""Tables and figures of docs/bounds.md and docs/research-notes.md, from the records that `bounds.py` keeps."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from calibration import LEVEL, Array, Record, columns

import surefoot as sf

AUDIT_SIZES = (20, 50, 100, 200, 400)
SHIFT_SIZE, PICKED_SIZE = 60, 50
# the bound, the error that it bounds, and how the table calls it
LABEL_BOUNDS = {
    "crossfit": ("true_error", "cross-fitted"),
    "control_variate": ("true_error", "with control variate"),
    "holdout": ("half_error", "held-out half, population"),
    "holdout_pool": ("half_rest_error", "held-out half, pool"),
    "anytime": ("half_error", "held-out half, anytime"),
}
TRANSPORT_BOUNDS = {
    "known": ("true_error", "shares known"),
    "assisted": ("true_error", "shares assisted"),
    "clopper_pearson": ("true_error", "shares by Clopper-Pearson"),
    "euclidean_known": ("true_error", "Euclidean, shares known"),
    "euclidean_clopper_pearson": ("true_error", "Euclidean, shares by Clopper-Pearson"),
}
SHIFT_BOUNDS = {
    "crossfit": ("true_error", "cross-fitted"),
    "holdout": ("half_error", "held-out half"),
    "transport": ("true_error", "transport"),
    "transport_known": ("true_error", "transport, shares known"),
    "transport_source": ("true_error", "transport, shares of the labels"),
    "euclidean": ("true_error", "Euclidean"),
    "euclidean_known": ("true_error", "Euclidean, shares known"),
}
SHIFT_CERTIFICATES = ("transport", "transport_known", "euclidean", "euclidean_known")
PICKED_BOUNDS = {
    "crossfit": ("true_error", "cross-fitted"),
    "holdout": ("half_error", "held-out half"),
    "transport": ("true_error", "transport, shares by Clopper-Pearson"),
    "transport_free": ("true_error", "transport, shares unknown"),
    "transport_known": ("true_error", "transport, shares known"),
    "euclidean_free": ("true_error", "Euclidean, shares unknown"),
}
INTERVALS = ("clopper_pearson", "hypergeometric", "assisted")


def cells(out: Path, study: str, names: list[str], n: int) -> dict[str, dict[str, Array]]:
    found = {name: columns(out, study, name, n) for name in names}
    return {name: cell for name, cell in found.items() if cell is not None}


def bound_table(
    out: Path, study: str, bounds: dict[str, tuple[str, str]], names: list[str], sizes: list[int]
) -> list[Record]:
    """Mean bound; in brackets coverage, on average over datasets and in the least cell."""
    table: list[Record] = []
    at = {n: cells(out, study, names, n) for n in sizes}
    first: Record = {"": "true error"}
    for n in sizes:
        if at[n]:
            first[f"n = {n}"] = f"{np.mean([cell['true_error'].mean() for cell in at[n].values()]):.3f}"
    if len({len(found) for found in at.values()}) > 1:
        table.append({"": "datasets"} | {f"n = {n}": len(found) for n, found in at.items() if found})
    table.append(first)
    for key, (error, text) in bounds.items():
        line: Record = {"": text}
        for n in sizes:
            if at[n]:
                held = [float(np.mean(cell[key] >= cell[error] - 1e-12)) for cell in at[n].values()]
                size = np.mean([cell[key].mean() for cell in at[n].values()])
                line[f"n = {n}"] = f"{size:.3f} ({np.mean(held):.2f}, {min(held):.2f})"
        table.append(line)
    return table


def interval_table(out: Path, names: list[str], sizes: list[int]) -> list[Record]:
    """Mean width of the intervals of a label share; in brackets their coverage, on average and in the least cell."""
    table: list[Record] = []
    for key in INTERVALS:
        line: Record = {"": key.replace("_", "-")}
        for n in sizes:
            found = cells(out, "labels", names, n).values()
            if found:
                held = [cell[f"{key}_holds"].mean() for cell in found]
                width = np.mean([cell[f"{key}_width"].mean() for cell in found])
                line[f"n = {n}"] = f"{width:.3f} ({np.mean(held):.2f}, {min(held):.2f})"
        table.append(line)
    return table


def audit_table(out: Path, names: list[str]) -> list[Record]:
    found = cells(out, "audit", names, 100)
    table: list[Record] = []
    for kind in ("exact", "uniform", "weighted"):
        line: Record = {"": {"exact": "exact, at a planned number", "uniform": "anytime, uniform picks"}.get(
            kind, "anytime, weighted picks")}  # fmt: skip
        for size in AUDIT_SIZES:
            values = [cell[f"{kind}_{size}"].mean() for cell in found.values()]
            if values:
                line[f"{size} labels"] = f"{np.mean(values):.3f}"
        table.append(line)
    if found:
        error = np.mean([cell["true_error"].mean() for cell in found.values()])
        table.insert(0, {"": f"true error {error:.3f}"})
    return table


def shift_table(out: Path, names: list[str]) -> list[Record]:
    """True error, and each mean certificate with its coverage; covtype from one wilderness area to another."""
    table: list[Record] = []
    for name, cell in cells(out, "shift", names, SHIFT_SIZE).items():
        line: Record = {"dataset": name, "draws": len(cell["draw"]), "true error": f"{cell['true_error'].mean():.3f}"}
        for key in SHIFT_CERTIFICATES:
            error, text = SHIFT_BOUNDS[key]
            line[text] = f"{cell[key].mean():.3f} ({np.mean(cell[key] >= cell[error] - 1e-12):.2f})"
        table.append(line)
    return table


def picked_table(out: Path, names: list[str], kinds: list[str]) -> list[Record]:
    """A line per way to draw labels: means over datasets, and coverage on average and in the least dataset."""
    table: list[Record] = []
    for kind in kinds:
        found = cells(out, "picked", [f"{name}.{kind}" for name in names], PICKED_SIZE).values()
        if not found:
            continue
        error = np.mean([cell["true_error"].mean() for cell in found])
        line: Record = {"labels drawn by": kind, "true error": f"{error:.3f}"}
        for key, (truth, text) in PICKED_BOUNDS.items():
            held = [float(np.mean(cell[key] >= cell[truth] - 1e-12)) for cell in found]
            line[text] = f"{np.mean([cell[key].mean() for cell in found]):.3f} ({np.mean(held):.2f}, {min(held):.2f})"
        table.append(line)
    return table


def all_cells(out: Path, names: list[str], sizes: list[int], shifts: list[str], picks: list[str]) -> list[Record]:
    """One line per study, dataset and number of labels: draws, the mean of each column, and how often bounds held."""
    lines: list[Record] = []
    studies = [("labels", names, sizes, LABEL_BOUNDS), ("transport", names, sizes, TRANSPORT_BOUNDS)]
    studies += [("audit", names, [100], {}), ("shift", shifts, [SHIFT_SIZE], SHIFT_BOUNDS)]
    studies.append(("picked", [f"{name}.{kind}" for name in names for kind in picks], [PICKED_SIZE], PICKED_BOUNDS))
    for study, chosen, at, bounds in studies:
        for n in at:
            for name, cell in cells(out, study, chosen, n).items():
                line: Record = {"study": study, "dataset": name, "n": n, "draws": len(cell["draw"])}
                line |= {key: round(float(values.mean()), 5) for key, values in cell.items() if key != "draw"}
                for key, (error, _) in bounds.items():
                    line[f"{key}_held"] = round(float(np.mean(cell[key] >= cell[error] - 1e-12)), 4)
                lines.append(line)
    return lines


def draw_bounds(out: Path, names: list[str], sizes: list[int], path: Path) -> None:
    """The mean bounds over the datasets, and the coverage of the cross-fitted one in each cell."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 3.8), layout="constrained")
    at = {n: cells(out, "labels", names, n) for n in sizes}
    at = {n: found for n, found in at.items() if found}
    lines = {"true_error": "true error"} | {key: text for key, (_, text) in LABEL_BOUNDS.items()}
    for key, text in lines.items():
        means = [np.mean([cell[key].mean() for cell in found.values()]) for found in at.values()]
        left.plot(list(at), means, "o-" if key != "true_error" else "k--", label=text, markersize=4)
    left.set(xscale="log", xlabel="labels", ylabel="share of errors", ylim=(0, None), title="Bounds at level 0.9")
    left.set_xticks(list(at), [str(n) for n in at], minor=False)
    left.minorticks_off()
    left.legend(frameon=False, fontsize=8)
    for position, found in enumerate(at.values()):
        held = [float(np.mean(cell["crossfit"] >= cell["true_error"] - 1e-12)) for cell in found.values()]
        spread = np.linspace(-0.2, 0.2, len(held))
        right.plot(position + spread, np.sort(held), ".", color="tab:blue")
        right.plot([position - 0.3, position + 0.3], [np.mean(held)] * 2, color="tab:blue")
    right.axhline(LEVEL, color="black", linestyle=":", linewidth=1)
    right.set_xticks(range(len(at)), [str(n) for n in at])
    right.set(xlabel="labels", ylabel="share of draws in which it held", ylim=(None, 1.02))
    right.set_title("Cross-fitted bound, a dot per dataset")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def draw_sizes(path: Path) -> None:
    """Labels that an audit takes, against the believed error, for several targets."""
    axes = sf.audit_size(target=0.05, expected_error=0.0, n_pool=5000).plot([0.02, 0.05, 0.1, 0.2])
    path.parent.mkdir(parents=True, exist_ok=True)
    axes.figure.savefig(path, dpi=110)
