"""Model files: a fitted pipeline with its certificate. skops stores and loads it without running code from the file."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

from surefoot._errors import FileError, first_line, import_extra
from surefoot._files import write_bytes
from surefoot._printing import cut
from surefoot._version import __version__
from surefoot.certificates.calibration import CalibratedRadius
from surefoot.estimators.base import CertifiedClassifier
from surefoot.estimators.combined import CombinedClassifier, TreeAverage
from surefoot.pool.table.cells import row_keys
from surefoot.pool.table.columns import Columns

if TYPE_CHECKING:
    from surefoot.pool.model import TrainedModel


# Checks of a stored model: sizes before unpacking, types before and after loading.

SCHEMA = "schema.json"
# Most bytes that an untrusted file, and its schema, may unpack to. A parsed schema takes even more memory.
MOST_BYTES, MOST_SCHEMA_BYTES = 1 << 30, 64 << 20
TRUST_SIZE = "size"
# Packages of scikit-learn that predict without compiled code that follows fitted arrays. _SOME lists single types.
_PACKAGES = {"calibration", "compose", "discriminant_analysis", "dummy", "feature_extraction", "gaussian_process"}
_PACKAGES |= {"impute", "linear_model", "model_selection", "multiclass", "naive_bayes", "neural_network"}
_PACKAGES |= {"pipeline", "preprocessing"}
_SOME = {
    "decomposition": {"PCA", "TruncatedSVD"},
    "ensemble": {"RandomForestClassifier", "StackingClassifier", "VotingClassifier"},
    "tree": {"DecisionTreeClassifier"},  # must be unfitted: a fitted tree contains a Tree, which skops does not trust
}
_ARRAY, _ARCHIVE = b"\x93NUMPY", b"PK"  # first bytes of an array and of an archive


class ForgedError(ValueError):
    """The content of a model file cannot result from a fit."""


def check_sizes(archive: zipfile.ZipFile) -> None:
    """Raise an error if an archive declares too large a size. The reader never reads beyond the declared size."""
    total, schema = _declared(archive), archive.getinfo(SCHEMA).file_size
    if total <= MOST_BYTES and schema <= MOST_SCHEMA_BYTES:
        return
    size = f"{total / 2**30:.1f} GiB" if total > MOST_BYTES else f"{schema / 2**20:.0f} MiB of text"
    raise FileError(
        f"a model file must unpack to at most {MOST_BYTES >> 30} GiB, {MOST_SCHEMA_BYTES >> 20} MiB of it text; this "
        f"one unpacks to {size}. It was not loaded. If you know where it comes from, pass --trust {TRUST_SIZE}."
    )


def check_arrays(archive: zipfile.ZipFile) -> None:
    """Raise an error if an array declares more entries than the file contains. Loading would reserve the memory."""
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
    """Return the number of bytes that an archive unpacks to, including nested archives such as sparse matrices."""
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
    """Return the types of scikit-learn that an archive names and that have not been reviewed."""
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
    """Return True for a type of scikit-learn that has not been reviewed."""
    package, _, rest = name.removeprefix("sklearn.").partition(".")
    known = _SOME.get(package)
    reviewed = package in _PACKAGES or (known is not None and rest.rpartition(".")[2] in known)
    return name.startswith("sklearn.") and not reviewed


def check_model(model: Any, trusted: Collection[str]) -> None:
    """Raise a ForgedError if a loaded model contains unreviewed objects or invalid indices."""
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
    """Yield each object of a model once."""
    seen: dict[int, Any] = {}
    waiting = [model]
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, str | bytes | int | float | type(None)):
            continue
        seen[id(part)] = part  # keep a reference, so that no other object gets this id
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


_KIND = "surefoot model"
TAUGHT = "taught"  # fingerprints of the training rows: their labels are not a test of the model
TYPICAL = "typical"  # typical cell of each column, the reference for explanations
_VERSION = 2
# Reviewed types beyond those that skops trusts (scikit-learn's estimators, numpy's functions): our own estimators, and
# data parts of scikit-learn's classifiers. Creating them runs no code from the file. `foreign_types` finds the types
# that skops trusts but that have not been reviewed.
ALLOWED = frozenset(
    {
        "numpy.dtype",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace",
        "sklearn.gaussian_process.kernels.ConstantKernel",
        "sklearn.gaussian_process.kernels.Product",
        "sklearn.gaussian_process.kernels.RBF",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.utils._bunch.Bunch",
        "surefoot.costs.learned.LearnedMetric",
        "surefoot.costs.metrics.Euclidean",
        "surefoot.costs.metrics.WeightedMetric",
        "surefoot.estimators.ball.WassersteinLogisticRegression",
        "surefoot.dual.models.AnyClassifier",
        "surefoot.dual.models.DualPoint",
        "surefoot.estimators.combined.CombinedClassifier",
        "surefoot.estimators.combined.TreeAverage",
        "surefoot.estimators.minimax.MinimaxClassifier",
        "surefoot.estimators.minimax._Response",
        "surefoot.estimators.robust.RobustLogisticRegression",
        "surefoot.pool.table.cleaning.DateParts",
        "surefoot.pool.table.cleaning.LargestEntryScaler",
        "surefoot.pool.table.cleaning.TailScaler",
        "surefoot.pool.table.cleaning.TextParts",
        "surefoot.problem.sets.DecisionSet",
    }
)
_FIELDS: dict[str, type] = {"pipeline": Pipeline, "label": str, "classes": list, "certificate": dict, "version": str}
_FIELDS |= {"reading": dict, "options": dict}
# Attributes of a fitted estimator to omit. They are as large as the pool, and `certificate` has a summary.
_LEFT_OUT = ("certificate_", "worst_case_")


@dataclass(frozen=True)
class ModelFile:
    """The content of a model file.

    pipeline : cleaning and classifier, maps the columns of a table to classes.
    label : name of the label column; classes : list of str.
    reading : how to read the columns of a table, from `Columns.stored`.
    certificate : the certificate of the fit, as plain numbers and texts.
    version : version of surefoot that wrote the file.
    options : options of the command that wrote the file, such as delimiter and missing, for later commands.
    """

    pipeline: Pipeline
    label: str
    classes: list[str]
    reading: dict[str, Any]
    certificate: dict[str, Any] = field(default_factory=dict)
    version: str = __version__
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def cleaner(self) -> Pipeline:
        return self.pipeline[:-1]

    @property
    def columns(self) -> Columns:
        """The columns that a table must have, and how to read them."""
        return Columns(**self.reading)


def model_file_of(trained: TrainedModel, said: dict[str, Any], options: dict[str, Any]) -> ModelFile:
    """Build a model file: cleaning and classifier as one pipeline, with the certificate and the options."""
    pool = trained.start.pool
    return ModelFile(
        Pipeline([*pool.cleaner.steps, ("classify", without_pool(trained.clf))]),
        pool.table.label,
        pool.classes,
        pool.columns.stored(),
        {**said, TAUGHT: _fingerprints(pool.values[pool.labeled]), TYPICAL: typical_cells(pool.values)},
        options=options,
    )


def were_taught(stored: ModelFile | None, cells: Any) -> NDArray[np.bool_]:
    """Return (N,) True for the training rows of a model. Equal rows are counted: each training row matches once."""
    left = Counter([] if stored is None else stored.certificate.get(TAUGHT, []))
    found = np.zeros(len(cells), dtype=bool)
    if stored is None or not left:
        return found
    for row, mark in enumerate(_fingerprints(stored.columns.read(cells))):
        found[row] = left[mark] > 0
        left[mark] -= 1
    return found


def typical_cells(frame: Any) -> dict[str, Any]:
    """Return the median of each numeric column and the most frequent value of other columns; None if empty.

    frame : the columns as a model reads them.
    """
    found: dict[str, Any] = {}
    for name in frame.columns:
        known = frame[name].dropna()
        if not len(known):
            found[str(name)] = None
        elif known.dtype.kind in "iuf":
            found[str(name)] = float(known.median())
        else:
            found[str(name)] = str(known.mode().iloc[0])
    return found


def _fingerprints(values: Any) -> list[str]:
    """Return a fingerprint of the values of each row, independent of the file format."""
    return [f"{mark:016x}" for mark in row_keys(values).tolist()]


def without_pool(clf: Any) -> Any:
    """Return a fitted classifier without its large arrays. Its predictions are unchanged."""
    if isinstance(clf, RandomForestClassifier):
        return TreeAverage.from_forest(clf)
    if not isinstance(clf, CertifiedClassifier | CombinedClassifier):
        return clf
    light = type(clf)(**clf.get_params(deep=False))
    light.__dict__.update(
        {
            name: value
            for name, value in vars(clf).items()
            if name not in _LEFT_OUT and (name[0] != "_" or name == "_response")
        }
    )
    if isinstance(clf, CombinedClassifier):
        light.classifiers_ = [without_pool(one) for one in clf.classifiers_]
    elif isinstance(clf.radius, CalibratedRadius):
        light.radius = "calibrated"  # the summary contains its level and seed
    return light


# Parts of scikit-learn that import torch and Dask. They contain no estimator.
_ADAPTERS = tuple(f"sklearn.externals.array_api_compat.{name}" for name in ("torch", "dask"))
_importing = threading.Lock()


def prepare_saving() -> None:
    """Import skops in a thread while a model is trained."""

    def load() -> None:
        with suppress(ImportError):  # saving reports the missing package
            _import_skops()

    if "skops.io" not in sys.modules:
        threading.Thread(target=load, daemon=True).start()


def _import_skops() -> Any:
    """Import skops without torch and Dask, which it would load because it imports all packages of scikit-learn."""
    with _importing:
        hidden = [name for name in _ADAPTERS if "skops.io" not in sys.modules and name not in sys.modules]
        sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: the import fails
        try:
            return import_extra("skops.io", "cli", "a model file")
        finally:
            for name in hidden:
                sys.modules.pop(name, None)


def save_model(path: str | os.PathLike[str], model: ModelFile) -> None:
    """Write a model file. If writing fails, an existing file is unchanged."""
    skops_io = _import_skops()
    content = {"kind": _KIND, "format": _VERSION, **{name: getattr(model, name) for name in _FIELDS}}
    try:
        data = skops_io.dumps(content)
    except TypeError as error:  # the error names the type that skops cannot store
        raise FileError(
            f"{path} could not be written, because skops cannot store this classifier ({first_line(error)}). Pass "
            "another --classifier."
        ) from error
    write_bytes(path, data)


def is_model_file(path: Path) -> bool:
    """Return True if a file describes itself as a model of surefoot. The content is not loaded."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(SCHEMA).file_size > MOST_SCHEMA_BYTES:
                return False
            content = json.loads(archive.read(SCHEMA))["content"]
            return bool(json.loads(content["kind"]["content"]) == _KIND)
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, RecursionError):
        return False


def load_model(path: str | os.PathLike[str], *, trust: Iterable[str] = ()) -> ModelFile | Any:
    """Load a `ModelFile`, or a classifier that another program stored with skops.

    The file is refused before loading if it contains unreviewed types (such as trees and forests of scikit-learn), or
    if it unpacks to more than one gibibyte. `trust` names additional types to allow, or "size" to allow any size.
    """
    skops_io = _import_skops()
    trusted = set(trust)
    data = _read(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if TRUST_SIZE not in trusted:
                check_sizes(archive)
            check_arrays(archive)
            named = foreign_types(archive) | set(skops_io.get_untrusted_types(data=data))
        unknown = sorted(named - ALLOWED - trusted)
        if unknown:
            raise FileError(_refusal(unknown))
        content = skops_io.loads(data, trusted=sorted(ALLOWED | trusted - {TRUST_SIZE}))
        check_model(content, ALLOWED | trusted)
        return _as_model_file(content)
    except FileError as error:
        raise FileError(f"{path}: {error}") from error
    except MemoryError as error:
        raise FileError(f"{path} requires more memory than is available. Store a smaller model.") from error
    except Exception as error:
        raise FileError(
            f"{path} must be a model stored with skops; it could not be loaded ({type(error).__name__}: "
            f"{cut(first_line(error), 200)}). Store it again with skops.io.dump, or with surefoot fit."
        ) from error


def _as_model_file(content: Any) -> ModelFile | Any:
    """Return the stored object. A model of surefoot becomes a `ModelFile` with valid parts."""
    if not isinstance(content, dict) or content.get("kind") != _KIND:
        return content
    if content.get("format") != _VERSION:
        raise FileError(
            f"the model is of format {content.get('format')}, this surefoot reads format {_VERSION}. Fit it "
            f"again, or install surefoot {content.get('version', 'of its time')}."
        )
    wrong = [name for name, kind in _FIELDS.items() if not isinstance(content.get(name), kind)]
    if wrong:
        raise FileError(f"the model file has no valid {wrong[0]}. Fit the model again.")
    if not all(isinstance(name, str) for name in content["classes"]):
        raise FileError("the classes in the model file must be texts. Fit the model again.")
    model = ModelFile(**{name: content[name] for name in _FIELDS})
    _check_reading(model.reading)
    _check_said(model)
    return model


def _check_said(model: ModelFile) -> None:
    """Raise an error unless the fingerprints are texts, the certificate is a dict, and the options are plain values."""
    taught, inner = model.certificate.get(TAUGHT, []), model.certificate.get("certificate") or {}
    marked = isinstance(taught, list) and all(isinstance(mark, str) for mark in taught)
    plain = all(isinstance(value, str | int | float | None) for value in model.options.values())
    typical = model.certificate.get(TYPICAL, {})
    cells = isinstance(typical, dict) and all(isinstance(one, str | float | None) for one in typical.values())
    whole = cells and (not typical or set(typical) == set(model.columns.used))
    if not (marked and plain and whole and isinstance(inner, dict)):
        raise FileError("the model file does not describe its training rows and options. Fit the model again.")


def _check_reading(reading: dict[str, Any]) -> None:
    """Raise an error unless the column names and formats are texts in the expected structure."""
    kinds = {"numbers": list, "categories": list, "texts": list, "dates": dict, "styles": dict}
    whole = all(isinstance(reading.get(name), kind) for name, kind in kinds.items()) and set(reading) == set(kinds)
    parts = [[*part, *part.values()] if isinstance(part, dict) else part for part in reading.values()]
    if not whole or not all(isinstance(text, str) for part in parts for text in part):
        raise FileError("the model file does not describe its columns. Fit the model again.")


def _read(path: str | os.PathLike[str]) -> bytes:
    """Read the file once, so that the checks apply to the loaded content."""
    file = Path(path)
    if file.is_dir():
        raise FileError(f"{path} must be a model file; it is a folder. Pass the name of a file in it.")
    if not file.exists():
        raise FileError(f"{path} must be a model file; there is none. Check the path, or write one with surefoot fit.")
    try:
        return file.read_bytes()
    except OSError as error:
        raise FileError(f"{path} could not be read: {error.strerror or error}. Check the path.") from error


def _refusal(unknown: list[str]) -> str:
    listed = "\n".join(f"  {name}" for name in unknown)
    return (
        "the model holds types that surefoot does not know to be harmless: they may run code, or crash, when the file "
        f"is forged. It was not loaded. They are:\n{listed}\nIf you know where the file comes from and trust it, pass\n"
        f"  --trust {','.join(unknown)}"
    )
