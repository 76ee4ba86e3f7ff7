"""
Predict from few labels
=======================

The default model also learns from unlabeled rows. This example compares it with logistic regression on 10 to 80 labels.
"""

# %%
# We sample 10 to 80 labels of the breast cancer data. The remaining rows are passed without labels and used as test
# set.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale

import surefoot as sf

X, y = load_breast_cancer(return_X_y=True)
X = scale(X)
sizes, draws = [10, 20, 40, 80], 3
right = {"surefoot": [], "logistic regression": []}
for n in sizes:
    for seed in range(draws):
        X_few, X_rest, y_few, y_rest = train_test_split(X, y, train_size=n, stratify=y, random_state=seed)
        robust = sf.RobustLogisticRegression(tol=1e-3).fit(X_few, y_few, X_unlabeled=X_rest)
        plain = LogisticRegression().fit(X_few, y_few)
        right["surefoot"].append(robust.score(X_rest, y_rest))
        right["logistic regression"].append(plain.score(X_rest, y_rest))

# %%
# Each point is one sample, and the lines are means. Three samples of one dataset only illustrate the idea. For a
# comparison on 14 datasets, see the page on the accuracy of the default model.

fig, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
for (name, scores), colour, shift in zip(right.items(), ("#0072B2", "#D55E00"), (0.97, 1.03), strict=True):
    table = np.reshape(scores, (len(sizes), draws))
    ax.plot(np.array(sizes) * shift, table.mean(axis=1), "-", color=colour, label=name)
    ax.plot(np.array(sizes)[:, None] * shift, table, "o", color=colour, alpha=0.4, markersize=4)
ax.set_xscale("log")
ax.set_xticks(sizes, [str(n) for n in sizes])
ax.set_xticks([], minor=True)
ax.set(xlabel="labels", ylabel="accuracy on the unlabeled rows")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The model has also learned a metric, with a weight for each feature, and has chosen a radius.

robust.metric_, float(np.round(robust.radius_, 3))
