"""The demonstration: a dataset inside scikit-learn as an unlabeled pool, with its truth for a robot that labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LABEL = "diagnosis"
GUIDELINES = """# What to label

Each row is a lump, measured under a microscope: the mean of its cell nuclei, the standard error, and the worst.

- **benign**: nuclei small and alike, low *concavity* and few *concave points*.
- **malignant**: large radius, area and perimeter, high concavity, uneven texture.

Skip a row that you cannot tell. A skipped row of the audit counts as an error, so that skipping cannot help the model.
"""


def write_demo(folder: Path) -> tuple[Path, NDArray[Any]]:
    """The Wisconsin breast cancer data without labels, and the labels (N,)."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer(as_frame=True)
    order = np.random.default_rng(0).permutation(len(data.target))
    rows = data.data.iloc[order].assign(**{LABEL: None})
    path = folder / "tumours.csv"
    rows.to_csv(path, index=False)
    (folder / "guidelines.md").write_text(GUIDELINES, encoding="utf-8")
    return path, data.target_names[data.target.to_numpy()[order]]
