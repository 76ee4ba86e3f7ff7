"""`ErrorBound`: an upper bound with its statement, assumptions and kind of guarantee."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from numpy.typing import NDArray

from surefoot._printing import Bar, PrintsAsTable, at_most, count, in_percent, percent, rounded_up, share_at_most
from surefoot.certificates.certificate import Certificate
from surefoot.problem.losses import ZERO_ONE

Kind = Literal["theorem", "conditional", "measured"]

THEOREM: Literal["theorem"] = "theorem"
CONDITIONAL: Literal["conditional"] = "conditional"
MEASURED: Literal["measured"] = "measured"

_KINDS = {
    THEOREM: "proved under the assumptions below",
    CONDITIONAL: "holds if the true distribution lies within the radius, which no data can prove",
    MEASURED: "reached its confidence level on benchmark datasets; not proved",
}


@dataclass(frozen=True, eq=False, repr=False)
class ErrorBound(PrintsAsTable):
    """Upper bound on the mean loss of a classifier.

    Attributes
    ----------
    value : float
        The bound: an error rate for the zero-one loss, otherwise a mean loss.
    kind : {"theorem", "conditional", "measured"}
        Kind of guarantee.
    method : str
        Name of the method, and how it computed the bound.
    about : str
        The classifier and the rows that the bound covers.
    level : float
        Confidence level.
    loss : str
        Name of the loss.
    assumptions : tuple of str
        Assumptions of the guarantee.
    n_labels : int
        Number of labels used to test the classifier.
    n_groups : int or None
        Number of groups of dependent rows (equal features, or `cv_groups`) among the tested rows. Each group counts
        once. None if no row repeats.
    group_errors : int or None
        Number of wrong predictions for one random label of each group. None if no row repeats.
    n_errors : int
        Number of tested labels that the classifier predicted wrongly.
    mean_loss : float
        Mean loss at the tested labels; n_errors / n_labels for the zero-one loss.
    groups : dict or None
        The bound for each group. All bounds hold simultaneously at `level`, and `value` is the largest bound.
    classifier : classifier or None
        The classifier that the bound covers, if it differs from the classifier passed in.
    certificate : Certificate or None
        The certificate behind a transport bound.
    predicted : array of shape (n,) or None
        For a cross-fitted bound, the prediction at each row by a clone that did not see its label.
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
    group_errors: int | None = None
    groups: Mapping[Any, ErrorBound] | None = None
    classifier: Any | None = None
    certificate: Certificate | None = None
    predicted: NDArray[Any] | None = None

    @property
    def statement(self) -> str:
        """The bound as a sentence."""
        who, _, rows = self.about.partition(", on ")
        if self.kind == CONDITIONAL:
            given = "If the true distribution lies within the radius"
        else:
            given = f"With {in_percent(self.level)} confidence"
        if self.loss == ZERO_ONE:
            verb = "misclassify" if who.startswith("these") else "misclassifies"
            claim = f"{who} {verb} at most {share_at_most(self.value)} % of {rows}"
        else:
            claim = f"the mean {self.loss} of {who} is at most {rounded_up(self.value, 4)} on {rows}"
        return f"{given}, {claim}" + ("" if self.groups is None else ", in every group")

    @property
    def worst_group(self) -> Any:
        """The group with the largest bound; None without groups."""
        groups = self.groups or {}
        return max(groups, key=lambda name: groups[name].value, default=None)

    def _bars(self) -> list[Bar]:
        shown = at_most if self.loss == ZERO_ONE else partial(rounded_up, digits=4)
        seen = percent(self.mean_loss, 1) if self.loss == ZERO_ONE else f"{self.mean_loss:.4g}"
        parts = [("bound", self.value), *[(f"group {name}", one.value) for name, one in (self.groups or {}).items()]]
        bounds = [Bar(name, value, value, f"at most {shown(value)}") for name, value in parts]
        return [Bar("observed", 0.0, self.mean_loss, seen), *bounds]

    def _rows(self) -> list[tuple[str, str]]:
        seen = f"{count(self.n_errors, 'error')} on {count(self.n_labels, 'label')}"
        seen += "" if self.n_groups is None else f" in {count(self.n_groups, 'group')}"
        rows = [
            ("value", rounded_up(self.value, 4)),
            ("statement", self.statement),
            ("kind", f"{self.kind}: {_KINDS[self.kind]}"),
            ("method", self.method),
            ("evidence", seen if self.loss == ZERO_ONE else f"{seen}, mean loss {self.mean_loss:.4g}"),
        ]
        for name, bound in (self.groups or {}).items():
            counts = f"{count(bound.n_errors, 'error')} on {count(bound.n_labels, 'label')}"
            rows.append((f"group {name}", f"{rounded_up(bound.value, 4)}  ({counts})"))
        return rows + [("assumes" if k == 0 else "", text) for k, text in enumerate(self.assumptions)]


@dataclass(frozen=True, eq=False, repr=False)
class ErrorBounds(PrintsAsTable):
    """Hold all applicable bounds by method, and the reasons why methods do not apply.

    Each bound holds at its own confidence level, but the smallest of several bounds does not. `advice` names the method
    to read. The advice depends on the data that you have, never on the values of the bounds.

    Attributes
    ----------
    bounds : dict of ErrorBound
        The bounds, by method.
    advice : str
        The method to read.
    left_out : dict of str
        The reason why a method does not apply, by method.
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
        rows += [(method, f"not available: {reason}") for method, reason in self.left_out.items()]
        return [*rows, ("read", f"{self.advice} (chosen by the data you have, never by the values)")]
