"""Run `surefoot fit` on messy tables without options: seconds, bounds, true error rates, and logistic regression.

    OPENBLAS_NUM_THREADS=1 python benchmarks/tables.py --out benchmarks/results-tables.csv [--only titanic,cars]

Each table is sampled five times with 50 random labels. Lines that the file already contains are not run again.
`--seconds` ends a run after that time, and the next run continues it. `--page docs/tables.md` writes the tables of
results into that page. `seconds` is processor time, which excludes other programs, and `wall` is wall-clock time.
Logistic regression is scikit-learn's, on the cleaned features of the same pipeline and the same labels. `--scales`
compares the rule for the scale of columns with plain standardization. `--units` compares the model on features as
cleaned with the model on standardized features. Both also use the datasets of the paper.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from messy_tables import TABLES, Messy
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from surefoot.cli import run
from surefoot.pool.model_file import load_model

LABELS, DRAWS = 50, 5
FIELDS = (
    "table", "draw", "rows", "classes", "features", "tries", "seconds", "wall", "error_message",
    "crossfit", "worst_error", "worst_log_loss", "guaranteed", "true_error", "true_log_loss", "accuracy", "expected",
    "logistic_accuracy", "largest_answer", "logistic_largest", "notes",
)  # fmt: skip


def command(*arguments: object) -> tuple[int, dict[str, Any]]:
    """Run a command in this process. Returns its exit code and its JSON object."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = run([*map(str, arguments), "--json"])
    return code, json.loads(printed.getvalue())


def one(name: str, table: Messy, draw: int, folder: Path) -> dict[str, Any]:
    """One sample of one table: fit without options, then compare with all labels."""
    pool, whole = table.pool(LABELS, draw)
    path, truth, model = folder / f"{name}.csv", folder / f"{name}-truth.csv", folder / f"{name}.skops"
    pool.to_csv(path, index=False, lineterminator="\r\n")
    whole[pool[table.label].isna().to_numpy()].to_csv(truth, index=False, lineterminator="\r\n")
    began, clock = time.process_time(), time.monotonic()
    how = ("--out", model, "--no-report", "--worst-case", "--jobs", 1)
    code, fitted = command("fit", path, "--label", table.label, *how)
    row: dict[str, Any] = {
        "table": name,
        "draw": draw,
        "rows": len(pool),
        "classes": whole[table.label].nunique(),
        "seconds": round(time.process_time() - began, 1),
        "wall": round(time.monotonic() - clock, 1),
        "tries": 1 if code == 0 else "none",
    }
    if code != 0:
        return {**row, "error_message": fitted.get("error", "")}
    _, scored = command("score", model, truth)
    bounds = {(bound["method"], bound["loss"]): bound for bound in scored["bounds"]}
    crossfit, worst = bounds.get(("crossfit", "zero_one")), bounds.get(("transport", "zero_one"))
    log_loss = bounds.get(("transport", "log_loss"))
    row |= {
        "features": fitted["features"],
        "crossfit": crossfit and crossfit["value"],
        "worst_error": worst and worst["value"],
        "worst_log_loss": log_loss and log_loss["value"],
        "guaranteed": bool(worst and worst["guaranteed"]),
        "true_error": 1 - scored["accuracy"],
        "true_log_loss": scored["log_loss"],
        "accuracy": scored["accuracy"],
        "expected": fitted["accuracy"] and fitted["accuracy"]["cross_validated"],
        "largest_answer": max(fitted["answers"].values()),
        "notes": len(fitted["notes"]),
    }
    return row | logistic(model, path, truth, table.label)


def logistic(model: Path, path: Path, truth: Path, label: str) -> dict[str, float]:
    """scikit-learn's logistic regression on the cleaned features, before they are divided by the largest entry."""
    from surefoot.pool.table.pool import read_labels
    from surefoot.pool.table.reading import read_table

    stored = load_model(model)
    pool, rest = read_table(path), read_table(truth)
    scale = stored.cleaner[-1].scale_
    rows = stored.cleaner.transform(stored.columns.read(pool)) * scale
    labels = read_labels(pool[label])
    known = np.array([value is not None for value in labels])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = LogisticRegression(max_iter=2000).fit(rows[known], labels[known].astype(str))
    answers = plain.predict(stored.cleaner.transform(stored.columns.read(rest)) * scale)
    _, counts = np.unique(answers, return_counts=True)
    right = answers == read_labels(rest[label]).astype(str)
    return {"logistic_accuracy": float(right.mean()), "logistic_largest": float(counts.max() / len(answers))}


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def measure(out: Path, only: list[str], seconds: float) -> None:
    done = {(row["table"], int(row["draw"])) for row in read(out)}
    began = time.monotonic()
    for draw in range(DRAWS):
        for name, table in TABLES.items():
            if (only and name not in only) or (name, draw) in done:
                continue
            if time.monotonic() - began > seconds:
                return
            with tempfile.TemporaryDirectory() as folder:
                row = one(name, table, draw, Path(folder))
            new = not out.exists()
            with out.open("a", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, FIELDS)
                if new:
                    writer.writeheader()
                writer.writerow(row)
            print(row, flush=True)


def of(rows: list[dict[str, str]], name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows if row[name] not in ("", "None")])


def results_table(rows: list[dict[str, str]]) -> str:
    """One line per table, over its draws."""
    heads = (
        "table", "rows", "classes", "features", "fitted", "seconds", "cross-fitted bound", "worst case",
        "error rate", "bounds exceeded", "accuracy", "expected accuracy", "logistic regression", "most frequent class",
    )  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for name in TABLES:
        mine = [row for row in rows if row["table"] == name]
        if not mine:
            continue
        fitted = [row for row in mine if row["tries"] == "1"]
        truth, said, worst = of(fitted, "true_error"), of(fitted, "crossfit"), of(fitted, "worst_error")
        broken = sum(
            float(row["true_error"]) > float(row[bound])
            for row in fitted
            for bound in ("crossfit", "worst_error")
            if row[bound]
        )
        n_said = sum(bool(row[bound]) for row in fitted for bound in ("crossfit", "worst_error"))
        cells = [
            name,
            f"{int(mine[0]['rows']):,}",
            mine[0]["classes"],
            fitted[0]["features"] if fitted else "",
            f"{len(fitted)} of {len(mine)}",
            f"{of(mine, 'seconds').mean():.0f} (at most {of(mine, 'seconds').max():.0f})",
            f"{said.mean():.3f}" if len(said) else "none",
            f"{worst.mean():.3f}" if len(worst) else "none",
            f"{truth.mean():.3f}",
            f"{broken} of {n_said}",
            f"{of(fitted, 'accuracy').mean():.3f}",
            f"{of(fitted, 'expected').mean():.3f}",
            f"{of(fitted, 'logistic_accuracy').mean():.3f}",
            f"{of(fitted, 'largest_answer').mean():.2f} ({of(fitted, 'logistic_largest').mean():.2f})",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def sources_table() -> str:
    lines = ["| table | from | label | difficulties |", "|---|---|---|---|"]
    lines += [f"| {name} | {one.source} | {one.label} | {one.about} |" for name, one in TABLES.items()]
    return "\n".join(lines)


def write_page(page: Path, tables: dict[str, str]) -> None:
    """Put each table between its two marks in a page."""
    text = page.read_text(encoding="utf-8")
    for mark, table in tables.items():
        begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
        if begin not in text or end not in text:
            raise ValueError(f"{page} must hold the marks {begin} and {end}; one is missing. Add them.")
        head, rest = text.split(begin)
        text = f"{head}{begin}\n{table}\n{end}{rest.split(end)[1]}"
    page.write_text(text, encoding="utf-8")


def scales(out: Path) -> None:
    """Accuracy of logistic regression on features scaled by the rule, and by mean and standard deviation alone."""
    import pandas as pd

    from surefoot import datasets
    from surefoot.pool.table.cells import as_numbers
    from surefoot.pool.table.cleaning import TailScaler
    from surefoot.pool.table.columns import sort_columns

    lines = []
    sets: dict[str, tuple[Any, Any]] = {}
    for name, table in TABLES.items():
        frame = table.frame()
        columns = sort_columns(frame.drop(columns=[table.label]))
        numbers = {key: as_numbers(frame[key], columns.styles.get(key, "point"))[0] for key in columns.numbers}
        values = pd.DataFrame(numbers).fillna(pd.DataFrame(numbers).median()).to_numpy()
        sets[name] = values, frame[table.label].astype(str).to_numpy()
    for name in datasets.names():
        found = datasets.load(name)
        sets[name] = found.data, np.asarray(found.target).astype(str)
    for name, (X, y) in sets.items():
        if not X.shape[1]:
            continue
        rule, accuracies = TailScaler().fit(X), {"rule": [], "plain": []}
        scaled = {"rule": rule.transform(X), "plain": StandardScaler().fit_transform(X)}
        for draw in range(20):
            rng = np.random.default_rng(draw)
            order = rng.permutation(len(y))
            few, rest = order[:LABELS], order[LABELS : LABELS + 5000]
            if len(np.unique(y[few])) < 2:
                continue
            for how, rows in scaled.items():
                clf = LogisticRegression(max_iter=500).fit(rows[few], y[few])
                accuracies[how].append(clf.score(rows[rest], y[rest]))
        changed = sum(one != "plain" for one in rule.rules_)
        plain, ruled = np.mean(accuracies["plain"]), np.mean(accuracies["rule"])
        line = f"| {name} | {changed} of {X.shape[1]} | {plain:.3f} | {ruled:.3f} |"
        print(line, flush=True)
        lines.append(line)
    head = "| table | columns that the rule transforms | plain | by the rule |\n|---|---|---|---|\n"
    out.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


def units(out: Path) -> None:
    """Accuracy and log loss of the default model on features as cleaned and standardised, and logistic regression."""
    from surefoot import RobustLogisticRegression, Unlabeled, datasets
    from surefoot.costs import LearnedMetric
    from surefoot.pool.table import clean, read_labeled_table
    from surefoot.pool.table.cleaning import TailScaler

    def cleaned(table: Messy) -> tuple[Any, Any]:
        with tempfile.TemporaryDirectory() as folder:
            pool, whole = table.pool(LABELS, 0)
            pool.to_csv(Path(folder) / "pool.csv", index=False)
            found = clean(read_labeled_table(Path(folder) / "pool.csv", table.label))
        return found.rows * found.cleaner[-1].scale_, whole[table.label].astype(str).to_numpy()

    def numbers(name: str) -> tuple[Any, Any]:
        found = datasets.load(name)
        return TailScaler().fit_transform(found.data), np.asarray(found.target).astype(str)

    sets = [(name, lambda table=table: cleaned(table)) for name, table in TABLES.items()]
    sets += [(name, lambda name=name: numbers(name)) for name in datasets.names(paper_only=True)]
    how = {"logistic regression": None, "standardised": LearnedMetric(), "as cleaned": LearnedMetric(unit=1.0)}
    lines, totals = [], {"tables": [], "datasets": []}
    for name, load in sets:
        X, y = load()
        found = np.array([_one_draw(X, y, draw, how, RobustLogisticRegression, Unlabeled) for draw in range(3)])
        totals["tables" if name in TABLES else "datasets"].append(found.mean(axis=0))
        cells = [f"{accuracy:.3f} / {loss:.3f}" for accuracy, loss in found.mean(axis=0)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    for kind, values in totals.items():
        cells = [f"{accuracy:.3f} / {loss:.3f}" for accuracy, loss in np.mean(values, axis=0)]
        lines.append(f"| **all {len(values)} {kind}** | {' | '.join(cells)} |")
    head = f"| | {' | '.join(how)} |\n|---|{'---|' * len(how)}\n"
    out.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


def _one_draw(X: Any, y: Any, draw: int, how: dict[str, Any], robust: Any, unlabeled: Any) -> list[tuple[float, float]]:
    """Accuracy and log loss on 3,000 further rows, of which the first 600 are passed without labels."""
    rng = np.random.default_rng([draw, 5])
    order = rng.permutation(len(y))
    while len(np.unique(y[order[:LABELS]])) < 2:
        order = rng.permutation(len(y))
    few, rest = order[:LABELS], order[LABELS : LABELS + 3000]
    scores = []
    for metric in how.values():
        if metric is None:
            model = LogisticRegression(max_iter=1000).fit(X[few], y[few])
        else:
            model = robust(metric=metric, tol=1e-3).fit(X[few], y[few], X_unlabeled=unlabeled(X[rest[:600]]))
        proba, places = model.predict_proba(X[rest]), {name: k for k, name in enumerate(model.classes_)}
        own = [proba[row, places[name]] if name in places else 0.0 for row, name in enumerate(y[rest])]
        scores.append((float(model.score(X[rest], y[rest])), float(-np.log(np.maximum(own, 1e-3)).mean())))
    return scores


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results-tables.csv"))
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--page", type=Path)
    parser.add_argument("--scales", type=Path, help="write the comparison of scales to this file")
    parser.add_argument("--units", type=Path, help="write the comparison of cleaned and standardized features")
    asked = parser.parse_args()
    if asked.units is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            units(asked.units)
    elif asked.scales is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scales(asked.scales)
    elif asked.page is not None:
        tables = {"tables": sources_table(), "results": results_table(read(asked.out))}
        write_page(asked.page, tables)
    else:
        measure(asked.out, [name for name in asked.only.split(",") if name], asked.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
