"""Errors and warnings of the package's own."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from typing import Any

# Frames of these packages stand between the user's line and ours: estimators are called through wrappers,
# pipelines, searches, and the loops that run them.
_BETWEEN = {"surefoot", "sklearn", "joblib"}


# Where the documentation is published: whoever publishes it elsewhere changes this line, and nothing else.
DOCUMENTATION = "https://surefoot.readthedocs.io/en/stable"
# Pages, and their headings, that the commonest errors and warnings lead to.
HELP = {
    "extras": "start.html#extras",
    "gap": "certificates.html#statuses",
    "radius": "start.html#5-the-radius",
    "separable": "certificates.html#statuses",
    "unlabeled rows": "unlabeled-rows.html",
}


def see(topic: str) -> str:
    """The end of a message: where the documentation explains a topic of HELP."""
    return f" See {DOCUMENTATION}/{HELP[topic]}"


class InfeasibleRadiusError(ValueError):
    """The decision set is empty: no distribution lies within the radius given.

    Parameters
    ----------
    radius : float
        The radius given.
    minimal_radius : float
        The smallest radius at which the decision set is non-empty.
    """

    def __init__(self, radius: float, minimal_radius: float) -> None:
        self.radius = float(radius)
        self.minimal_radius = float(minimal_radius)
        super().__init__(
            "radius must be at least the minimal radius of the data, or no distribution has the given feature marginal "
            f"and label probabilities; got radius={self.radius!r}, minimal_radius={self.minimal_radius!r}. Pass a "
            f"radius of {self.minimal_radius!r} or more, widen label_prior, or lower label_cost." + see("radius")
        )

    def __reduce__(self) -> tuple[type[InfeasibleRadiusError], tuple[float, float]]:
        # The default would call the class with the message.
        return type(self), (self.radius, self.minimal_radius)


class FileError(ValueError):
    """A file that cannot be read or written."""


class LockedError(FileError):
    """A file that another process writes to.

    Parameters
    ----------
    message : str
    holder : str
        Which process, of whom, where and since when.
    """

    def __init__(self, message: str, holder: str) -> None:
        self.holder = holder
        super().__init__(message)


class UnlabeledRowsWarning(UserWarning):
    """X_unlabeled looks as if a pipeline or a cross-validation had changed it, or left it unchanged, by accident."""


def import_extra(module: str, extra: str, what: str) -> Any:
    """Import a package that is not always installed, or say which extra brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        name = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != name:
            raise  # it is there, and misses something itself
        raise ImportError(
            f'{what} needs the package {name}: pip install "surefoot[{extra}]".{see("extras")}', name=name
        ) from error


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the nearest line outside this package, scikit-learn and joblib; at the outermost one if there is none."""
    level, frame = 1, sys._getframe()  # at level 1 a warning points here
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def first_line(error: BaseException) -> str:
    """The first line of an error of another package, as a part of a sentence."""
    return (str(error).splitlines() or [""])[0].strip().rstrip(".")
