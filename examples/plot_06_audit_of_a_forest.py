"""
An audit of a forest
====================

A finished model, a pool of rows without labels, and somebody who can label some of them. How many labels prove that
the model errs on at most 10 % of the pool?
"""

# %%
# The forest was trained on something; the audit does not ask on what.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

import surefoot as sf

X, y = load_digits(return_X_y=True)
X_train, X_pool, y_train, y_pool = train_test_split(X, y, train_size=400, random_state=0)
forest = RandomForestClassifier(random_state=0).fit(X_train, y_train)

# %%
# Before it begins: how many labels will it take, if the forest is as good as we believe?

sf.audit_size(target=0.1, expected_error=0.05, n_pool=len(X_pool))

# %%
# The audit draws the rows itself. Its bound holds at every number of labels at once, so that one may look, and stop.

audit = sf.Audit(forest, X_pool, target_error=0.1, sampling="uniform", random_state=0)
bounds, seen = [], []
while (row := audit.next()) is not None:
    audit.record(row, y_pool[row])
    bound = audit.anytime_bound()
    bounds.append(bound.value)
    seen.append(bound.mean_loss)
audit.anytime_bound()

# %%
# The bound falls towards what is seen, and never below the truth but in one audit out of ten.

fig, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
ax.plot(np.arange(1, len(bounds) + 1), bounds, color="#0072B2", label="bound, at level 0.9")
ax.plot(np.arange(1, len(seen) + 1), seen, color="#666666", label="errors among the labels so far")
ax.axhline(np.mean(forest.predict(X_pool) != y_pool), color="#009E73", linestyle="--", label="the truth")
ax.axhline(0.1, color="#D55E00", linewidth=1, label="target")
ax.set(xlabel="labels", ylabel="share of errors on the pool", ylim=(0, 0.5))
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()
