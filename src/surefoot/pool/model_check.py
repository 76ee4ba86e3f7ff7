"""A stored model before it is used: sizes before it is unpacked, and arrays that compiled code would follow blindly.

scikit-learn's compiled code trusts what `fit` left: a child that lies outside its tree, a class beyond the last one or
a column that is not there make it read, or write, foreign memory. Here each is checked, for every estimator of
scikit-learn that predicts with such code. All else fails with an ordinary error.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.ensemble._gb import BaseGradientBoosting
from sklearn.ensemble._hist_gradient_boosting.gradient_boosting import BaseHistGradientBoosting
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.neighbors import BallTree, KDTree
from sklearn.neighbors._base import NeighborsBase
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm._base import BaseLibSVM
from sklearn.tree import BaseDecisionTree
from sklearn.tree._tree import Tree

from surefoot._errors import FileError

SCHEMA = "schema.json"
# Bytes that a file may unpack to without being trusted, and those of its description, which grows when it is parsed.
MOST_BYTES, MOST_SCHEMA_BYTES = 1 << 30, 64 << 20
TRUST_SIZE = "size"
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


def check_model(model: Any) -> None:
    """Raise a ForgedError where compiled code would leave the arrays of a loaded model."""
    found = list(_parts(model))
    safe: set[int] = set()
    for part in found:
        for kind, check in _CHECKS.items():
            if isinstance(part, kind):
                safe.update(id(inner) for inner in check(part))
        if hasattr(part, "check_format") and hasattr(part, "nnz"):  # a sparse matrix
            _check_sparse(part)
    stray = next((part for part in found if isinstance(part, _NATIVE) and id(part) not in safe), None)
    if stray is not None:
        raise ForgedError(f"a {type(stray).__name__} is not where a fit would leave it")


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


def _check_children(left: Any, right: Any, is_leaf: Any) -> None:
    """A child comes after its parent and lies in the tree: every path ends."""
    at = np.flatnonzero(~is_leaf)
    for child in (left[at].astype(np.int64), right[at].astype(np.int64)):
        _need(((child > at) & (child < len(left))).all(), "a tree has a child outside it")


def _check_tree(tree: Any, n_features: Any) -> None:
    _need(isinstance(tree, Tree) and 0 < tree.node_count <= tree.capacity, "a tree has no nodes")
    _need(isinstance(n_features, int | np.integer) and tree.n_features == n_features, "a tree has other columns")
    left, right, feature = tree.children_left, tree.children_right, tree.feature
    is_leaf = left == -1
    _check_children(left, right, is_leaf)
    _need(((feature >= 0) & (feature < n_features))[~is_leaf].all(), "a tree splits a column that is not there")


def _decision_tree(part: Any) -> list[Any]:
    tree = vars(part).get("tree_")
    if tree is None:
        return []  # not fitted: it cannot predict
    _check_tree(tree, vars(part).get("n_features_in_"))
    return [tree]


def _boosted_trees(part: Any) -> list[Any]:
    """Trees of gradient boosting are followed without asking them: columns and classes are those of the whole."""
    own = vars(part)
    if "estimators_" not in own:
        return []
    trees, first = own["estimators_"], own.get("init_")
    width = len(own["classes_"]) if isinstance(part, GradientBoostingClassifier) else 1
    columns = 1 if width == 2 else width
    _need(isinstance(trees, np.ndarray) and trees.ndim == 2 and trees.shape[1] == columns, "a tree per class is needed")
    _need(own.get("n_trees_per_iteration_", columns) == columns, "a tree per class is needed")
    start = vars(first).get("class_prior_", vars(first).get("constant_")) if hasattr(first, "__dict__") else None
    is_dummy = type(first) in {DummyClassifier, DummyRegressor} and np.size(np.asarray(start)) == width
    _need(isinstance(first, str) or is_dummy, "boosting must begin with the shares of the classes")
    found = []
    for inner in trees.ravel():
        _check_tree(vars(inner).get("tree_"), own.get("n_features_in_"))
        found.append(inner.tree_)
    return found


def _binned_trees(part: Any) -> list[Any]:
    own = vars(part)
    if "_predictors" not in own:
        return []
    n_features, found = own.get("_n_features"), []
    _need(isinstance(n_features, int | np.integer), "the number of columns is missing")
    named = np.zeros(n_features, dtype=bool)
    is_categorical = np.asarray(vars(own["_bin_mapper"]).get("is_categorical_"))
    if is_categorical.shape == named.shape:
        named = is_categorical.astype(bool)
    for predictor in [tree for trees in own["_predictors"] for tree in trees]:
        nodes, sets = predictor.nodes, predictor.raw_left_cat_bitsets
        _need(isinstance(predictor, TreePredictor) and nodes.ndim == 1 and len(nodes), "a tree has no nodes")
        is_leaf = nodes["is_leaf"].astype(bool)
        _check_children(nodes["left"], nodes["right"], is_leaf)
        splits = nodes[~is_leaf]
        feature = splits["feature_idx"]
        _need(((feature >= 0) & (feature < n_features)).all(), "a tree splits a column that is not there")
        chosen = splits[splits["is_categorical"].astype(bool)]
        if len(chosen):
            _need(sets.ndim == 2 and sets.shape[1] >= 8, "a set of categories is missing")
            _need((chosen["bitset_idx"] < len(sets)).all(), "a set of categories is missing")
            _need(named[chosen["feature_idx"]].all(), "a tree takes numbers for categories")
        found.append(predictor)
    return found


def _neighbours(part: Any) -> list[Any]:
    """The index is built anew from its rows; what the file holds of it is not used."""
    own = vars(part)
    if "_fit_X" not in own:
        return []
    rows, k, method = own["_fit_X"], own.get("n_neighbors"), own.get("_fit_method")
    is_sparse = hasattr(rows, "check_format") and method == "brute"
    _need((isinstance(rows, np.ndarray) and rows.dtype.kind in "fiu") or is_sparse, "the rows are missing")
    _need(rows.ndim == 2 and own.get("n_samples_fit_") == rows.shape[0], "the number of rows is another")
    _need(own.get("n_features_in_", rows.shape[1]) == rows.shape[1], "the number of columns is another")
    _need(k is None or (isinstance(k, int | np.integer) and 0 < k <= rows.shape[0]), "there are too few rows")
    if "_y" in own and own.get("classes_") is not None and not own.get("outputs_2d_"):
        y = own["_y"]
        _need(isinstance(y, np.ndarray) and y.shape == rows.shape[:1] and y.dtype.kind == "i", "labels are missing")
        _need(((y >= 0) & (y < len(own["classes_"]))).all(), "a label is no class")
    stored = own.get("_tree")
    kind = {"kd_tree": KDTree, "ball_tree": BallTree}.get(str(method))
    if kind is not None:
        options = own.get("effective_metric_params_") or {}
        part._tree = kind(rows, own["leaf_size"], metric=own["effective_metric_"], **options)
    return [stored]


def _support_vectors(part: Any) -> list[Any]:
    own = vars(part)
    if "support_vectors_" not in own:
        return []
    vectors, support = own["support_vectors_"], own["support_"]
    _need(not own.get("_sparse") and isinstance(vectors, np.ndarray), "support vectors of sparse rows are not taken")
    n, is_classifier = len(support), "classes_" in own
    _need(vectors.shape == (n, own.get("n_features_in_")) or own.get("kernel") == "precomputed", "vectors are missing")
    _need(((support >= 0) & (support < own["shape_fit_"][0])).all(), "a support vector is no row")
    classes = len(own["classes_"]) if is_classifier else 2
    pairs = classes * (classes - 1) // 2
    counts = own["_n_support"]
    _need(len(counts) == classes or not is_classifier, "classes are missing")
    _need((counts >= 0).all() and (counts.sum() == n or not is_classifier), "vectors are missing")
    _need(own["_dual_coef_"].shape == (classes - 1, n) and own["_intercept_"].shape == (pairs,), "weights are missing")
    _need(all(len(own.get(name, ())) in {0, pairs} for name in ("_probA", "_probB")), "weights are missing")
    return []


def _one_hot(part: Any) -> list[Any]:
    own = vars(part)
    if "categories_" not in own:
        return []
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
    return []


def _words(part: Any) -> list[Any]:
    columns = list(vars(part).get("vocabulary_", {}).values())
    _need(all(0 <= column < len(columns) for column in columns), "a word has no column")
    return []


def _check_sparse(matrix: Any) -> None:
    _need(matrix.format in {"csr", "csc", "bsr"}, f"a sparse matrix is of format {matrix.format}")
    matrix.check_format(full_check=True)


_NATIVE = (Tree, TreePredictor, KDTree, BallTree)
_CHECKS: dict[type, Callable[[Any], list[Any]]] = {
    BaseDecisionTree: _decision_tree,
    BaseGradientBoosting: _boosted_trees,
    BaseHistGradientBoosting: _binned_trees,
    NeighborsBase: _neighbours,
    BaseLibSVM: _support_vectors,
    OneHotEncoder: _one_hot,
    CountVectorizer: _words,
}
