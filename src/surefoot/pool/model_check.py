"""A stored model before it is used: its sizes before it is unpacked, its types before and after it is built.

Compiled code of scikit-learn trusts what `fit` left: in a forged tree, index of neighbors or support vector machine it
reads, or writes, foreign memory. So types are refused unless they were reviewed here: those that predict by numpy's
arithmetic, which checks its shapes, and the encoders that our own models hold. The user may trust others by name.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import OneHotEncoder

from surefoot._errors import FileError

SCHEMA = "schema.json"
# Bytes that a file may unpack to without being trusted, and those of its description, which grows when it is parsed.
MOST_BYTES, MOST_SCHEMA_BYTES = 1 << 30, 64 << 20
TRUST_SIZE = "size"
# Packages of scikit-learn whose fitted types predict without compiled code that follows their arrays; of others, types.
_PACKAGES = {"calibration", "compose", "discriminant_analysis", "dummy", "feature_extraction", "gaussian_process"}
_PACKAGES |= {"impute", "linear_model", "model_selection", "multiclass", "naive_bayes", "neural_network"}
_PACKAGES |= {"pipeline", "preprocessing"}
_SOME = {
    "decomposition": {"PCA", "TruncatedSVD"},
    "ensemble": {"StackingClassifier", "VotingClassifier"},
}
_ARRAY, _ARCHIVE = b"\x93NUMPY", b"PK"  # how an array begins, and an archive


class ForgedError(ValueError):
    """What a model file holds cannot be what a fit left."""


def check_sizes(archive: zipfile.ZipFile) -> None:
    """Refuse an archive that unpacks to too much, by the sizes that it declares: more than that is never read."""
    total, schema = _declared(archive), archive.getinfo(SCHEMA).file_size
    if total <= MOST_BYTES and schema <= MOST_SCHEMA_BYTES:
        return
    size = f"{total / 2**30:.1f} GiB" if total > MOST_BYTES else f"{schema / 2**20:.0f} MiB of text"
    raise FileError(
        f"a model file must unpack to at most {MOST_BYTES >> 30} GiB, {MOST_SCHEMA_BYTES >> 20} MiB of it text; this "
        f"one unpacks to {size}. It was not loaded. If you know where it comes from, pass --trust {TRUST_SIZE}."
    )


def check_arrays(archive: zipfile.ZipFile) -> None:
    """Refuse arrays that declare more entries than the file holds: memory would be reserved for all of them."""
    for info in archive.infolist():
        with archive.open(info) as file:
            start = file.read(len(_ARRAY))
            if start == _ARRAY:
                file.seek(0)
                _check_array(file, info.file_size)
        if start.startswith(_ARCHIVE):
            with zipfile.ZipFile(io.BytesIO(archive.read(info))) as nested:
                check_arrays(nested)


def _declared(archive: zipfile.ZipFile) -> int:
    """Bytes that an archive, and the archives in it (sparse matrices are some), unpack to."""
    total = sum(info.file_size for info in archive.infolist())
    for info in archive.infolist():
        if total > MOST_BYTES:
            break
        with archive.open(info) as file:
            is_archive = file.read(len(_ARCHIVE)) == _ARCHIVE
        if is_archive:
            with zipfile.ZipFile(io.BytesIO(archive.read(info))) as nested:
                total += _declared(nested)
    return total


def _check_array(file: Any, n_bytes: int) -> None:
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    if version not in read:
        raise ForgedError(f"an array is of version {version}")
    shape, _, dtype = read[version](file)
    entries = 1
    for length in shape:
        entries *= int(length)
    if dtype.hasobject or min(shape, default=0) < 0 or entries * dtype.itemsize > n_bytes:
        raise ForgedError(f"an array declares {shape} entries of type {dtype}, more than it holds")


def foreign_types(archive: zipfile.ZipFile) -> set[str]:
    """Types of scikit-learn that an archive names and that are not reviewed here."""
    found: set[str] = set()
    waiting: list[Any] = [json.loads(archive.read(SCHEMA))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            found.add(f"{node.get('__module__')}.{node.get('__class__')}")
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return {name for name in found if is_foreign(name)}


def is_foreign(name: str) -> bool:
    """Whether a type is one of scikit-learn that is not reviewed here."""
    package, _, rest = name.removeprefix("sklearn.").partition(".")
    known = _SOME.get(package)
    reviewed = package in _PACKAGES or (known is not None and rest.rpartition(".")[2] in known)
    return name.startswith("sklearn.") and not reviewed


def check_model(model: Any, trusted: Collection[str]) -> None:
    """Raise a ForgedError where a loaded model holds what was not reviewed, or would make others leave their arrays."""
    for part in _parts(model):
        kind = type(part)
        name = f"{kind.__module__}.{kind.__qualname__}"
        _need(name in trusted or not is_foreign(name), f"it holds a {name}, which it does not name")
        if isinstance(part, OneHotEncoder):
            _check_one_hot(part)
        if isinstance(part, CountVectorizer):
            _check_words(part)
        if hasattr(part, "check_format") and hasattr(part, "nnz"):  # a sparse matrix
            _check_sparse(part)


def _parts(model: Any) -> Iterator[Any]:
    """All objects that a model is made of, each once."""
    seen: dict[int, Any] = {}
    waiting = [model]
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, str | bytes | int | float | type(None)):
            continue
        seen[id(part)] = part  # kept, so that its id is not given to another
        yield part
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list | tuple | set | frozenset):
            waiting += part
        elif isinstance(part, np.ndarray):
            waiting += part.ravel().tolist() if part.dtype == object else []
        elif not isinstance(part, type):
            waiting += getattr(part, "__dict__", {}).values()


def _need(holds: object, what: str) -> None:
    if not bool(holds):
        raise ForgedError(what)


def _check_one_hot(part: OneHotEncoder) -> None:
    own = vars(part)
    if "categories_" not in own:
        return
    outs = part._compute_n_features_outs()
    _need(list(own["_n_features_outs"]) == outs, "the number of categories is another")
    dropped = own.get("_drop_idx_after_grouping")
    maps = own.get("_default_to_infrequent_mappings") or [None] * len(outs)
    _need(len(maps) == len(outs), "the number of columns is another")
    for at, mapping in enumerate(maps):
        room = outs[at] + (dropped is not None and dropped[at] is not None)
        if mapping is not None:
            _need(mapping.shape == (len(own["categories_"][at]),), "categories are missing")
            _need(((mapping >= 0) & (mapping < room)).all(), "a category has no column")


def _check_words(part: CountVectorizer) -> None:
    columns = list(vars(part).get("vocabulary_", {}).values())
    _need(all(0 <= column < len(columns) for column in columns), "a word has no column")


def _check_sparse(matrix: Any) -> None:
    _need(matrix.format in {"csr", "csc", "bsr"}, f"a sparse matrix is of format {matrix.format}")
    matrix.check_format(full_check=True)
