"""Errors and warnings of the library as sentences of the command line, which name its options."""

from __future__ import annotations

from surefoot._errors import CodedWarning, InfeasibleRadiusError, ParameterError
from surefoot._printing import rounded_up

# Parameters of the library, and what the user of a command knows them as.
OPTIONS = {
    "X_unlabeled": "the rows without a label",
    "classes": "--classes",
    "datasets": "--datasets",
    "device": "--device",
    "invite": "--invite",
    "label_prior": "--prior",
    "level": "--level",
    "loss": "--loss",
    "n_jobs": "--jobs",
    "name": "the study",
    "out": "--out",
    "picks": "--picks",
    "radius": "--radius",
    "random_state": "--seed",
    "seed": "--seed",
    "target_error": "--target-error",
    "trials": "--trials",
}
# What to do where the library's advice is about parameters that no option sets, by the code of a warning.
_FIXES = {
    "gap": "Raise --radius.",
    "low_confidence": "Label more rows.",
    "repeated_rows": "",
    "separable": "Raise --radius for a finite optimum.",
}


def sentence(problem: BaseException | str) -> str:
    """Say what an error or a warning says, with options in place of parameters."""
    if isinstance(problem, InfeasibleRadiusError):
        least = rounded_up(problem.minimal_radius, 4)  # what is named can be passed
        return (
            f"--radius must be at least the minimal radius {least}, or no distribution has the label probabilities of "
            f"--prior; got {problem.radius:g}. Pass --radius {least} or more."
        )
    if isinstance(problem, ParameterError):
        return problem.message(OPTIONS)
    if isinstance(problem, CodedWarning):
        return problem.message(OPTIONS, _FIXES.get(problem.code))
    return str(problem)
