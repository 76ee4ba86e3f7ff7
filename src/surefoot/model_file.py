"""Model files: a fitted pipeline with what it promises, stored by skops, which runs no code of the file on loading."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sklearn.pipeline import Pipeline

from surefoot._files import write_bytes
from surefoot._version import __version__
from surefoot.calibration import Calibrated
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.tabular.cleaning import columns_of
from surefoot.tabular.columns import Columns
from surefoot.tabular.errors import FileError

_KIND = "surefoot model"
_VERSION = 1
_SCHEMA = "schema.json"
# Types beyond those that skops trusts by itself (scikit-learn's estimators, numpy's functions), each reviewed: our own
# estimators, and parts of scikit-learn's classifiers that hold data. Building them runs no code of the file; a forged
# tree may still give wrong answers or crash.
ALLOWED = frozenset(
    {
        "numpy.dtype",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace",
        "sklearn.gaussian_process.kernels.ConstantKernel",
        "sklearn.gaussian_process.kernels.Product",
        "sklearn.gaussian_process.kernels.RBF",
        "sklearn.metrics._dist_metrics.EuclideanDistance64",
        "sklearn.neighbors._kd_tree.KDTree",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.tree._tree.Tree",
        "surefoot.estimators.ball.WassersteinLogisticRegression",
        "surefoot.estimators.robust.RobustLogisticRegression",
        "surefoot.tabular.cleaning.LargestEntryScaler",
    }
)
# What a fit leaves in the estimator besides the model: as large as the pool, and summed up in `certificate`.
_LEFT_OUT = ("certificate_", "worst_case_")


@dataclass(frozen=True)
class ModelFile:
    """A model as it is stored.

    Attributes
    ----------
    pipeline : from a table's columns to classes: cleaning, then a classifier.
    label : name of the label column; classes : list of str.
    certificate : what the fit promised, plain numbers and texts.
    version : of the surefoot that wrote it.
    """

    pipeline: Pipeline
    label: str
    classes: list[str]
    certificate: dict[str, Any] = field(default_factory=dict)
    version: str = __version__

    @property
    def cleaner(self) -> Pipeline:
        return self.pipeline[:-1]

    @property
    def columns(self) -> Columns:
        """The columns that a table must have."""
        return columns_of(self.pipeline)


def without_pool(clf: RobustLogisticRegression) -> RobustLogisticRegression:
    """A fitted classifier without what is as large as the pool; it predicts the same."""
    light = type(clf)(**clf.get_params(deep=False))
    light.__dict__.update(
        {name: value for name, value in vars(clf).items() if name not in _LEFT_OUT and name[0] != "_"}
    )
    if isinstance(clf.radius, Calibrated):
        light.radius = "calibrated"  # its level and seed are in the summary
    return light


def save_model(path: str | os.PathLike[str], model: ModelFile) -> None:
    """Write a model, whole or not at all."""
    import skops.io

    content = {"kind": _KIND, "format": _VERSION, **{name: getattr(model, name) for name in _fields()}}
    write_bytes(path, skops.io.dumps(content))


def is_model_file(path: Path) -> bool:
    """Whether a file is a model that surefoot wrote, by what it says of itself; nothing of it is built."""
    try:
        with zipfile.ZipFile(path) as archive:
            content = json.loads(archive.read(_SCHEMA))["content"]
            return bool(json.loads(content["kind"]["content"]) == _KIND)
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, RecursionError):
        return False


def load_model(path: str | os.PathLike[str], *, trust: Iterable[str] = ()) -> ModelFile | Any:
    """A `ModelFile`, or whatever classifier another program stored with skops.

    Refused before anything is built if the file holds types other than those of scikit-learn, numpy and surefoot's own
    estimators that are reviewed here; `trust` names further ones.
    """
    import skops.io

    file = _check_file(path)
    try:
        unknown = sorted(set(skops.io.get_untrusted_types(file=file)) - ALLOWED - set(trust))
        if unknown:
            raise FileError(_refusal(path, unknown))
        content = skops.io.load(file, trusted=sorted(ALLOWED | set(trust)))
    except FileError:
        raise
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, AttributeError, ImportError, OSError) as error:
        raise FileError(
            f"{path} must be a model stored with skops; it could not be loaded ({type(error).__name__}: {error}). "
            "Store it again with skops.io.dump, or with surefoot fit."
        ) from error
    if not isinstance(content, dict) or content.get("kind") != _KIND:
        return content
    if content["format"] != _VERSION:
        raise FileError(
            f"{path} is of format {content['format']}, this surefoot reads format {_VERSION}. Fit it again, or install "
            f"surefoot {content.get('version', 'of its time')}."
        )
    return ModelFile(**{name: content[name] for name in _fields()})


def _fields() -> list[str]:
    return list(ModelFile.__dataclass_fields__)


def _check_file(path: str | os.PathLike[str]) -> Path:
    file = Path(path)
    if file.is_dir():
        raise FileError(f"{path} must be a model file; it is a folder. Pass the name of a file in it.")
    if not file.exists():
        raise FileError(f"{path} must be a model file; there is none. Check the path, or write one with surefoot fit.")
    return file


def _refusal(path: str | os.PathLike[str], unknown: list[str]) -> str:
    listed = "\n".join(f"  {name}" for name in unknown)
    return (
        f"{path} holds types that surefoot does not know to be harmless: they may run code when the file is loaded. "
        f"It was not loaded. They are:\n{listed}\nIf you know where the file comes from and trust it, pass\n"
        f"  --trust {','.join(unknown)}"
    )
