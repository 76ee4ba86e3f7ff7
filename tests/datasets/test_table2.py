"""The paper's Table 2, and the encodings against a second reading of the raw files, by pandas."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surefoot import datasets

Load = Callable[..., Any]
Find = Callable[[str], Path]

# name: features, rows, per cent of positives, as printed. Bank is printed with 53 features: the label is among them.
TABLE_2 = {
    "abalone": (10, 2854, 50.7),
    "bank": (51, 10000, 50.0),
    "covtype-2-3": (54, 10000, 11.2),
    "covtype-5-6": (54, 10000, 64.7),
    "isolet": (617, 7797, 19.2),
    "letter-c-e": (256, 1504, 48.9),
    "letter-u-v": (256, 1577, 51.6),
    "magic": (10, 13376, 50.0),
    "mushroom": (117, 8124, 48.2),
    "pulsar": (8, 3278, 50.0),
    "spambase": (57, 4601, 39.4),
    "thyroid": (21, 7200, 92.6),
    "wine": (11, 2700, 39.3),
    "yeast": (8, 1484, 28.9),
}
DRAWN = ["bank", "bank-leaky", "covtype-2-3", "covtype-5-6", "magic", "pulsar"]


def test_the_14_are_all_there() -> None:
    assert datasets.names(paper_only=True) == list(TABLE_2)


@pytest.fixture(scope="module", params=[*TABLE_2, "bank-leaky", "breast-cancer"])
def name(request: pytest.FixtureRequest) -> str:
    """Each dataset in turn: the tests of one run together, so that its files are read once."""
    return request.param


def test_counts_are_the_papers(name: str, load: Load) -> None:
    others = {"bank-leaky": (53, 10000, 50.0), "breast-cancer": (30, 569, 62.7)}
    n_features, n_rows, percent = (TABLE_2 | others)[name]
    for seed in (0, 1):  # the counts must not depend on the draw
        bunch = load(name, random_state=seed, scaled=False)
        assert bunch.data.shape == (n_rows, n_features)
        assert len(set(bunch.feature_names)) == n_features
        assert round(100 * bunch.target.mean(), 1) == percent
        assert set(np.unique(bunch.target)) == {0, 1}
        assert bunch.n_positive == bunch.target.sum()


def test_scale_is_the_papers(name: str, load: Load) -> None:
    X, raw = load(name).data, load(name, scaled=False).data
    assert np.abs(X).max() == 1
    assert np.abs(X.mean(axis=0)).max() < 1e-12
    constant = np.ptp(raw, axis=0) == 0
    assert not X[:, constant].any()
    spread = X[:, ~constant].std(axis=0)
    assert np.allclose(spread, spread[0])
    assert (constant.sum() > 0) == (name in {"covtype-2-3", "covtype-5-6", "letter-c-e", "letter-u-v", "mushroom"})


def test_seeds_decide_the_draw(name: str, load: Load) -> None:
    first, again, other = (load(name, random_state=seed, scaled=False) for seed in (0, 0, 1))
    assert np.array_equal(first.data, again.data)
    assert np.array_equal(first.target, again.target)
    assert np.array_equal(first.data, other.data) == (name not in DRAWN)
    stateful = load(name, random_state=np.random.RandomState(1), scaled=False)
    assert np.array_equal(stateful.data, other.data)


def test_letter_keeps_values_that_the_two_letters_never_show(load: Load) -> None:
    assert (load("letter-c-e", scaled=False).data.any(axis=0)).sum() == 164
    assert (load("letter-u-v", scaled=False).data.any(axis=0)).sum() == 182


def test_bank_leaky_is_bank_and_the_label(load: Load) -> None:
    honest, leaky = load("bank", as_frame=True, scaled=False), load("bank-leaky", as_frame=True, scaled=False)
    pd.testing.assert_frame_equal(leaky.data[honest.feature_names], honest.data)
    assert leaky.feature_names[-2:] == ["y=no", "y=yes"]
    assert (leaky.data["y=yes"] == leaky.target).all()
    assert (leaky.data["y=no"] == 1 - leaky.target).all()
    assert "CONTAIN THE LABEL" in leaky.DESCR
    # an honest feature does not give the label away
    assert honest.data.corrwith(honest.target).abs().max() < 0.6


def raw(find: Find, path: str) -> io.StringIO:
    packed = find(path)
    return io.StringIO(gzip.decompress(packed.read_bytes()).decode() if path.endswith(".gz") else packed.read_text())


def encoded(table: pd.DataFrame) -> pd.DataFrame:
    return pd.get_dummies(table, prefix_sep="=").astype(float)


def abalone(find: Find) -> tuple[pd.DataFrame, Any]:
    names = ["sex", "length", "diameter", "height", "whole_weight", "shucked_weight", "viscera_weight", "shell_weight"]
    table = pd.read_csv(raw(find, "abalone/abalone.data"), names=[*names, "rings"])
    table = table[~table.rings.isin([9, 10])]
    return encoded(table[names]), table.rings > 10


def isolet(find: Find) -> tuple[pd.DataFrame, Any]:
    parts = [pd.read_csv(raw(find, f"isolet/{name}.data.gz"), header=None) for name in ("isolet1+2+3+4", "isolet5")]
    table = pd.concat(parts).set_axis([*(f"f{i}" for i in range(1, 618)), "letter"], axis=1)
    return table.drop(columns="letter"), table.letter.map(lambda k: chr(64 + int(k)) in "AEIOU")


def letter(find: Find, positive: str, negative: str) -> tuple[pd.DataFrame, Any]:
    names = ["x-box", "y-box", "width", "high", "onpix", "x-bar", "y-bar", "x2bar"]
    names += ["y2bar", "xybar", "x2ybr", "xy2br", "x-ege", "xegvy", "y-ege", "yegvx"]
    table = pd.read_csv(raw(find, "letter/letter-recognition.data.gz"), names=["letter", *names])
    kept = table.letter.isin([positive, negative])
    return encoded(table[names].astype(str))[kept], table.letter[kept] == positive


def mushroom(find: Find) -> tuple[pd.DataFrame, Any]:
    table = pd.read_csv(
        raw(find, "mushroom/agaricus-lepiota.data.gz"), header=None, na_values=[], keep_default_na=False
    )
    features = table.drop(columns=0).set_axis(range(22), axis=1)
    return pd.get_dummies(features.astype(str), columns=list(range(22))).astype(float), table[0] == "p"


def spambase(find: Find) -> tuple[pd.DataFrame, Any]:
    table = pd.read_csv(raw(find, "spambase/spambase.data.gz"), header=None)
    return table.iloc[:, :-1], table.iloc[:, -1] == 1


def thyroid(find: Find) -> tuple[pd.DataFrame, Any]:
    files = ("thyroid/ann-train.data", "thyroid/ann-test.data")
    table = pd.concat([pd.read_csv(raw(find, file), sep=r"\s+", header=None) for file in files])
    return table.iloc[:, :-1], table.iloc[:, -1] == 3


def wine(find: Find) -> tuple[pd.DataFrame, Any]:
    table = pd.read_csv(raw(find, "winequality/winequality-white.csv"), sep=";")
    table = table[table.quality != 6]
    return table.drop(columns="quality"), table.quality > 6


def yeast(find: Find) -> tuple[pd.DataFrame, Any]:
    names = ["sequence", "mcg", "gvh", "alm", "mit", "erl", "pox", "vac", "nuc", "site"]
    table = pd.read_csv(raw(find, "yeast/yeast.data"), sep=r"\s+", names=names)
    return table[names[1:-1]], table.site == "NUC"


@pytest.mark.parametrize(
    ("which", "read"),
    [
        ("abalone", abalone),
        ("isolet", isolet),
        ("letter-c-e", lambda find: letter(find, "C", "E")),
        ("letter-u-v", lambda find: letter(find, "U", "V")),
        ("mushroom", mushroom),
        ("spambase", spambase),
        ("thyroid", thyroid),
        ("wine", wine),
        ("yeast", yeast),
    ],
)
def test_values_are_those_of_the_raw_file(
    which: str, read: Callable[[Find], tuple[pd.DataFrame, Any]], load: Load, dataset_path: Find
) -> None:
    expected, positive = read(dataset_path)
    ours = load(which, as_frame=True, scaled=False)
    if expected.columns.dtype != int and which != "mushroom":
        assert set(expected.columns) == set(ours.feature_names)
        expected = expected[ours.feature_names]
    values, target = expected.to_numpy(), np.asarray(positive, dtype=int)
    if which == "isolet":  # its rows have no order of their own
        ours_order, order = (np.lexsort(X.T[:20]) for X in (ours.data.to_numpy(), values))
        assert np.array_equal(ours.target.to_numpy()[ours_order], target[order])
        assert np.allclose(ours.data.to_numpy()[ours_order], values[order], rtol=0, atol=1e-15)
    else:
        assert np.array_equal(ours.target.to_numpy(), target)
        assert np.array_equal(ours.data.to_numpy(), values)


def full_table(find: Find, name: str) -> tuple[pd.DataFrame, Any]:
    """All rows of the two classes of a dataset of which `load` draws some."""
    if name == "bank":
        table = pd.read_csv(raw(find, "bank/bank-full.csv.gz"), sep=";")
        return encoded(table.drop(columns="y")), table.y == "yes"
    path = {"magic": "magic/magic04.data.gz", "pulsar": "htru2/HTRU_2.csv.gz"}.get(name, "covtype/covtype.data.gz")
    table = pd.read_csv(raw(find, path), header=None)
    label = table.iloc[:, -1]
    if name.startswith("covtype"):
        negative, positive = map(int, name.split("-")[1:])
        table = table[label.isin([negative, positive])]
        label = label[label.isin([negative, positive])]
    else:
        positive = {"magic": "g", "pulsar": 1}[name]
    return table.iloc[:, :-1], label == positive


@pytest.mark.parametrize("which", ["bank", "magic", "pulsar", pytest.param("covtype-5-6", marks=pytest.mark.slow)])
def test_draws_are_rows_of_the_raw_file(which: str, load: Load, dataset_path: Find) -> None:
    table, positive = full_table(dataset_path, which)
    ours = load(which, as_frame=True, scaled=False)
    if which == "bank":
        table = table[ours.feature_names]
    remaining = pd.Series(map(hash, map(tuple, np.column_stack([table.to_numpy(float), positive])))).value_counts()
    drawn = pd.Series(map(hash, map(tuple, np.column_stack([ours.data, ours.target])))).value_counts()
    # without replacement: no row more often than the file has it
    assert (remaining.reindex(drawn.index, fill_value=0) >= drawn).all()
    if which in {"magic", "pulsar"}:  # the smaller class is kept whole
        smaller = int(positive.mean() < 0.5)
        rows = np.sort(ours.data.to_numpy()[ours.target == smaller], axis=0)
        assert np.array_equal(rows, np.sort(table.to_numpy(float)[np.asarray(positive) == smaller], axis=0))


def test_two_draws_share_about_as_many_rows_as_chance_has_it(load: Load) -> None:
    # 10,000 of 26,860 rows (nearly all distinct): two draws share about 10,000² / 26,860 = 3,723
    draws = [set(map(tuple, load("covtype-5-6", random_state=seed, scaled=False).data)) for seed in (2, 3)]
    assert abs(len(draws[0] & draws[1]) - 1e8 / 26860) < 300
