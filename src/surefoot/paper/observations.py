"""The paper's claims, counted on our results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def counted(claims: Mapping[str, Any]) -> Any:
    """A data frame with one line per claim: on how many datasets it holds, and where it does not.

    Parameters
    ----------
    claims : by the text of the claim, a series of bool indexed by dataset.
    """
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "claim": text,
                "holds": int(series.sum()),
                "of": len(series),
                "fails_on": " ".join(str(dataset) for dataset in series.index[~series.astype(bool)]),
            }
            for text, series in claims.items()
        ]
    )


def per_dataset(table: Any, function: Any) -> Any:
    """A data frame with one line per dataset, in the order of the table, made by a function from its part to a dict."""
    import pandas as pd

    return pd.DataFrame(
        [{"dataset": dataset} | function(part) for dataset, part in table.groupby("dataset", sort=False)]
    )
