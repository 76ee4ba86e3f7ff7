"""Finish a table: choose the rows that a model may label, so that few labels of the whole table are wrong.

The predictions and one score per row are fixed. A uniform sample of m of the N rows is labeled. For a threshold u, let
W_u be the number of wrong predictions among the rows with a score above u. Let x_u be the number of wrong predictions
above u in the sample. Let U(x) be the exact hypergeometric bound on W at x. The model labels the largest set of rows
above a threshold with U(x_u) − x_u ≤ c = ⌊ε N⌋. Annotators label the remaining rows, and have already labeled the
sample. The search over u needs no correction. Candès, Ilyas and Zrnic (2025, arXiv:2506.10908) show this for W_u. Here
the bound also subtracts the x_u errors that the sample corrects. The argument is as follows.

U(x) − x does not decrease in x. Let a be the largest x with U(x) − x ≤ c. The set then ends before the (a + 1)-th error
of the sample. Order the wrong predictions by their score. More than c wrong labels remain only if the (c + 1)-th wrong
prediction outside the sample comes before the (a + 1)-th wrong prediction in the sample. Then the sample contains at
most a of the first k = a + c + 1 wrong predictions, where k is a fixed number. As U(a) < k, this has probability at
most α. If anyone looks at the labels as they arrive, the anytime bound must prove W_u ≤ c itself, at any number of
labels. This fails only if the bound rejects c + 1 fixed wrong predictions, which has probability at most α over all
looks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot._errors import ParameterError
from surefoot._printing import PrintsAsTable, count, percent, share_at_most
from surefoot._validation import FloatArray, check_unit_scalar
from surefoot.bounds.betting import PoolErrors
from surefoot.bounds.engine import AuditEngine
from surefoot.priors.clopper_pearson import hypergeometric_upper

ASSUMPTIONS = (
    "predictions and scores were fixed before the first of these labels was seen",
    "the labels of annotators are right",
    "max_error was chosen before the plan was seen",
)
_CURVE = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2)


@dataclass(frozen=True, eq=False)
class RankedSample:
    """A uniform sample of rows with scores, in sampling order.

    scores : (N,); open_rows : rows without a label before the sample began; drawn : (m,); wrong : (m,).
    level : confidence level; anytime : True if the number of labels was not fixed in advance.
    """

    scores: FloatArray
    open_rows: NDArray[np.intp]
    drawn: NDArray[np.intp]
    wrong: NDArray[np.bool_]
    level: float
    anytime: bool

    def errors_left(self, x: int) -> int:
        """Bound the wrong predictions outside the sample, if x in the sample are wrong and m was fixed in advance."""
        return hypergeometric_upper(x, len(self.drawn), len(self.open_rows), self.level) - x

    def threshold(self, most_wrong: int) -> float:
        """Return the threshold above which the model may label rows, with at most `most_wrong` wrong labels."""
        errors: list[float] = []  # negative scores of the wrong rows, surest row first
        if not self.anytime:
            errors = sorted((-self.scores[self.drawn[self.wrong]]).tolist())
            m = len(self.drawn)
            return _threshold(
                errors, bisect_left(range(m + 1), True, key=lambda x: self.errors_left(x) > most_wrong) - 1
            )
        if most_wrong >= len(self.open_rows):
            return -np.inf
        pool, allowed, lowest = PoolErrors(len(self.open_rows), self.level), -1, np.inf
        for t, (row, wrong) in enumerate(zip(self.drawn, self.wrong, strict=True), start=1):
            if wrong:
                insort(errors, -float(self.scores[row]))
            while allowed < t and pool.rejects(most_wrong + 1, allowed + 1, t):
                allowed += 1
            lowest = min(lowest, _threshold(errors, allowed))
        return lowest

    def model_rows(self, most_wrong: int) -> NDArray[np.intp]:
        """Return the rows that the model may label, without the sampled rows."""
        chosen = self.open_rows[self.scores[self.open_rows] > self.threshold(most_wrong)]
        return np.setdiff1d(chosen, self.drawn)


def _threshold(errors: list[float], allowed: int) -> float:
    """Return the score of the error after the `allowed` surest errors, or −inf if there is none."""
    if allowed < 0:
        return np.inf
    return -errors[allowed] if allowed < len(errors) else -np.inf


@dataclass(frozen=True, eq=False, repr=False)
class FinishPlan(PrintsAsTable):
    """Hold the rows of a table that annotators must label, and the rows that the model may label.

    Attributes
    ----------
    rows : array of shape (k,)
        The rows that annotators must still label, least sure rows first.
    model_rows : array of shape (n_model,)
        The rows that take the prediction as their label. Rows in neither array already have labels.
    n_wrong : int
        Bound on the number of wrong labels in the finished table.
    max_error : float
        The requested share of wrong labels.
    level : float
        Confidence level of the bound.
    n_rows : int
        Number of rows in the table.
    sample : RankedSample
        The sample that the bound is computed from.
    """

    rows: NDArray[np.intp]
    model_rows: NDArray[np.intp]
    n_wrong: int
    max_error: float
    level: float
    n_rows: int
    sample: RankedSample

    @property
    def n_model(self) -> int:
        """Number of rows that the model labels."""
        return len(self.model_rows)

    @property
    def bound(self) -> float:
        """Upper bound on the share of wrong labels in the finished table."""
        return self.n_wrong / self.n_rows

    @property
    def statement(self) -> str:
        """The guarantee in words."""
        first = (
            f"With {percent(self.level)} confidence, at most {share_at_most(self.bound)} % of the "
            f"{count(self.n_rows, 'label')} of the finished table are wrong"
        )
        if len(self.rows):
            more = count(len(self.rows), "more row")
            return f"{first}, if the model labels {count(self.n_model, 'row')} and annotators label {more}."
        return f"{first}. The model labels {count(self.n_model, 'row')}, and annotators labeled the others."

    def curve(self, max_errors: Iterable[float] = _CURVE) -> dict[float, int]:
        """Return the number of rows that annotators must still label, for other shares of wrong labels.

        Each number holds at the confidence level on its own. Choose the share before you look at the numbers.
        Otherwise the guarantee is lost.

        Parameters
        ----------
        max_errors : iterable of float
            Shares of wrong labels.

        Returns
        -------
        dict of int
            Number of rows to label, by share.
        """
        missing = np.union1d(self.rows, self.model_rows)
        return {
            share: len(np.setdiff1d(missing, self.sample.model_rows(_most_wrong(share, self.n_rows))))
            for share in map(check_max_error, max_errors)
        }

    def _rows(self) -> list[tuple[str, str]]:
        sample = self.sample
        shares = ", ".join(f"{share:.3g}: {n}" for share, n in self.curve().items())
        return [
            ("to label", f"{count(len(self.rows), 'row')} by annotators, {count(self.n_model, 'row')} by the model"),
            ("bound", f"{share_at_most(self.bound)} % wrong labels in the finished table, level {self.level:.4g}"),
            ("seen", f"{count(int(sample.wrong.sum()), 'error')} on {count(len(sample.drawn), 'label')}"),
            ("statement", self.statement),
            *[("" if k else "assumes", text) for k, text in enumerate(ASSUMPTIONS)],
            ("rows to label", shares),
        ]


def plan_finish(engine: AuditEngine, scores: FloatArray | None, planned: int | None, max_error: float) -> FinishPlan:
    """Return the plan that the labels of an audit allow.

    planned : number of labels fixed in advance, where missing labels count as errors. None: the anytime rule.
    """
    share, N = check_max_error(max_error), len(engine.predictions)
    if scores is None:
        raise ParameterError("scores", "must be given to finish a table", "None", "Pass a score per row to the audit.")
    if not engine.is_uniform:
        raise ParameterError("sampling", "must be uniform to finish a table", "'weighted'", "Begin an audit with it.")
    if not engine.n_labels:
        raise ParameterError("n_labels", "must be at least 1 to finish a table", 0, "Record labels of the audit first.")
    n = engine.n_labels if planned is None else min(planned, engine.n_drawable)
    drawn = np.array([draw.row for draw in engine.draw(n)], dtype=np.intp)
    wrong = np.ones(n, dtype=bool)
    wrong[: engine.n_labels] = engine.outcomes[:n]
    open_rows = np.setdiff1d(np.arange(N), list(engine.known))
    sample = RankedSample(scores, open_rows, drawn, wrong, engine.level, anytime=planned is None)
    most = _most_wrong(share, N)
    model_rows = sample.model_rows(most)
    rest = np.setdiff1d(open_rows, np.concatenate([drawn[: engine.n_labels], model_rows]))
    everything = len(model_rows) and sample.threshold(most) == -np.inf
    if everything and planned is not None:
        most = sample.errors_left(int(wrong.sum()))
    n_wrong = min(most, len(model_rows))
    return FinishPlan(
        rest[np.argsort(scores[rest], kind="stable")], model_rows, n_wrong, share, engine.level, N, sample
    )


def check_max_error(value: float) -> float:
    """Check that a share of wrong labels is above 0."""
    share = check_unit_scalar(value, "max_error")
    if share == 0:
        raise ParameterError(
            "max_error",
            "must be above 0, since only labeling every row leaves no wrong label",
            "0",
            "Pass a value such as 0.05.",
        )
    return share


def _most_wrong(share: float, N: int) -> int:
    return int(np.floor(share * N + 1e-9))
