"""How results show themselves: in notebooks, and bounds never smaller than they are."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import surefoot as sf
from surefoot._printing import PrintedTable, PrintsAsTable
from surefoot.active.proof_state import AUDIT, ProofState
from surefoot.bounds.result import ErrorBounds


class Parts(PrintsAsTable):
    def _rows(self) -> list[tuple[str, str]]:
        return [("first", "1 < 2"), ("", "goes on"), ("last", "&")]


class Columns(PrintedTable):
    def _columns(self) -> dict[str, list[float]]:
        return {"a_b": [1.0, 2.0], "c": [0.5, 0.25]}

    def _title(self) -> str:
        return "<two>"


def test_a_row_without_a_name_goes_on_with_the_one_before() -> None:
    text = Parts()._repr_html_()
    assert re.findall(r"<th[^>]*>(.*?)</th><td[^>]*>(.*?)</td>", text) == [
        ("first", "1 &lt; 2<br>goes on"),
        ("last", "&amp;"),
    ]
    assert text.count("<tr>") == 2


@pytest.mark.parametrize(("shown", "title"), [(Parts(), "Parts"), (Columns(), "&lt;two&gt;")])
def test_html_is_small_and_takes_the_colours_of_the_notebook(shown: PrintsAsTable | PrintedTable, title: str) -> None:
    text = shown._repr_html_()
    assert re.search(rf"<caption [^>]*color:inherit[^>]*>{title}</caption>", text)
    assert not re.search(r"background|#[0-9a-fA-F]{3}|rgb|<style|<script", text)


def bound_of_groups() -> sf.ErrorBound:
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = (X[:, 0] + 0.4 * X[:, 1] > 0).astype(int)
    clf = LogisticRegression().fit(X[:10], y[:10])
    return sf.error_bound(clf, X[10:], y[10:], method="holdout", groups=np.arange(50) % 2, X_train=X[:10], level=0.9)


def test_a_bound_is_never_printed_smaller_than_it_is() -> None:
    found = bound_of_groups()
    assert found.groups is not None
    below = replace(found, groups={name: replace(each, value=0.12063) for name, each in found.groups.items()})
    assert re.findall(r"group \d +(\S+)", repr(below)) == ["0.1207", "0.1207"]
    assert "0.1207" in repr(ErrorBounds({"holdout": replace(found, value=0.12063)}, advice="holdout"))
    state = ProofState(AUDIT, 30, 40, 1, 10, 0, 50, 0.12063, 0.95, 0.1, 0.9)
    assert "bound 0.1207 at level 0.95" in repr(state)
