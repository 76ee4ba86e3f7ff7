"""
Train on a million rows
=======================

Rows in a file are read in blocks, without a matrix of all distances. The fit has the same kind of certificate as one in
memory.
"""

# %%
# The file has a million unlabeled rows. Ten rows have a label.

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import surefoot as sf

rng = np.random.default_rng(0)
y = rng.integers(0, 2, 1_000_010)
X = rng.normal(size=(len(y), 2))
X[:, 0] += 4.0 * y
X /= np.abs(X).max()
folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "rows.npy"
np.save(path, X[10:])
print(f"{path.stat().st_size / 1e6:.0f} MB")

# %%
# The file is memory-mapped. ``sf.Compute()`` reads it in blocks, here with two threads. ``sf.Compute("cuda")`` uses a
# GPU, and a Dask array uses the workers of a cluster.

rows = np.load(path, mmap_mode="r")
clf = sf.RobustLogisticRegression(
    radius=0.32,
    label_prior=[0.5, 0.5],
    metric="euclidean",
    label_cost=1.0,
    tol=5e-3,
    compute=sf.Compute(),
    n_jobs=2,
)
start = time.perf_counter()
clf.fit(X[:10], y[:10], X_unlabeled=rows)
print(f"{time.perf_counter() - start:.0f} s, accuracy {clf.score(X[10:], y[10:]):.3f}")
clf.certificate_

# %%
# The worst-case distribution has a label for each of the million rows. Along the first feature, which separates the
# classes, it contradicts the model on both sides.

edges = np.linspace(*np.quantile(X[:, 0], [0.001, 0.999]), 41)
cell = np.digitize(X[:, 0], edges)
middle = (edges[1:] + edges[:-1]) / 2


def mean_by_cell(values):
    return (np.bincount(cell, values, len(edges) + 1) / np.bincount(cell, minlength=len(edges) + 1))[1:-1]


fig, ax = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
ax.plot(middle, mean_by_cell(y.astype(float)), color="#009E73", label="truth")
ax.plot(middle, mean_by_cell(clf.predict_proba(X)[:, 1]), color="#0072B2", label="model")
ax.plot(middle, mean_by_cell(clf.worst_case_.label_proba[:, 1]), color="#D55E00", label="worst case")
ax.set(xlabel="first feature", ylabel="probability of class 1")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()
folder.cleanup()
