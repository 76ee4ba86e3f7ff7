"""Compare how columns become features: our own pieces with those of skrub, by the accuracy of three classifiers.

    OPENBLAS_NUM_THREADS=1 python benchmarks/columns.py --out benchmarks/results-columns.md [--only dates]

For each kind of column (categories of more than 30 values, texts, dates), all tables of `messy_tables.py` that have one
are prepared as `surefoot fit` prepares them, except that the columns of that kind are encoded in another way. Each
table is sampled four times with 50 labels. Logistic regression, a forest and the mean of their probabilities are scored
on up to 2,000 other rows. Numbers are accuracy / log loss. Tables of more than 4,000 rows are sampled first.
`--only files` compares the size of a stored encoder, and the seconds to store and load it, on the texts of the tweets.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import skops.io
import skrub
from messy_tables import MORE, TABLES
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, TargetEncoder

from surefoot.pool.table import read_labeled_table, sort_columns
from surefoot.pool.table.cleaning import MISSING, DateParts, TailScaler, TextParts
from surefoot.pool.table.columns import Columns

LABELS, DRAWS, ROWS, SCORED = 50, 4, 4000, 2000
CLASSIFIERS = ("logistic regression", "forest", "mean of both")
Encode = Callable[[Any], np.ndarray]


def by_skrub(encoder: Any) -> Encode:
    """Each column by an encoder of skrub, with variances that add up to 1, as those of its StringEncoder do."""

    def encode(values: Any) -> np.ndarray:
        texts = values.fillna("").astype(str)
        found = [np.asarray(encoder().fit_transform(texts[name]), dtype=np.float64) for name in texts.columns]
        found = [part - part.mean(axis=0) for part in found]
        return np.hstack([part / np.sqrt(part.var(axis=0).sum()) for part in found])

    return encode


def cut(values: Any) -> np.ndarray:
    """A column of 0 and 1 for each of the 29 most frequent categories, and one for all others."""
    return OneHotEncoder(max_categories=30, sparse_output=False).fit_transform(values.fillna(MISSING))


def own(values: Any) -> np.ndarray:
    """N-grams as `surefoot fit` has them."""
    return np.hstack([TextParts().fit(values[name]).transform(values[name]) for name in values.columns])


def dates_by_skrub(cycles: str | None) -> Encode:
    """Parts of dates by skrub, those that vary, scaled by our rule."""

    def encode(values: Any) -> np.ndarray:
        found = []
        for name in values.columns:
            moments = pd.Series(pd.to_datetime(values[name].to_numpy() * 86_400, unit="s"), name=name)
            encoder = skrub.DatetimeEncoder(resolution="hour", add_weekday=True, periodic_encoding=cycles)
            parts = SimpleImputer(strategy="median").fit_transform(np.asarray(encoder.fit_transform(moments), float))
            for part, column in zip(encoder.get_feature_names_out(), parts.T, strict=True):
                if column.std() > 1e-9:
                    scaled = TailScaler().fit_transform(column[:, None])
                    found.append(column[:, None] if "circular" in part else scaled)
        return np.hstack(found)

    return encode


def strings(**options: Any) -> Encode:
    return by_skrub(lambda: skrub.StringEncoder(random_state=0, **options))


TARGET = "target encoder"
KINDS: dict[str, dict[str, Encode | None]] = {
    "categories": {
        "29 most frequent": cut,
        "ours": own,
        "skrub StringEncoder": strings(),
        "skrub MinHashEncoder": by_skrub(skrub.MinHashEncoder),
        TARGET: None,  # it needs labels, and is fitted to those of each sample
    },
    "texts": {
        "words and pairs of words": strings(n_components=50, analyzer="word", ngram_range=(1, 2)),
        "ours": own,
        "skrub StringEncoder": strings(),
        "ignored": lambda values: np.empty((len(values), 0)),
    },
    "dates": {
        "ours": lambda values: DateParts().fit_transform(values),
        "skrub, circular": dates_by_skrub("circular"),
        "skrub, linear": dates_by_skrub(None),
    },
}


def prepared(name: str) -> tuple[Columns, Any, Any]:
    """How the columns of a table are used, their values, and all labels."""
    table = {**TABLES, **MORE}[name]
    pool, whole = table.pool(LABELS, 0)
    with TemporaryDirectory() as folder:
        pool.to_csv(Path(folder) / "pool.csv", index=False)
        found = read_labeled_table(Path(folder) / "pool.csv", table.label)
    columns = sort_columns(found.features)
    keep = np.random.default_rng(0).permutation(len(whole))[:ROWS]
    return columns, columns.read(found.cells).iloc[keep], whole[table.label].astype(str).to_numpy()[keep]


def rest_of(columns: Columns, values: Any, kind: str, named: list[str]) -> np.ndarray:
    """The features of all columns but those of a kind."""
    gaps = [name for name in [*columns.numbers, *columns.dates] if values[name].isna().any()]
    names = [name for name in columns.categories if name not in columns.many_categories(values)]
    texts = [name for name in [*columns.many_categories(values), *columns.texts] if name not in named]
    parts = [
        ("numbers", make_pipeline(SimpleImputer(strategy="median"), TailScaler()), list(columns.numbers)),
        ("dates", DateParts(), [] if kind == "dates" else list(columns.dates)),
        ("missing", MissingIndicator(features="all"), gaps),
        ("categories", make_pipeline(SimpleImputer(strategy="constant", fill_value=MISSING),
                                     OneHotEncoder(sparse_output=False)), names),
        *[(f"text {name}", TextParts(), name) for name in texts],
    ]  # fmt: skip
    used = [part for part in parts if part[2]]
    return ColumnTransformer(used).fit_transform(values) if used else np.empty((len(values), 0))


def scores(X: np.ndarray, y: Any, categories: Any = None) -> np.ndarray:
    """(3, 2) mean accuracy and log loss of the classifiers; categories : columns for the target encoder."""
    found = []
    for draw in range(DRAWS):
        order = np.random.default_rng([draw, 5]).permutation(len(y))
        few, rest = order[:LABELS], order[LABELS : LABELS + SCORED]
        if len(np.unique(y[few])) < 2:
            continue
        train, test = X[few], X[rest]
        if categories is not None:
            encoder = TargetEncoder(random_state=0, cv=3)
            train = np.hstack([train, encoder.fit_transform(categories[few], y[few])])
            test = np.hstack([test, encoder.transform(categories[rest])])
        logistic = LogisticRegression(max_iter=300).fit(train, y[few])
        forest = RandomForestClassifier(60, random_state=0).fit(train, y[few])
        probabilities = [logistic.predict_proba(test), forest.predict_proba(test)]
        classes, of_row = logistic.classes_, []
        for proba in [*probabilities, np.mean(probabilities, axis=0)]:
            own_class = np.where(y[rest][:, None] == classes, proba, 0.0).sum(axis=1)
            right = classes[proba.argmax(axis=1)] == y[rest]
            of_row.append((right.mean(), -np.log(np.maximum(own_class, 1e-3)).mean()))
        found.append(of_row)
    return np.mean(found, axis=0)


def compare(kind: str, say: Callable[[str], None]) -> None:
    """A table for one kind of column: a line per encoding and table, then their means."""
    say(f"\n| {kind} | table | {' | '.join(CLASSIFIERS)} |\n|---|---|---|---|---|")
    means: dict[str, list[np.ndarray]] = {how: [] for how in KINDS[kind]}
    for name in [*TABLES, *MORE]:
        columns, values, y = prepared(name)
        named = {
            "categories": columns.many_categories(values), "texts": columns.texts, "dates": list(columns.dates)
        }[kind]  # fmt: skip
        if not named:
            continue
        rest = rest_of(columns, values, kind, named)
        for how, encode in KINDS[kind].items():
            if encode is None:
                found = scores(rest, y, values[named].fillna(MISSING).to_numpy())
            else:
                found = scores(np.hstack([rest, encode(values[named])]), y)
            means[how].append(found)
            say(f"| {how} | {name} | {' | '.join(f'{accuracy:.3f} / {loss:.3f}' for accuracy, loss in found)} |")
    for how, all_found in means.items():
        cells = [f"**{accuracy:.3f} / {loss:.3f}**" for accuracy, loss in np.mean(all_found, axis=0)]
        say(f"| {how} | **all {len(all_found)}** | {' | '.join(cells)} |")


def files(say: Callable[[str], None]) -> None:
    """Seconds and bytes of stored encoders."""
    texts = TABLES["tweets"].frame()["text"]
    say("\n| encoder of 19,332 tweets | seconds to fit | to store | to load | MB |\n|---|---|---|---|---|")
    for how, encoder in {"ours": TextParts(), "skrub StringEncoder": skrub.StringEncoder(random_state=0)}.items():
        with TemporaryDirectory() as folder:
            path, marks = Path(folder) / "encoder.skops", [time.process_time()]
            encoder.fit(texts)
            marks.append(time.process_time())
            skops.io.dump(encoder, path)
            marks.append(time.process_time())
            skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path))
            marks.append(time.process_time())
            cells = [f"{seconds:.2f}" for seconds in np.diff(marks)]
            say(f"| {how} | {' | '.join(cells)} | {path.stat().st_size / 1e6:.1f} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results-columns.md"))
    parser.add_argument("--only", default="", choices=["", *KINDS, "files"])
    asked = parser.parse_args()
    lines: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in [asked.only] if asked.only else [*KINDS, "files"]:
            if kind == "files":
                files(say)
            else:
                compare(kind, say)
    asked.out.write_text("\n".join(lines).lstrip() + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
