"""
Classify sequences by their distances
=====================================

The minimax classifier needs no features. Here the rows are DNA sequences with insertions and deletions, compared by
their edit distance, and 30 of 300 have labels.
"""

# %%
# Sequences
# ---------
# Each class descends from an ancestor. A descendant differs by random substitutions, insertions and deletions, so the
# same position means something else in every sequence.

import numpy as np

import surefoot as sf

rng = np.random.default_rng(0)
ancestors = [rng.integers(4, size=30) for _ in range(2)]
ancestors[1][:12] = ancestors[0][:12]


def descendant(ancestor):
    letters = []
    for letter in ancestor:
        kind = rng.random()
        if kind < 0.15:  # deletion
            continue
        letters.append(rng.integers(4) if kind < 0.4 else letter)
        if kind > 0.9:  # insertion
            letters.append(rng.integers(4))
    return np.array(letters)


y = rng.integers(2, size=300)
sequences = [descendant(ancestors[label]) for label in y]
print("".join("ACGT"[letter] for letter in sequences[0]))

# %%
# Edit distances
# --------------
# Only distances to the 30 labeled sequences are needed.


def edit_distance(a, b):
    row = np.arange(len(b) + 1)
    steps = np.arange(len(b) + 1)
    for at, letter in enumerate(a):
        best = np.minimum(row[1:] + 1, row[:-1] + (b != letter))
        row = np.minimum.accumulate(np.append(at + 1, best) - steps) + steps
    return row[-1]


D = np.array([[edit_distance(a, b) for b in sequences[:30]] for a in sequences], dtype=float)

# %%
# Fit and certify
# ---------------
# The radius is calibrated from the labels. The certificate bounds the log loss over the whole decision set, and no
# other classifier has a smaller one.

clf = sf.MinimaxClassifier("calibrated", label_prior=[0.5, 0.5], metric="precomputed")
clf.fit(D[:30], y[:30], X_unlabeled=D[30:])
print(f"certified log loss {clf.certificate_.risk:.3f}, no classifier below {clf.certificate_.limit:.3f}")
print(f"accuracy on the other 270 sequences {clf.score(D[30:], y[30:]):.2f}")

# %%
# Its probabilities
# -----------------
# Each probability is that of the most uncertain distribution that the labels allow. Sequences far from every labeled
# one are near one half.

import matplotlib.pyplot as plt

proba = clf.predict_proba(D[30:])[:, 1]
fig, ax = plt.subplots(figsize=(7, 3.5))
for label, color in ((0, "tab:blue"), (1, "tab:orange")):
    chosen = y[30:] == label
    difference = D[30:][:, y[:30] == 0].min(axis=1) - D[30:][:, y[:30] == 1].min(axis=1)
    jitter = rng.uniform(-0.25, 0.25, size=chosen.sum())
    ax.scatter(difference[chosen] + jitter, proba[chosen], s=14, color=color, label=f"class {label}")
ax.axhline(0.5, color="gray", linewidth=0.8)
ax.set_xlabel("edits to the nearest label of class 0, minus those to class 1")
ax.set_ylabel("probability of class 1")
ax.legend(frameon=False)
fig.tight_layout()
plt.show()
