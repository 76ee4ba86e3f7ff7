"""Errors and warnings as data: the parameter, the rule, the value received and the fix."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from string import Template
from typing import Any

# Errors and warnings of the package's own.

# Frames of these packages stand between the user's line and ours: estimators are called through wrappers,
# pipelines, searches, and the loops that run them.
_BETWEEN = {"surefoot", "sklearn", "joblib"}


# Where the documentation is published: whoever publishes it elsewhere changes this line, and nothing else.
DOCUMENTATION = "https://surefoot.readthedocs.io/en/stable"
# Pages, and their headings, that the commonest errors and warnings lead to.
HELP = {
    "extras": "start.html#extras",
    "gap": "certificates.html#statuses",
    "picked labels": "bounds.html#labels-that-were-picked",
    "radius": "calibration.html",
    "separable": "certificates.html#statuses",
    "unlabeled rows": "unlabeled-rows.html",
}


def see(topic: str) -> str:
    """The end of a message: where the documentation explains a topic of HELP."""
    return f" See {DOCUMENTATION}/{HELP[topic]}"


class ParameterError(ValueError):
    """A parameter that has a value which is not allowed.

    The message is made of its parts, so that a program with names of its own for the parameters can write it with
    these names.

    Parameters
    ----------
    parameter : str
        The name of the parameter.
    rule : str
        The rule for the parameter: the rest of a sentence that begins with the parameter.
    got : object, default=None
        The value received, stored as text.
    fix : str, default=""
        The fix, in whole sentences. "$radius" refers to the parameter radius, and so on.
    """

    def __init__(self, parameter: str, rule: str, got: object = None, fix: str = "") -> None:
        self.parameter, self.rule, self.fix = parameter, rule, fix
        self.got = None if got is None else str(got)
        super().__init__(parameter, rule, self.got, fix)  # the arguments, by which it is pickled

    def __str__(self) -> str:
        return self.message({})

    def message(self, names: Mapping[str, str]) -> str:
        """Compose the message, with other names in place of the parameters.

        Parameters
        ----------
        names : mapping of str to str
            Other names, by parameter.

        Returns
        -------
        str
            The whole message.
        """
        got = "" if self.got is None else f"; got {self.got}"
        return _join(f"{names.get(self.parameter, self.parameter)} {self.rule}{got}.", self.fix, names)


def _join(statement: str, fix: str, names: Mapping[str, str]) -> str:
    return f"{statement} {Template(fix).safe_substitute(_Names(names))}" if fix else statement


class _Names(dict[str, str]):
    """Names of parameters; one that has no other stands for itself."""

    def __missing__(self, parameter: str) -> str:
        return parameter


class InfeasibleRadiusError(ParameterError):
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
            "radius",
            "must be at least the minimal radius of the data, or no distribution has the given feature marginal and "
            "label probabilities",
            f"radius={self.radius!r}, minimal_radius={self.minimal_radius!r}",
            f"Pass a radius of {self.minimal_radius!r} or more, widen $label_prior, or lower $label_cost."
            + see("radius"),
        )

    def __reduce__(self) -> tuple[type[InfeasibleRadiusError], tuple[float, float]]:
        # The default would call the class with the message.
        return type(self), (self.radius, self.minimal_radius)


class FileError(ValueError):
    """A file that cannot be read or written."""


class LockedError(FileError):
    """A file that another process writes to."""


class CodedWarning(UserWarning):
    """A warning that a program can tell apart by a code and the numbers in it.

    Parameters
    ----------
    code : str
        One word for each thing that is warned of.
    statement : str
        The problem, as a sentence.
    fix : str, default=""
        What to do, in whole sentences, as in ParameterError.
    **values
        The numbers that the statement names; they are attributes too.
    """

    def __init__(self, code: str, statement: str, fix: str = "", **values: Any) -> None:
        self.code, self.statement, self.fix, self.values = code, statement, fix, values
        self.__dict__.update(values)
        super().__init__(statement)

    def __reduce__(self) -> Any:
        return partial(type(self), self.code, self.statement, self.fix, **self.values), ()

    def __str__(self) -> str:
        return self.message({})

    def message(self, names: Mapping[str, str], fix: str | None = None) -> str:
        """Compose the message, with other names in place of the parameters.

        Parameters
        ----------
        names : mapping of str to str
            Other names, by parameter.
        fix : str or None, default=None
            What to do, in place of the warning's own advice.

        Returns
        -------
        str
            The whole message.
        """
        return _join(self.statement, self.fix if fix is None else fix, names)


class UnlabeledRowsWarning(CodedWarning):
    """X_unlabeled looks as if a pipeline or a cross-validation had changed it, or left it unchanged, by accident."""


class PickedLabelsWarning(CodedWarning):
    """The labeled rows do not look like a random sample: bounds from these labels do not hold for other rows."""


class RepeatedRowsWarning(CodedWarning):
    """Labeled rows repeat one another: they count as one draw, which may be more careful than the data need."""


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


def warn_caller(warning: Warning) -> None:
    """Warn at the nearest line outside this package, scikit-learn and joblib; at the outermost one if there is none."""
    level, frame = 1, sys._getframe()  # at level 1 a warning points here
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, stacklevel=level)


def first_line(error: BaseException) -> str:
    """The first line of an error of another package, as a part of a sentence."""
    return (str(error).splitlines() or [""])[0].strip().rstrip(".")
