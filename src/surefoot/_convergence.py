"""Warnings of a result that is less exact than it was asked to be."""

from __future__ import annotations

from sklearn.exceptions import ConvergenceWarning

from surefoot._errors import CodedWarning, see, warn_caller


class InexactWarning(CodedWarning, ConvergenceWarning):
    """The tolerance was not reached, or there is no finite optimum; the bounds hold all the same."""


class SeparableWarning(InexactWarning):
    """The worst case is linearly separable: coefficients grow as the tolerance shrinks."""


def warn_about_gap(gap: float, tol: float, fix: str) -> None:
    """Warn where the certified gap exceeds the tolerance."""
    if gap > tol:
        statement = f"the certified gap is {gap:.2e}, above tol={tol:.2e}; both bounds hold all the same."
        warn_caller(InexactWarning("gap", statement, fix + see("gap"), gap=gap, tol=tol))
