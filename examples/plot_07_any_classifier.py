"""
Certify any classifier
======================

A certificate uses only the losses of a classifier. This example compares the worst cases of a forest, naive Bayes and
logistic regression at several radii.
"""

# %%
# The three classifiers are trained on 60 labels of the wine data. The remaining rows are unlabeled.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import scale

import surefoot as sf

X, y = load_wine(return_X_y=True)
X = scale(X) / 5
X_few, X_rest, y_few, y_rest = train_test_split(X, y, train_size=60, random_state=0)
models = {
    "forest": RandomForestClassifier(random_state=0),
    "naive Bayes": GaussianNB(),
    "logistic": LogisticRegression(),
}

# %%
# One call computes the worst log loss at all radii, each with a certified gap of 1e-6. All three classifiers are almost
# always correct. The more confident a classifier is, the larger is its worst case.

least = sf.minimal_radius(X_few, y_few, X_unlabeled=X_rest)
radii = least + np.linspace(0.001, 0.2, 9)
truth = sf.transport_distance(X_few, y_few, X, y)

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for name, model in models.items():
    model.fit(X_few, y_few)
    curve = sf.radius_curve(model, X_few, y_few, X_unlabeled=X_rest, radii=radii)
    errors = np.mean(model.predict(X_rest) != y_rest)
    ax.plot(curve.radii, curve.risk, "o-", label=f"{name} (true error rate {errors:.1%})")
ax.axvline(truth, color="#666666", linestyle="--", linewidth=1)
ax.text(truth, 0.97, " true distance", transform=ax.get_xaxis_transform(), color="#666666", va="top")
ax.set(xlabel="radius", ylabel="worst expected log loss", yscale="log")
ax.legend(frameon=False, loc="lower right")
ax.spines[["top", "right"]].set_visible(False)

# %%
# At a single radius, ``certify`` returns a certificate, here for the error rate. The radius is the distance to the true
# distribution, which is known because all labels are.

sf.certify(models["forest"], X_few, y_few, X_unlabeled=X_rest, radius=truth, loss="zero_one")
