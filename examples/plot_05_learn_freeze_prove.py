"""
Active learning until proved
============================

Label the rows that teach most, freeze the classifier, let random rows judge it; go back to learning if they do not
prove it good enough. At the end stands a theorem: at most so many of these rows are wrong.
"""

# %%
# A pool of handwritten digits, eights against nines, with one label of each. An oracle knows the others; it stands for
# a person.

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
# The loop asks for one row at a time. While it learns, a strategy picks them; in an audit they are drawn at random, and
# the audit's bound may be looked at after every label.

model = make_pipeline(StandardScaler(), LogisticRegression())
labeling = active.ProvenLabeling(
    model, X, known, target_error=0.08, first=10, strategy=active.MinModelChange(), random_state=1
)
bounds = {}  # of each audit, over the number of labels asked for
while (question := labeling.next()) is not None:
    labeling.record(question.row, y[question.row])
    if question.phase == "audit":
        state = labeling.state
        bounds.setdefault(state.n_audits, []).append((state.n_labels, state.bound))
labeling.state

# %%
# What is proved, and of which classifier. With all labels at hand it can be seen to hold.

errors = np.mean(labeling.model.predict(X) != y)
print(labeling.proof.statement)
print(f"it errs on {errors:.1%}; {len(labeling.labels)} of {len(X)} rows were labeled")

# %%
# An audit that cannot reach the target any more is given up early: its labels go to learning, and the next audit judges
# a better classifier.

fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for number, seen in bounds.items():
    ax.plot(*np.transpose(seen), color="#0072B2", label="bound of an audit" if number == 1 else None)
    ax.annotate(f"audit {number}", seen[-1], xytext=(-2, -13), textcoords="offset points", ha="right", color="#0072B2")
ax.axhline(0.08, color="#D55E00", linewidth=1, linestyle="--", label="target")
ax.axhline(errors, color="#009E73", linewidth=1, label="the truth about the last classifier")
ax.set(
    xlabel="labels asked for", ylabel="share of errors on the pool", ylim=(0, 0.8), xlim=(0, len(labeling.labels) + 2)
)
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()
