"""Convert the canonical content of raw files (see `_files`) to the paper's features, with one function per layout.

Each function returns every row of the two classes, before any sampling. Attributes keep the order of the file. One-hot
columns are called attribute=value, with the values in sorted order.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.datasets._download import ISOLET_COLUMNS

# Names of the attributes of raw files without a header.


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ABALONE = _words("length diameter height whole_weight shucked_weight viscera_weight shell_weight")
COVTYPE = (
    *_words("elevation aspect slope horizontal_distance_to_hydrology vertical_distance_to_hydrology"),
    *_words("horizontal_distance_to_roadways hillshade_9am hillshade_noon hillshade_3pm"),
    "horizontal_distance_to_fire_points",
    *(f"wilderness_area_{i}" for i in range(1, 5)),
    *(f"soil_type_{i}" for i in range(1, 41)),
)
ISOLET = tuple(f"f{i}" for i in range(1, 618))
LETTER = _words("x-box y-box width high onpix x-bar y-bar x2bar y2bar xybar x2ybr xy2br x-ege xegvy y-ege yegvx")
MAGIC = _words("fLength fWidth fSize fConc fConc1 fAsym fM3Long fM3Trans fAlpha fDist")
MUSHROOM = _words(
    """cap-shape cap-surface cap-color bruises odor gill-attachment gill-spacing gill-size gill-color stalk-shape
    stalk-root stalk-surface-above-ring stalk-surface-below-ring stalk-color-above-ring stalk-color-below-ring
    veil-type veil-color ring-number ring-type spore-print-color population habitat"""
)
PULSAR = tuple(
    f"{curve}_{moment}" for curve in ("profile", "dm_snr") for moment in ("mean", "std", "kurtosis", "skewness")
)
_SPAM_WORDS = _words(
    """make address all 3d our over remove internet order mail receive will people report addresses free business email
    you credit your font 000 money hp hpl george 650 lab labs telnet 857 data 415 85 technology 1999 parts pm direct cs
    meeting original project re edu table conference"""
)
SPAMBASE = (
    *(f"word_freq_{word}" for word in _SPAM_WORDS),
    *(f"char_freq_{char}" for char in ";([!$#"),
    *(f"capital_run_length_{measure}" for measure in ("average", "longest", "total")),
)
THYROID = _words(
    """age sex on_thyroxine query_on_thyroxine on_antithyroid_medication sick pregnant thyroid_surgery I131_treatment
    query_hypothyroid query_hyperthyroid lithium goitre tumor hypopituitary psych TSH T3 TT4 T4U FTI"""
)
YEAST = _words("mcg gvh alm mit erl pox vac nuc")


@dataclass(frozen=True)
class EncodedTable:
    """Encoded rows: data (N, d) in a small dtype, target (N,) of 0 and 1, and d names."""

    data: NDArray[Any]
    target: NDArray[np.int64]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        for array in (self.data, self.target):
            array.flags.writeable = False  # tables are cached between calls


Contents = tuple[bytes, ...]
Encoder = Callable[[Contents], EncodedTable]
# columns (N, c) and their c names
Block = tuple[NDArray[Any], list[str]]


def abalone(contents: Contents) -> EncodedTable:
    """Sex (one-hot) and 7 measurements; rings > 10 against rings < 9."""
    sex, *measures, rings = _columns(contents[0], ",")
    n_rings = np.array(rings, dtype=np.int64)
    blocks = [_one_hot(sex, "sex"), *map(_number, measures, ABALONE)]
    return _table(blocks, n_rings > 10, keep=(n_rings < 9) | (n_rings > 10))


def bank(contents: Contents) -> EncodedTable:
    """7 numbers and 9 attributes (one-hot); subscribed or not."""
    *attributes, outcome = _bank_blocks(contents)
    return _table(attributes, outcome[0][:, 1])


def bank_leaky(contents: Contents) -> EncodedTable:
    """The features of `bank`, then the label itself, one-hot (y=no, y=yes)."""
    blocks = _bank_blocks(contents)
    return _table(blocks, blocks[-1][0][:, 1])


def _bank_blocks(contents: Contents) -> list[Block]:
    numbers = {"age", "balance", "day", "duration", "campaign", "pdays", "previous"}
    columns = _columns(contents[0], ";")
    return [(_number if name in numbers else _one_hot)(values, name) for name, *values in columns]


def breast_cancer(_: Contents) -> EncodedTable:
    """30 numbers, as in scikit-learn; benign against malignant."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    return EncodedTable(bunch.data, _binary(bunch.target), tuple(map(str, bunch.feature_names)))


def covtype(negative: int, positive: int) -> Encoder:
    """10 numbers, 4 + 40 unchanged binary columns; two of the seven cover types."""

    def encode(contents: Contents) -> EncodedTable:
        # Selecting the lines by their end first avoids most of the parsing.
        lines = [line for line in contents[0].split() if line.endswith((b",%d" % negative, b",%d" % positive))]
        numbers = _numbers(b"\n".join(lines), np.int16)
        return EncodedTable(numbers[:, :-1], _binary(numbers[:, -1] == positive), COVTYPE)

    return encode


def isolet(contents: Contents) -> EncodedTable:
    """617 numbers; the vowels A, E, I, O, U against all other letters."""
    units = np.concatenate([np.frombuffer(part, dtype="<i2").reshape(-1, ISOLET_COLUMNS) for part in contents])
    return EncodedTable(units[:, :-1] / 10_000, _binary(np.isin(units[:, -1], (1, 5, 9, 15, 21))), ISOLET)


def letter(positive: str, negative: str) -> Encoder:
    """16 attributes with values 0..15, each one-hot over all 16 values, even if neither letter has the value."""

    def encode(contents: Contents) -> EncodedTable:
        chosen = (positive.encode(), negative.encode())
        lines = [line for line in contents[0].split() if line.startswith(chosen)]
        letters, *attributes = _columns(b"\n".join(lines), ",")
        values = [str(value) for value in range(16)]
        blocks = [_one_hot(column, name, values) for column, name in zip(attributes, LETTER, strict=True)]
        return _table(blocks, np.array(letters) == positive)

    return encode


def magic(contents: Contents) -> EncodedTable:
    """10 numbers; gamma rays (g) against hadrons (h)."""
    *attributes, kind = _columns(contents[0], ",")
    return _table([*map(_number, attributes, MAGIC)], np.array(kind) == "g")


def mushroom(contents: Contents) -> EncodedTable:
    """22 attributes, each one-hot over its values ("?" of stalk-root is one); poisonous against edible."""
    kind, *attributes = _columns(contents[0], ",")
    return _table([*map(_one_hot, attributes, MUSHROOM)], np.array(kind) == "p")


def pulsar(contents: Contents) -> EncodedTable:
    """8 numbers; pulsars against other candidates."""
    return _numeric_table(_numbers(contents[0]), 1, PULSAR)


def spambase(contents: Contents) -> EncodedTable:
    """57 numbers; spam or not."""
    return _numeric_table(_numbers(contents[0]), 1, SPAMBASE)


def thyroid(contents: Contents) -> EncodedTable:
    """21 numbers, the training file and then the test file; class 3 against classes 1 and 2."""
    return _numeric_table(np.concatenate([_numbers(part, delimiter=None) for part in contents]), 3, THYROID)


def wine(contents: Contents) -> EncodedTable:
    """11 numbers of the white wines; quality >= 7 against quality <= 5."""
    header, _, body = contents[0].partition(b"\n")
    numbers = _numbers(body, delimiter=";")
    numbers = numbers[numbers[:, -1] != 6]
    names = tuple(next(csv.reader([header.decode()], delimiter=";")))
    return EncodedTable(numbers[:, :-1], _binary(numbers[:, -1] >= 7), names[:-1])


def yeast(contents: Contents) -> EncodedTable:
    """8 numbers, without the sequence name; nuclear proteins (NUC) against the rest."""
    _, *attributes, site = _columns(contents[0], " ")
    return _table([*map(_number, attributes, YEAST)], np.array(site) == "NUC")


def _columns(content: bytes, delimiter: str) -> list[tuple[str, ...]]:
    rows = csv.reader(io.StringIO(content.decode("ascii")), delimiter=delimiter)
    return list(zip(*rows, strict=True))


def _numbers(content: bytes, dtype: type[Any] = np.float64, delimiter: str | None = ",") -> NDArray[Any]:
    return np.loadtxt(io.BytesIO(content), delimiter=delimiter, dtype=dtype, ndmin=2)


def _number(values: Sequence[str], name: str) -> Block:
    return np.array(values, dtype=np.float64)[:, None], [name]


def _one_hot(values: Sequence[str], name: str, categories: Sequence[str] | None = None) -> Block:
    known = sorted(set(values)) if categories is None else categories
    code = {value: k for k, value in enumerate(known)}
    codes = np.array([code[value] for value in values])
    return (codes[:, None] == np.arange(len(known))).astype(np.int8), [f"{name}={value}" for value in known]


def _table(blocks: Sequence[Block], positive: ArrayLike, keep: NDArray[np.bool_] | slice = slice(None)) -> EncodedTable:
    data = np.hstack([columns for columns, _ in blocks])
    return EncodedTable(data[keep], _binary(positive)[keep], tuple(name for _, names in blocks for name in names))


def _numeric_table(numbers: NDArray[np.float64], positive: int, names: tuple[str, ...]) -> EncodedTable:
    """Build a table from numbers whose last column is the class."""
    return EncodedTable(numbers[:, :-1], _binary(numbers[:, -1] == positive), names)


def _binary(positive: ArrayLike) -> NDArray[np.int64]:
    return np.asarray(positive).astype(np.int64)
