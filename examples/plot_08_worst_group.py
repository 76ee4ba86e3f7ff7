"""
The worst group
===============

A small error on average can hide a large one in a small group. Bounds for every group at once, and their worst.
"""

# %%
# Four groups of unequal size. In the smallest the rule is another one, which a model of all rows cannot follow.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

import surefoot as sf

rng = np.random.default_rng(1)
names = np.array(["north", "south", "east", "west"])
groups = names[rng.choice(4, size=3000, p=[0.4, 0.3, 0.2, 0.1])]
X = rng.normal(size=(3000, 4))
signal = np.where(groups == "west", X[:, 0] - X[:, 1], X[:, 0] + X[:, 1])
y = (signal + 0.3 * rng.normal(size=3000) > 0).astype(int)
X_train, y_train = X[:200], y[:200]
clf = LogisticRegression().fit(X_train, y_train)

# %%
# 400 labels that the model has not seen. All bounds hold together, at one level, and the value is that of the worst
# group.

held = slice(200, 600)
bound = sf.error_bound(clf, X[held], y[held], method="holdout", groups=groups[held], X_train=X_train)
bound

# %%
# Beside the truth, counted on 2,400 other rows. All four bounds hold together in nine draws out of ten or more. A mean
# over all rows would have hidden the west.

fig, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
order = sorted(bound.groups, key=lambda name: bound.groups[name].value)
wrong = clf.predict(X[600:]) != y[600:]
truth = [wrong[groups[600:] == name].mean() for name in order]
ax.barh(order, [bound.groups[name].value for name in order], color="#56B4E9", label="bound, all together at level 0.9")
ax.barh(order, [bound.groups[name].mean_loss for name in order], color="#0072B2", height=0.35, label="seen")
ax.plot(truth, order, "D", color="#D55E00", label="truth")
ax.axvline(wrong.mean(), color="#666666", linestyle="--", linewidth=1, label="truth on average")
ax.set(xlabel="share of errors")
ax.legend(frameon=False, loc="lower right")
ax.spines[["top", "right"]].set_visible(False)
plt.show()
