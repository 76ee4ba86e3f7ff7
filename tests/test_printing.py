"""How results show themselves: in notebooks, and bounds never smaller than they are."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import surefoot as sf
from surefoot._printing import Bar, PrintedTable, PrintsAsTable
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
    assert re.search(rf"<details open [^>]*color:inherit[^>]*><summary [^>]*>{title}</summary>", text)
    assert not re.search(r"background|#[0-9a-fA-F]{3}|rgb|<style|<script", text)


class Charted(PrintsAsTable):
    """A result with bars.

    Attributes
    ----------
    first : float
        The first
        of all `parts`.
    """

    @property
    def last(self) -> str:
        """The last one."""
        return ""

    @property
    def statement(self) -> str:
        return "a < b"

    def _bars(self) -> list[Bar]:
        return [Bar("one", 0.1, 0.15, "15 %"), Bar("two", 0.05, 0.05, "5 %")]

    def _rows(self) -> list[tuple[str, str]]:
        return [("first", "1"), ("statement", "a < b"), ("last", "2"), ("other", "3")]


def test_a_term_is_explained_and_the_statement_said_once() -> None:
    text = Charted()._repr_html_()
    assert re.findall(r'<abbr title="(.*?)" [^>]*>(.*?)</abbr>', text) == [
        ("The first of all parts.", "first"),
        ("The last one.", "last"),
    ]
    assert text.count("A &lt; b") == 1
    assert "a &lt; b" not in text


def test_bars_are_on_one_scale() -> None:
    text = Charted()._repr_html_()
    widths = [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', text)]  # to high, then to low
    assert np.allclose(np.array(widths) / widths[0], [1, 0.1 / 0.15, 0.05 / 0.15, 0.05 / 0.15], atol=0.01)
    assert re.search(r"<title>one: 15 %</title>", text)
    assert ">20\N{NO-BREAK SPACE}%</text>" in text  # the end of the scale


def test_results_and_estimators_show_themselves_without_a_request() -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = (X[:, 0] > 0).astype(int)
    clf = sf.RobustLogisticRegression(radius="calibrated").fit(X[:20], y[:20], X_unlabeled=sf.Unlabeled(X[20:]))
    audit = sf.Audit(clf, X[20:], target_error=0.4, random_state=0).run(lambda row: y[20 + row], 12)
    certificate = clf.certificate_
    assert "at most" in certificate._repr_html_()
    for shown in (certificate, bound_of_groups(), audit, sf.Audit(predictions=[0, 1], random_state=0)):
        text = shown._repr_html_()
        assert "<svg" in text
        assert not re.search(r"http|<script|<style|src=", text)
        ET.fromstring(text.replace("<details open", "<details").replace("<br>", "<br/>"))
    names = re.findall(r"<th [^>]*>(.*?)</th>", certificate._repr_html_())
    assert all(name.startswith("<abbr") for name in names), names
    whole = clf._repr_html_()
    assert certificate._repr_html_() in whole
    assert "sk-container" in whole
    assert certificate._repr_html_() not in clone(clf)._repr_html_()


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
    state = ProofState(AUDIT, 30, 40, None, 1, 10, 0, 50, 0.12063, 0.95, 0.1, 0.9)
    assert "bound 0.1207 at level 0.95" in repr(state)


def test_an_audit_of_a_metric_shows_the_direction_of_its_bound() -> None:
    truth, cost = ["a", "b"] * 40, [[0.0, 1.0], [5.0, 0.0]]
    for goal, word in [({"recall": 0.7}, "at least"), ({"cost": 0.5}, "at most")]:
        more = {"positive": "a"} if "recall" in goal else {"cost_matrix": cost}
        audit = sf.Audit(predictions=truth, target=goal, n_labels=40, random_state=0, **more)
        before = audit._repr_html_()
        text = audit.run(lambda row: truth[row])._repr_html_()
        assert "not proved yet" in before
        assert re.search(rf"<title>bound: {word} ", text)
        assert re.search(rf"<title>target: {goal.get('cost', '70.0')}", text)
