"""The paper's comparison on two of its datasets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import surefoot.active as al
from surefoot import datasets


@pytest.mark.slow
@pytest.mark.parametrize(("name", "raw"), [("letter-u-v", "letter"), ("pulsar", "htru2")])
def test_robust_strategies_are_above_random_sampling(
    name: str, raw: str, dataset_path: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # 20 to 100 labels, 100 candidates, κ = 1, sum of losses + 0.001 ‖θ‖²: as in the paper, with 20 trials for its 50
    monkeypatch.setenv("SUREFOOT_DATA", str(dataset_path(raw).parent))
    X, y = datasets.load(name, return_X_y=True, download_if_missing=False)
    clf = LogisticRegression(C=500.0, max_iter=2000)
    prior = np.bincount(y) / len(y)
    strategies = {
        "random": al.RandomSampling(),
        "strong": al.RobustModelChange(label_prior=prior, margin=al.PAPER_MARGIN, max_candidates=100),
        "strong, our margin": al.RobustModelChange(label_prior=prior, max_candidates=100),
        "weak": al.RobustModelChange(margin=al.PAPER_MARGIN, max_candidates=100),
    }
    area = {name: al.simulate(strategy, clf, X, y, n_trials=20).area for name, strategy in strategies.items()}
    assert area.pop("random") < min(area.values()), area
