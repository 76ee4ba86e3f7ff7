"""Figure 5: the certified likelihood at the distance to the truth, against the number of labels."""

from __future__ import annotations

from typing import Any

from surefoot.paper.observations import counted, per_dataset
from surefoot.paper.protocol import Row, Settings, Tables
from surefoot.paper.samples import CONSTANT, VACUOUS
from surefoot.paper.true_radius import AtTrueRadius


class Bounds(AtTrueRadius):
    """The bounds, and the paper's three observations on them."""

    def summarize(self, rows: Any, settings: Settings) -> Tables:
        found = super().summarize(rows, settings)
        cells = per_dataset(found[self.study], _cells)
        guarantee = _guarantee(rows)
        return found | {
            "figure5-observations": cells,
            "figure5-guarantee": guarantee,
            "figure5-claims": self.claims(cells),
        }

    def claims(self, cells: Any) -> Any:
        """The paper's three observations, counted."""
        by = cells.set_index("dataset")
        return counted(
            {
                "1a. the ball's bound is vacuous (below 0.505) at every N_l": by["ball_vacuous_at"] == by["all_sizes"],
                "1b. the ball's classifier is trivial (median confidence below 0.505) at every N_l": (
                    by["ball_trivial_at"] == by["all_sizes"]
                ),
                "1c. the ball's classifier is constant (its probabilities differ by less than 0.01) at every N_l": (
                    by["ball_constant_at"] == by["all_sizes"]
                ),
                "2a. an N_l at which the ball's bound is vacuous and both of ours are not": by["both_not_vacuous_at"]
                != "",
                "2b. an N_l at which the ball's bound is vacuous and ours with the strong prior is not": (
                    by["strong_not_vacuous_at"] != ""
                ),
                "2c. an N_l at which the ball's bound is vacuous and ours with the weak prior is not": (
                    by["weak_not_vacuous_at"] != ""
                ),
                "2d. an N_l at which the ball's bound is vacuous and ours with the strong prior is 0.005 or more above "
                "what the label probabilities alone give": by["strong_beats_prior_at"] != "",
                "2e. an N_l at which the ball's classifier is constant and both of ours are not": (
                    by["both_not_constant_at"] != ""
                ),
                "2f. an N_l at which both of our bounds are 0.005 or more above the ball's": by["both_above_ball_at"]
                != "",
                "3a. the strong prior's bound is at least the weak one's at every N_l, up to the gap of 0.001": (
                    by["strong_below_weak_at"] == ""
                ),
                "3b. the strong prior's bound is above 0.505 at no larger N_l than the weak one's, and above 0.6 too": (
                    by["strong_first"]
                ),
            }
        )


def _cells(table: Any) -> Row:
    """N_l at which each claim holds, as words: N_l separated by blanks."""
    bound = table.pivot_table(index="n_labeled", columns="method", values="bound")
    confidence = table.pivot_table(index="n_labeled", columns="method", values="median_confidence")
    spread = table.pivot_table(index="n_labeled", columns="method", values="spread")
    vacuous, trivial, constant = bound < VACUOUS, confidence < VACUOUS, spread < CONSTANT
    prior_alone = table["prior_alone"].iloc[0]

    def at(mask: Any) -> str:
        return " ".join(str(n) for n in bound.index[mask])

    def first(method: str, level: float) -> float:
        reached = bound.index[bound[method] >= level]
        return float(reached.min()) if len(reached) else float("inf")

    strong_first = all(first("strong", level) <= first("weak", level) for level in (VACUOUS, 0.6))
    return {
        "all_sizes": at(bound["ball"] > 0),
        "ball_vacuous_at": at(vacuous["ball"]),
        "ball_trivial_at": at(trivial["ball"]),
        "ball_constant_at": at(constant["ball"]),
        "both_not_vacuous_at": at(vacuous["ball"] & ~vacuous["strong"] & ~vacuous["weak"]),
        "strong_not_vacuous_at": at(vacuous["ball"] & ~vacuous["strong"]),
        "weak_not_vacuous_at": at(vacuous["ball"] & ~vacuous["weak"]),
        "strong_beats_prior_at": at(vacuous["ball"] & (bound["strong"] >= prior_alone + 0.005)),
        "both_above_ball_at": at(bound[["strong", "weak"]].min(axis=1) >= bound["ball"] + 0.005),
        "both_not_constant_at": at(constant["ball"] & ~constant["strong"] & ~constant["weak"]),
        "strong_below_weak_at": at(bound["strong"] < bound["weak"] * 0.999),
        "strong_first": strong_first,
        "prior_alone": prior_alone,
    }


def _guarantee(rows: Any) -> Any:
    """How often the bound held on P itself, by method, and how far the certified gap was closed."""
    rows = rows.assign(kept=rows["bound"] <= rows["likelihood"] + 1e-6)
    grouped = rows.groupby("method", sort=False)
    return grouped.agg(fits=("kept", "size"), bound_holds=("kept", "sum"), largest_gap=("gap", "max")).reset_index()


EXPERIMENT = Bounds("figure5", "Figures 5 and 6, at the distance to the truth", "bound", "certified likelihood")
