"""Draw the idea of the worst-case certificate: `python docs/images/decision_set.py` writes decision-set.svg."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from sklearn.datasets import make_moons

import surefoot as sf

BLUE, ORANGE, GREEN, GREY = "#0b5cad", "#c2570c", "#0f766e", "#9aa3af"


def draw_set(ax: Axes) -> None:
    """A plane of distributions: the labeled sample, the ball around it, and those with the features of all rows."""
    radius, height = 1.0, 0.55
    half = np.sqrt(radius**2 - height**2)
    ax.add_patch(Circle((0, 0), radius, facecolor="#e3eefb", edgecolor=BLUE, linewidth=1.2))
    ax.plot([-1.9, 1.6], [height, height], color=GREY, linewidth=1.2)
    ax.plot([-half, half], [height, height], color=GREEN, linewidth=5, solid_capstyle="round")
    ax.plot([0, 0], [0, height], color="black", linewidth=1, linestyle=":")
    ax.annotate("", (0.74 * radius, -0.673 * radius), (0, 0), arrowprops={"arrowstyle": "->", "color": BLUE})
    ax.plot(0, 0, "o", color=BLUE, markersize=8)
    ax.plot(0.35, height, "*", color="black", markersize=13)
    ax.plot(half, height, "o", color=ORANGE, markersize=9)
    ax.text(-0.08, -0.13, "labeled rows", ha="right", va="center", color=BLUE)
    ax.text(0.44, -0.25, "radius", color=BLUE)
    ax.text(-0.04, 0.24, "minimal\nradius", ha="right", va="center")
    ax.text(-0.78, height + 0.1, "decision set", color=GREEN, weight="bold")
    ax.text(0.35, height + 0.1, "truth", ha="center")
    ax.text(half + 0.07, height + 0.1, "worst case", color=ORANGE)
    ax.text(
        -1.9, height - 0.22, "distributions\nwith the features\nof all rows", color="#5b6470", va="center", fontsize=9
    )
    ax.set(xlim=(-1.95, 1.75), ylim=(-1.1, 1.1), aspect="equal")
    ax.set_title("The certificate bounds the loss\nof every distribution in the decision set")
    ax.axis("off")


def draw_rows(ax: Axes) -> None:
    """Two moons, each row coloured by the probability of class 1 in the worst case that was computed."""
    X, y = make_moons(220, noise=0.08, random_state=0)
    labeled = np.concatenate([np.flatnonzero(y == k)[:4] for k in (0, 1)])
    rest = np.setdiff1d(np.arange(len(y)), labeled)
    radius = sf.transport_distance(X[labeled], y[labeled], X, y)
    clf = sf.RobustLogisticRegression(radius=radius, label_prior=[0.5, 0.5])
    clf.fit(X[labeled], y[labeled], X_unlabeled=X[rest])
    shares = clf.worst_case_.label_proba[len(labeled) :, 1]
    ax.scatter(*X[rest].T, c=shares, cmap="coolwarm", vmin=0, vmax=1, s=16, linewidths=0)
    ax.scatter(*X[labeled].T, c=y[labeled], cmap="coolwarm", vmin=0, vmax=1, s=90, edgecolors="black", zorder=3)
    sides = np.array(ax.get_xlim())
    line = -(clf.coef_[0, 0] * sides + clf.intercept_[0]) / clf.coef_[0, 1]
    ax.plot(sides, line, color="black", linewidth=1)
    ax.set(xticks=[], yticks=[], ylim=(X[:, 1].min() - 0.2, X[:, 1].max() + 0.2))
    ax.set_title("Large: the labeled rows. Small: the worst labels\nthat the other rows can have within the radius")


def main() -> None:
    """Write the figure beside this file."""
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "surefoot", "font.size": 10, "axes.titlesize": 11})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9), layout="constrained")
    draw_set(left)
    draw_rows(right)
    figure.savefig(Path(__file__).with_name("decision-set.svg"), metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
