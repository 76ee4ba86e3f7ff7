"""
Predicting from few labels
==========================

The default learns a metric from the labels and a radius that predicts well. How does it do beside a plain logistic
regression?
"""

# %%
# Draws of 10 to 80 labels of the breast cancer data; the other rows are given without labels, and judge.

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
# Every draw, and their mean. Three draws of one dataset are a picture, not a comparison.

fig, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
for (name, scores), colour, shift in zip(right.items(), ("#0072B2", "#D55E00"), (0.97, 1.03), strict=True):
    table = np.reshape(scores, (len(sizes), draws))
    ax.plot(np.array(sizes) * shift, table.mean(axis=1), "-", color=colour, label=name)
    ax.plot(np.array(sizes)[:, None] * shift, table, "o", color=colour, alpha=0.4, markersize=4)
ax.set_xscale("log")
ax.set_xticks(sizes, [str(n) for n in sizes])
ax.set_xticks([], minor=True)
ax.set(xlabel="labels", ylabel="accuracy on the other rows")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# What was learned besides the coefficients: weights of the features, by which distances are measured.

robust.metric_, float(np.round(robust.radius_, 3))
