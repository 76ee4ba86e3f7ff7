"""`ErrorBound`: a bound with its statement, its assumptions and its kind of guarantee."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from surefoot._printing import PrintsAsTable, count, rounded_up, share_at_most
from surefoot.certificates.certificate import Certificate
from surefoot.problem.losses import ZERO_ONE

Kind = Literal["theorem", "conditional", "measured"]

THEOREM: Literal["theorem"] = "theorem"
CONDITIONAL: Literal["conditional"] = "conditional"
MEASURED: Literal["measured"] = "measured"

_KINDS = {
    THEOREM: "holds with probability {level:.4g} or more under the assumptions",
    CONDITIONAL: "holds where the radius does; nothing in the data proves that it does",
    MEASURED: "meant to hold with probability {level:.4g}; coverage was measured on datasets, not proved",
}


@dataclass(frozen=True, eq=False, repr=False)
class ErrorBound(PrintsAsTable):
    """Upper bound on the mean loss of a classifier.

    Attributes
    ----------
    value : float
        The bound: a share of rows for the zero-one loss, else a mean loss.
    kind : {"theorem", "conditional", "measured"}
        What kind of guarantee it is.
    method : str
        How it was found.
    about : str
        Which classifier and which rows it speaks of.
    level : float
        The probability with which it is meant to hold.
    loss : str
        Name of the loss.
    assumptions : tuple of str
        What it assumes.
    n_labels : int
        Labels that judged the classifier.
    n_groups : int or None
        Groups of these labels that count as one draw each (equal features, or `cv_groups`); None where no row repeats.
    n_errors : int
        Labels among them that it got wrong.
    mean_loss : float
        Over these labels; n_errors / n_labels for the zero-one loss.
    groups : dict or None
        The bound of each group; all of them hold together at `level`, and `value` is the largest.
    classifier : classifier or None
        The classifier that it speaks of, where that is another than the one given.
    certificate : Certificate or None
        Of the transport bound.
    """

    value: float
    kind: Kind
    method: str
    about: str
    level: float
    loss: str
    assumptions: tuple[str, ...]
    n_labels: int
    n_errors: int
    mean_loss: float
    n_groups: int | None = None
    groups: Mapping[Any, ErrorBound] | None = None
    classifier: Any | None = None
    certificate: Certificate | None = None

    @property
    def statement(self) -> str:
        """The bound in words."""
        chance = "" if self.kind == CONDITIONAL else f" (level {self.level:.4g})"
        where = "" if self.groups is None else " in every group"
        return f"{self.about}: {self.amount}{where}{chance}"

    @property
    def amount(self) -> str:
        """What is bounded, and by what."""
        if self.loss == ZERO_ONE:
            return f"errs on at most {share_at_most(self.value)} % of them"
        return f"mean {self.loss} of at most {rounded_up(self.value, 4)}"

    @property
    def worst_group(self) -> Any:
        """The group with the largest bound; None without groups."""
        groups = self.groups or {}
        return max(groups, key=lambda name: groups[name].value, default=None)

    def _rows(self) -> list[tuple[str, str]]:
        seen = f"{count(self.n_errors, 'error')} on {count(self.n_labels, 'label')}"
        seen += "" if self.n_groups is None else f" in {count(self.n_groups, 'group')}"
        rows = [
            ("value", rounded_up(self.value, 4)),
            ("statement", self.statement),
            ("kind", f"{self.kind}: {_KINDS[self.kind].format(level=self.level)}"),
            ("method", self.method),
            ("seen", seen if self.loss == ZERO_ONE else f"{seen}, mean loss {self.mean_loss:.4g}"),
        ]
        for name, bound in (self.groups or {}).items():
            counts = f"{count(bound.n_errors, 'error')} on {count(bound.n_labels, 'label')}"
            rows.append((f"group {name}", f"{rounded_up(bound.value, 4)}  ({counts})"))
        return rows + [("assumes" if k == 0 else "", text) for k, text in enumerate(self.assumptions)]


@dataclass(frozen=True, eq=False, repr=False)
class ErrorBounds(PrintsAsTable):
    """All bounds that apply, by method, and why the others do not.

    Each holds at its own level: the smallest of several does not. Which one to read follows from what one has, and is
    named by `advice` without a look at the values.

    Attributes
    ----------
    bounds : dict of ErrorBound
        The bounds, by method.
    advice : str
        The method to read.
    left_out : dict of str
        Why a method is left out, by method.
    """

    bounds: Mapping[str, ErrorBound]
    advice: str
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, method: str) -> ErrorBound:
        if method not in self.bounds:
            reason = self.left_out.get(method, f"the bounds here are {list(self.bounds)}")
            raise KeyError(f"there is no bound {method!r}: {reason}")
        return self.bounds[method]

    def __iter__(self) -> Iterator[ErrorBound]:
        return iter(self.bounds.values())

    def __len__(self) -> int:
        return len(self.bounds)

    @property
    def table(self) -> list[dict[str, Any]]:
        """One dict per bound, ready for a data frame."""
        return [
            {
                "method": method,
                "value": bound.value,
                "kind": bound.kind,
                "level": bound.level,
                "n_labels": bound.n_labels,
                "n_errors": bound.n_errors,
                "statement": bound.statement,
            }
            for method, bound in self.bounds.items()
        ]

    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            (method, f"{rounded_up(bound.value, 4)}  {bound.kind}; {bound.about}")
            for method, bound in self.bounds.items()
        ]
        rows += [(method, f"left out: {reason}") for method, reason in self.left_out.items()]
        return [*rows, ("read", f"{self.advice}: decided by what is given, never by the values")]
