"""
Active learning until proved
============================

Label the rows that teach most, freeze the classifier, let random rows judge it; go back to learning if they do not
prove it good enough. At the end stands a theorem: at most so many of these rows are wrong.
"""

# %%
# A pool of digits, threes against fives, without any label. An oracle knows them; it stands for a person.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from surefoot import active

X, y = load_digits(return_X_y=True)
X, y = X[np.isin(y, [3, 5])], y[np.isin(y, [3, 5])]

# %%
# The loop asks for one row at a time. While it learns, a strategy picks them; in an audit they are drawn at random.

model = make_pipeline(StandardScaler(), LogisticRegression())
labeling = active.ProvenLabeling(model, X, target_error=0.08, strategy=active.MinModelChange(), random_state=0)
asked = []
while (question := labeling.next()) is not None:
    asked.append(question)
    labeling.record(question.row, y[question.row])
labeling.state

# %%
# What is proved, and of which classifier. With all labels at hand it can be seen to hold.

errors = np.mean(labeling.model.predict(X) != y)
print(labeling.proof.statement)
print(f"it errs on {errors:.1%}; {len(labeling.labels)} of {len(X)} rows were labeled")

# %%
# Labels spent on learning and on proofs, in the order in which they were asked for.

fig, ax = plt.subplots(figsize=(7, 2.2), layout="constrained")
kinds = [question.phase for question in asked]
for kind, colour in (("learn", "#0072B2"), ("audit", "#D55E00")):
    spent = np.flatnonzero([each == kind for each in kinds])
    ax.eventplot(spent, lineoffsets=kind, linelengths=0.7, colors=colour)
ax.set(xlabel="label", title=f"proved: at most {labeling.proof.value:.1%} of {len(X)} rows are wrong")
ax.spines[["top", "right", "left"]].set_visible(False)
plt.show()
