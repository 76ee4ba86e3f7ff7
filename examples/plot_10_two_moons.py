"""
Train a neural network
======================

A network can be trained against the same worst case as the linear model, and gets the same kind of certificate.
"""

# %%
# The two moons have 520 rows, 20 of them with a label.

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.colors import ListedColormap
from sklearn.datasets import make_moons

import surefoot as sf
from surefoot.nn import RobustNetClassifier

X, y = make_moons(520, noise=0.1, random_state=0)
X = (X - X.mean(axis=0)) / X.std(axis=0)
X_few, y_few, X_rest = X[:20], y[:20], X[20:]
radius = sf.transport_distance(X_few, y_few, X, y)  # known here, because all labels are known
known = np.bincount(y) / len(y)

# %%
# The network requires a seed and a learning rate. All other parameters have the same meaning as for the linear model.

torch.manual_seed(0)
layers = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
net = RobustNetClassifier(layers, radius=radius, label_prior=known, max_epochs=15, lr=0.02)
net.fit(X_few, y_few, X_unlabeled=X_rest)
linear = sf.RobustLogisticRegression(radius=radius, label_prior=known, metric="euclidean", label_cost=1.0)
linear.fit(X_few, y_few, X_unlabeled=X_rest)

# %%
# Each certificate is exact for its classifier. Another network could have a smaller worst case.

fig, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", sharey=True)
grid = np.stack(np.meshgrid(np.linspace(-2.2, 2.2, 120), np.linspace(-2.2, 2.2, 120)), axis=-1)
for ax, name, model in zip(axes, ("linear", "network"), (linear, net), strict=True):
    shown = model.predict_proba(grid.reshape(-1, 2).astype(np.float32))[:, 1].reshape(120, 120)
    ax.contourf(*np.moveaxis(grid, -1, 0), shown, levels=np.linspace(0, 1, 11), cmap="PuOr", alpha=0.6)
    ax.scatter(*X_rest.T, s=3, color="#666666")
    ax.scatter(*X_few.T, c=y_few, s=45, edgecolors="black", cmap=ListedColormap(["#b35806", "#542788"]))
    certificate = model.certificate_
    ax.set_title(
        f"{name}: accuracy {np.mean(model.predict(X) == y):.1%}, certified likelihood {certificate.likelihood:.2f}",
        fontsize="medium",
    )
    ax.set_aspect("equal")
plt.show()
