"""What a column of a table holds: recognised by its cells, and for identifiers also by its name."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.pool.table.texts import common_words

# Columns that number the rows, and say no more than that.
ROW_NUMBER = re.compile(r"^(index|idx|row|rownum|row_?number|rownames?|column 1|unnamed: ?\d+)$", re.I)
_ID_NAME = re.compile(
    ROW_NUMBER.pattern + r"|(_| |-|\.|^)(id|uuid|guid|key)([ _]?(str|num|no|nr))?$",
    re.I,
)
_CAMEL_ID = re.compile(r"(?<=[a-z])(Id|ID|Key|UUID)$")
_YEAR_NAME = re.compile(r"year|jahr|ann[eé]e|año|^yr", re.I)
# From so many cells on a column can be seen to be different in every row, or in nearly every row.
_FEWEST_ROWS = 20
_EVERY_ROW, _NEARLY = 1.0, 0.95
# Codes with digits repeat by chance or by families: fewer different ones suffice. Names must differ in most rows.
_CODES, _NAMES = 0.7, 0.9
# Texts of at least so many words on average, of which at least this share differ, are free text.
_FEWEST_WORDS, _MOSTLY = 3.0, 0.5
# So many different texts, and words that occur in two of them, are needed to learn from words.
_FEWEST_TEXTS, _FEWEST_COMMON = 30, 10


def has_id_name(name: str) -> bool:
    """Whether a column is called as identifiers are."""
    return bool(_ID_NAME.search(name) or _CAMEL_ID.search(name))


def counts_rows(name: str, values: NDArray[np.float64]) -> bool:
    """Whole numbers, a different one in (nearly) each row: all those of a range, or under the name of an identifier."""
    known = values[np.isfinite(values)]
    if len(known) < _FEWEST_ROWS or (known != np.round(known)).any():
        return False
    n_values = len(np.unique(known))
    if has_id_name(name):
        return n_values >= _NEARLY * len(known)
    if n_values < len(values) or (_YEAR_NAME.search(name) and 1000 <= known.min() <= known.max() <= 3000):
        return False
    return bool(known.max() - known.min() + 1 <= n_values / _NEARLY)


def identifies(name: str, texts: Any) -> bool:
    """Whether the texts of a column, missing ones left out, name single rows: ids, codes, names."""
    n_cells, n_values = len(texts), texts.nunique()
    if n_cells < _FEWEST_ROWS:
        return bool(n_values == n_cells and has_id_name(name))
    share = n_values / n_cells
    if has_id_name(name) and share >= _CODES:
        return True
    coded = texts.str.contains(r"\d").mean() > 0.5
    return bool(n_values > _FEWEST_TEXTS and share >= (_CODES if coded else _NAMES))


def is_free_text(texts: Any) -> bool:
    """Whether the texts of a column, missing ones left out, are of many words, mostly different, some in common."""
    n_values = texts.nunique()
    if n_values <= _FEWEST_TEXTS or n_values < _MOSTLY * len(texts):
        return False
    words = texts.str.findall(r"[^\W\d_]{2,}").str.len()
    if words.mean() < _FEWEST_WORDS:
        return False
    return common_words(texts.drop_duplicates().iloc[:5000].tolist()) >= _FEWEST_COMMON
