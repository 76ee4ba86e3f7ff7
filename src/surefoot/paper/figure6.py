"""Figure 6: the median confidence at the distance to the truth, against the number of labels."""

from __future__ import annotations

from typing import Any

from surefoot.paper.observations import counted, per_dataset
from surefoot.paper.protocol import Row, Settings, Tables
from surefoot.paper.samples import VACUOUS
from surefoot.paper.true_radius import AtTrueRadius

# The paper's threshold of the as-robust-as-possible rule.
THRESHOLD = 0.7


class Confidences(AtTrueRadius):
    """The confidences, and what the paper says of them. The trials are those of figure 5."""

    def summarize(self, rows: Any, settings: Settings) -> Tables:
        found = super().summarize(rows, settings)
        cells = per_dataset(found[self.study], _cells)
        return found | {"figure6-observations": cells, "figure6-claims": self.claims(cells)}

    def claims(self, cells: Any) -> Any:
        """The caption's claim, and that of section 5.1 on the threshold of 0.7."""
        by = cells.set_index("dataset")
        return counted(
            {
                "an N_l at which the ball's median confidence is below 0.505 and both of ours are not": (
                    by["only_ours_at"] != ""
                ),
                "the median confidence of the strong prior is 0.7 or more at N_l = 100 or some smaller one": (
                    by["strong_confident_from"] <= 100
                ),
                "the same at some N_l up to 1000": by["strong_confident_from"] <= 1000,
                "the median confidence of the weak prior is 0.7 or more at some N_l up to 1000": (
                    by["weak_confident_from"] <= 1000
                ),
            }
        )


def _cells(table: Any) -> Row:
    confidence = table.pivot_table(index="n_labeled", columns="method", values="median_confidence")
    trivial = confidence < VACUOUS
    only_ours = trivial["ball"] & ~trivial["strong"] & ~trivial["weak"]

    def first(method: str) -> float:
        reached = confidence.index[confidence[method] >= THRESHOLD]
        return float(reached.min()) if len(reached) else float("nan")

    return {
        "only_ours_at": " ".join(str(n) for n in confidence.index[only_ours]),
        "strong_confident_from": first("strong"),
        "weak_confident_from": first("weak"),
        "ball_confident_from": first("ball"),
    }


EXPERIMENT = Confidences(
    "figure6", "Figures 5 and 6, at the distance to the truth", "median_confidence", "median confidence"
)
