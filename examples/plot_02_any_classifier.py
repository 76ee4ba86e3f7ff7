"""
Certify any classifier
======================

The adversary sees a classifier only through its losses. So a forest, naive Bayes and a linear model can be compared by
how bad each can be made to look, at every distance from the labeled rows.
"""

# %%
# Three classifiers, trained on 60 labels of the wine data, whose other rows stay unlabeled.

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
# One call gives the worst log loss at many radii, with a certified gap of 1e-6 at each. All three are right on nearly
# all rows; the surer one is of itself, the more it has to lose.

least = sf.minimal_radius(X_few, y_few, X_unlabeled=X_rest)
radii = least + np.linspace(0.001, 0.2, 9)
truth = sf.transport_distance(X_few, y_few, X, y)

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for name, model in models.items():
    model.fit(X_few, y_few)
    curve = sf.radius_curve(model, X_few, y_few, X_unlabeled=X_rest, radii=radii)
    errors = np.mean(model.predict(X_rest) != y_rest)
    ax.plot(curve.radii, curve.risk, "o-", label=f"{name} (errs on {errors:.1%} of the hidden labels)")
ax.axvline(truth, color="#666666", linestyle="--", linewidth=1)
ax.text(truth, 0.97, " the truth", transform=ax.get_xaxis_transform(), color="#666666", va="top")
ax.set(xlabel="radius", ylabel="worst expected log loss", yscale="log")
ax.legend(frameon=False, loc="lower right")
ax.spines[["top", "right"]].set_visible(False)

# %%
# A single radius gives a certificate, here of the share of errors. Its radius is the distance of the truth, known
# because the hidden labels are at hand.

sf.certify(models["forest"], X_few, y_few, X_unlabeled=X_rest, radius=truth, loss="zero_one")
