"""
Label until the error rate is proved
====================================

Label the most useful rows, freeze the classifier, and audit it on random rows. If the audit fails, train again. The
result is a theorem: an upper bound on the error rate of the classifier on these rows.
"""

# %%
# The pool has handwritten digits, eights and nines, and one label of each. The known labels act as the annotator.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from surefoot import active

X, y = load_digits(return_X_y=True)
X, y = X[np.isin(y, [8, 9])], y[np.isin(y, [8, 9])]
known = np.full(len(y), np.nan)
known[[np.argmax(y == 8), np.argmax(y == 9)]] = 8, 9

# %%
# The loop asks for one row at a time. During training a strategy chooses the row. During an audit the row is sampled at
# random, and you may look at the bound after every label.

model = make_pipeline(StandardScaler(), LogisticRegression())
policy = active.AuditPolicy(first=10)  # the first audit may begin after ten labels
labeling = active.ProvenLabeling(
    model, X, known, target_error=0.08, strategy=active.MinModelChange(), policy=policy, random_state=1
)
bounds = {}  # the bounds of each audit, with the number of labels
while (question := labeling.next()) is not None:
    labeling.record(question.row, y[question.row])
    if question.phase == "audit":
        state = labeling.state
        bounds.setdefault(state.n_audits, []).append((state.n_labels, state.bound))
labeling.state

# %%
# The proof covers the last classifier on this pool. In this example all labels are known, so we can check it.

errors = np.mean(labeling.model.predict(X) != y)
print(labeling.proof.statement)
print(f"true error rate {errors:.1%}; {len(labeling.labels)} of {len(X)} rows were labeled")

# %%
# An audit that is unlikely to reach the target ends early. Its labels train the next classifier, which is better.

fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for number, seen in bounds.items():
    ax.plot(*np.transpose(seen), color="#0072B2", label="bound of an audit" if number == 1 else None)
    ax.annotate(f"audit {number}", seen[-1], xytext=(-2, -13), textcoords="offset points", ha="right", color="#0072B2")
ax.axhline(0.08, color="#D55E00", linewidth=1, linestyle="--", label="target")
ax.axhline(errors, color="#009E73", linewidth=1, label="true error rate of the last classifier")
ax.set(xlabel="labels", ylabel="error rate on the pool", ylim=(0, 0.8), xlim=(0, len(labeling.labels) + 2))
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()
