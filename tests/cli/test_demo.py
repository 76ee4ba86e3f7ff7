"""The demonstration: what it prints must be true, and its figure must show something."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.cli import demo


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the demonstration printed, and the figure it wrote."""
    figure = tmp_path_factory.mktemp("demo") / "figure.png"
    shown = demo.Demonstration.from_seed(0)
    shown.draw(figure)
    return shown.report, figure


def rows_of(printed: str) -> dict[str, list[str]]:
    """The table: name of the model, then its cells."""
    names = [*demo.NAMES.values(), 'robust, radius="auto"']
    lines = printed.splitlines()
    return {name: next(line for line in lines if line.startswith(name))[len(name) :].split() for name in names}


def test_the_printed_certificate_bounds_the_printed_risk(run: tuple[str, Path]) -> None:
    rows = rows_of(run[0])
    for name in demo.NAMES.values():
        _, certified, true, certified_likelihood, true_likelihood, _, covered = rows[name]
        assert covered == "yes", name
        assert float(true) <= float(certified), name
        assert float(certified_likelihood) <= float(true_likelihood), name


def test_unlabeled_rows_buy_a_better_guarantee_than_the_ball(run: tuple[str, Path]) -> None:
    rows = rows_of(run[0])
    strong, weak, ball = (float(rows[demo.NAMES[key]][1]) for key in ("strong", "weak", "ball"))
    assert strong < weak < ball
    assert ball == pytest.approx(np.log(2), abs=1e-4)


def test_the_page_on_certificates_shows_this_table(run: tuple[str, Path]) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "certificates.md"
    shown, printed = rows_of(page.read_text(encoding="utf-8")), rows_of(run[0])
    for name, cells in printed.items():
        assert shown[name][-1] == cells[-1], name
        ours, theirs = ([float(cell.rstrip("%")) for cell in row[:-1]] for row in (shown[name], cells))
        assert ours == pytest.approx(theirs, rel=5e-3), name


def test_the_figure_is_an_image_with_three_curves(run: tuple[str, Path]) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.image import imread

    image = imread(run[1])
    height, width = image.shape[:2]
    assert min(height, width) > 400
    for colour in [*(colour for colour, _ in demo.STYLES.values()), demo.TRUTH]:
        near = np.abs(image[..., :3] - to_rgb(colour)).max(axis=2) < 0.02
        assert near.sum() > 200, colour


def test_the_priors_contain_the_truth_or_the_table_says_no() -> None:
    task = demo.DemoData.breast_cancer(0)
    outcome = demo.Outcome.from_model(task.fit_robust(task.radius(), [0.5, 0.5]), task)
    assert not outcome.covers(task, task.radius())


def test_each_seed_labels_other_rows() -> None:
    first, second = (demo.DemoData.breast_cancer(seed) for seed in (0, 1))
    assert len(first.labeled) == demo.N_LABELS
    assert set(first.labeled) != set(second.labeled)
    assert sorted([*first.labeled, *first.unlabeled]) == list(range(len(first.X)))
    assert np.abs(first.X).max() == 1.0


def test_a_curve_agrees_with_a_fit_at_its_radius() -> None:
    task = demo.DemoData.breast_cancer(0)
    radius, prior = task.radius(), task.label_probabilities
    found = task.curve(demo.RobustLogisticRegression(label_prior=prior), np.array([radius]))
    fitted = demo.Outcome.from_model(task.fit_robust(radius, prior), task)
    assert found.risk[0] == pytest.approx(fitted.certificate.risk, abs=2e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "figure.txt"], "must end in one of"),
        (["--out", "no-such-folder/figure.png"], "does not exist"),
        (["--seed", "-1"], "--seed"),
        (["--seed", "one"], "--seed"),
    ],
)
def test_bad_arguments(run_cli: Callable[..., Any], arguments: list[str], message: str) -> None:
    result = run_cli("demo", *arguments)
    assert result.code == 2
    assert message in result.message
