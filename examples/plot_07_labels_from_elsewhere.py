"""
Labels from elsewhere
=====================

The labels are last year's; the rows that the model will see are this year's. Bounds from held-out labels speak of last
year. What can be said of this year?
"""

# %%
# Last year's rows are mostly from the left, this year's mostly from the right. The labels follow the same rule in both,
# which a straight line fits well on the left only.

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
# Has anything moved? The test needs no label of this year.

sf.shift(X_old, y_old, X_new)

# %%
# It has. A bound from last year's labels does not know: it is right about last year and wrong about this one.

held = sf.error_bound(clf, X_old, y_old, level=0.9)
print(f"by last year's labels: at most {held.value:.1%}; this year: {np.mean(clf.predict(X_new) != y_new):.1%}")

# %%
# The certificate over this year's rows grants the adversary any labels with this year's shares (known from the books,
# say) that lie within a distance of last year's: the least one that the move of the rows takes, and an excess for
# labels that would not have been carried over. Which excess is enough nothing in the data proves; the hidden labels
# tell here.

shares = np.bincount(y_new) / len(y_new)
least = sf.minimal_radius(X_old, y_old, X_target=X_new, label_prior=shares)
needed = sf.transport_distance(X_old, y_old, X_new, y_new) - least
print(f"needed: an excess of {needed:.1e} over {least:.3f}")
for excess in (1e-4, 1e-3, 1e-2):
    guarantee = sf.certify(
        clf, X_old, y_old, X_target=X_new, radius=least + excess, label_prior=shares, loss="zero_one"
    )
    print(f"at an excess of {excess:.0e} it errs on at most {guarantee.risk:.1%} of this year's rows")

# %%
# On the left what the model has learned from, on the right what it is asked about.

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
