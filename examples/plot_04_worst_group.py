"""
Bound the error rate of each group
==================================

A small error rate on average can hide a large one in a small group. ``groups=`` bounds every group and names the worst.
"""

# %%
# Four groups have different sizes. The smallest follows another rule, which one linear model cannot learn.

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
# We use 400 labels that the model has not seen. With 90 % confidence all bounds hold together. The value is the bound
# of the worst group.

held = slice(200, 600)
bound = sf.error_bound(clf, X[held], y[held], method="holdout", groups=groups[held], X_train=X_train)
bound

# %%
# We compare the bounds with the error rates on 2,400 further rows. The mean over all rows would have hidden the west.

fig, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
order = sorted(bound.groups, key=lambda name: bound.groups[name].value)
wrong = clf.predict(X[600:]) != y[600:]
truth = [wrong[groups[600:] == name].mean() for name in order]
ax.barh(order, [bound.groups[name].value for name in order], color="#56B4E9", label="bounds, with 90 % confidence")
ax.barh(order, [bound.groups[name].mean_loss for name in order], color="#0072B2", height=0.35, label="observed")
ax.plot(truth, order, "D", color="#D55E00", label="true error rate")
ax.axvline(wrong.mean(), color="#666666", linestyle="--", linewidth=1, label="true error rate, all rows")
ax.set(xlabel="error rate")
ax.legend(frameon=False, loc="lower right")
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# ``groups=`` in ``fit`` learns for the worst group: it minimizes the largest worst case over the groups. The groups of
# the unlabeled rows count too. The west gains, and the other groups lose.

few, many, rest = slice(0, 200), slice(600, 1400), slice(1400, 3000)
for title, given in (("all rows", None), ("worst group", np.append(groups[few], groups[many]))):
    robust = sf.RobustLogisticRegression().fit(X[few], y[few], X_unlabeled=X[many], groups=given)
    wrong = robust.predict(X[rest]) != y[rest]
    print(title, {str(name): f"{wrong[groups[rest] == name].mean():.0%}" for name in names})
