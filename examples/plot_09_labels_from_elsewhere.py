"""
Use labels of another population
================================

The labels are from last year, and the model will be used this year. Bounds from held-out labels cover last year. With
``X_target`` a certificate covers this year.
"""

# %%
# Last year's rows are mostly on the left, this year's mostly on the right. The labels follow the same rule in both
# years. A straight line fits this rule well only on the left.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

import surefoot as sf

rng = np.random.default_rng(0)


def rows_around(centre, size):
    X = rng.normal(size=(size, 2)) * [0.9, 0.6] + [centre, 0.0]
    return X, (X[:, 1] > np.where(X[:, 0] > 0.7, 0.9 * (X[:, 0] - 0.7), 0.0)).astype(int)


X_old, y_old = rows_around(-0.6, 120)
X_new, y_new = rows_around(0.9, 1000)
clf = LogisticRegression(C=100).fit(X_old, y_old)

# %%
# Has the population shifted? The test requires no labels of this year.

sf.shift(X_old, y_old, X_new)

# %%
# It has. A bound from last year's labels is valid for last year and wrong for this year.

held = sf.error_bound(clf, X_old, y_old, level=0.9)
print(f"bound from last year's labels {held.value:.1%}, true error rate {np.mean(clf.predict(X_new) != y_new):.1%}")

# %%
# The certificate over this year's rows covers all labels with this year's class probabilities, which we assume to be
# known, within a radius of last year's labeled rows. The radius is the minimal one, for the shift of the rows, plus an
# excess for rows whose label differs. No data can prove which excess is enough. In this example the hidden labels show
# it.

shares = np.bincount(y_new) / len(y_new)
least = sf.minimal_radius(X_old, y_old, X_target=X_new, label_prior=shares)
needed = sf.transport_distance(X_old, y_old, X_new, y_new) - least
print(f"needed: an excess of {needed:.1e} over {least:.3f}")
for excess in (1e-4, 1e-3, 1e-2):
    guarantee = sf.certify(
        clf, X_old, y_old, X_target=X_new, radius=least + excess, label_prior=shares, loss="zero_one"
    )
    print(f"excess {excess:.0e}: error rate at most {guarantee.risk:.1%} on this year's rows")

# %%
# Left: the rows that trained the model. Right: the rows on which it is used.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharex=True, sharey=True)
for ax, name, X, y in zip(axes, ("last year", "this year"), (X_old, X_new), (y_old, y_new), strict=True):
    wrong = clf.predict(X) != y
    ax.scatter(*X[~wrong].T, c=np.where(y[~wrong], "#0072B2", "#E69F00"), s=8, alpha=0.5)
    ax.scatter(*X[wrong].T, marker="x", color="#D55E00", s=25, label=f"wrong: {wrong.mean():.1%}")
    across = np.array([-3.5, 4.0])
    ax.plot(across, -(clf.coef_[0, 0] * across + clf.intercept_[0]) / clf.coef_[0, 1], color="black", linewidth=1)
    ax.set(title=name, ylim=(-2.2, 3.2))
    ax.legend(frameon=False, loc="upper left")
plt.show()
