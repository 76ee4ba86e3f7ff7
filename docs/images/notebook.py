"""Draw notebook.png: results as a notebook shows them, in light and in dark. Needs chromium.

python docs/images/notebook.py
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale

import surefoot as sf

OUT = Path(__file__).with_suffix(".png")
STYLE = "width:48%;float:left;padding:1%;font:14px sans-serif;height:1020px"

X, y = load_breast_cancer(return_X_y=True)
X = scale(X)
X /= np.abs(X).max()
order = np.random.default_rng(0).permutation(len(X))
labeled, pool = order[:50], order[50:]
robust = sf.RobustLogisticRegression(radius="calibrated").fit(X[labeled], y[labeled], X_unlabeled=X[pool])
linear = LogisticRegression().fit(X[labeled], y[labeled])
audit = sf.Audit(linear, X[pool], target_error=0.12, random_state=0).run(lambda row: y[pool][row], 80)
shown = [robust.certificate_, sf.error_bound(LogisticRegression(), X[labeled], y[labeled]), audit]
body = "<br>".join(one._repr_html_() for one in shown)
half = "<div style='{};background:{};color:{};color-scheme:{}'>{}</div>"
page = half.format(STYLE, "white", "#111", "light", body) + half.format(STYLE, "#111", "#ddd", "dark", body)
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "page.html"
    file.write_text(
        f"<!doctype html><meta charset=utf-8><body style='margin:0;overflow:hidden'>{page}", encoding="utf-8"
    )
    size = "--window-size=1300,1020"
    subprocess.run(["chromium", "--headless", "--no-sandbox", size, f"--screenshot={OUT}", file.as_uri()], check=True)
