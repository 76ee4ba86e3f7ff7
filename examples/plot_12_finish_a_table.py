"""
Finish a table
==============

A table must have a label in every row, and at most 5 % of the labels may be wrong. Which rows can a model label?
"""

# %%
# The model learns from 150 of 1,797 digits. The other rows have no label.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import surefoot as sf

X, y = load_digits(return_X_y=True)
X = X / 16
learn = np.random.default_rng(0).choice(len(y), 150, replace=False)
model = LogisticRegression(C=10, max_iter=1000).fit(X[learn], y[learn])
known = np.full(len(y), np.nan)
known[learn] = y[learn]

# %%
# An audit samples 100 rows and asks for their labels. They cannot prove an error rate of 5 % for the model.

audit = sf.Audit(model, X, known, n_labels=100, random_state=0).run(lambda row: y[row])
audit.bound()

# %%
# The table can be finished all the same. The model labels the rows with the largest probabilities, and annotators label
# the rest.

plan = audit.finish(max_error=0.05)
plan

# %%
# The guarantee covers the share of wrong labels in the whole table. Here we know the truth and can count them.

labels = y.copy()
labels[plan.model_rows] = model.predict(X[plan.model_rows])
print(f"{np.mean(labels != y):.1%} of the labels are wrong")

# %%
# Fewer wrong labels need more labels of annotators. Each point of the curve has its own confidence, so choose
# `max_error` before you look.

curve = plan.curve(np.linspace(0.01, 0.15, 29))
done = len(learn) + audit.n_labels
fig, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
ax.step([100 * share for share in curve], [done + n for n in curve.values()], color="#0072B2", where="post")
ax.axhline(len(y), color="#666666", linestyle="--", label="label every row")
ax.axvline(5, color="#D55E00", linewidth=1, label="chosen")
ax.set(xlabel="wrong labels in the finished table, at most, %", ylabel="rows that annotators label", ylim=(0, None))
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()
