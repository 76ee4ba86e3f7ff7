"""
Audit a forest
==============

You have a finished model, a pool of unlabeled rows, and an annotator. How many labels prove that the error rate on the
pool is at most 10 %?
"""

# %%
# The audit accepts any classifier, whatever it was trained on.

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
# First plan the number of labels. We expect that the forest misclassifies 5 % of the rows.

sf.audit_size(target=0.1, expected_error=0.05, n_pool=len(X_pool))

# %%
# The audit samples the rows. Its bound holds at every number of labels, so you may look at any time and stop.

audit = sf.Audit(forest, X_pool, target_error=0.1, sampling="uniform", random_state=0)
bounds, seen = [], []
while (row := audit.next()) is not None:
    audit.record(row, y_pool[row])
    bound = audit.anytime_bound()
    bounds.append(bound.value)
    seen.append(bound.mean_loss)
audit.anytime_bound()

# %%
# The bound approaches the observed error rate. In at least nine of ten audits it never falls below the true error rate.

fig, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
ax.plot(np.arange(1, len(bounds) + 1), bounds, color="#0072B2", label="bound, with 90 % confidence")
ax.plot(np.arange(1, len(seen) + 1), seen, color="#666666", label="observed error rate")
ax.axhline(np.mean(forest.predict(X_pool) != y_pool), color="#009E73", linestyle="--", label="true error rate")
ax.axhline(0.1, color="#D55E00", linewidth=1, label="target")
ax.set(xlabel="labels", ylabel="error rate on the pool", ylim=(0, 0.5))
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()
