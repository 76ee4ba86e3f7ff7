"""
Choose the radius
=================

If the radius is too small, the true distribution may lie outside the decision set. If it is too large, the bound is
weak. This example compares two rules that choose it from the labels.
"""

# %%
# We use forty labels. The curve starts at the minimal radius. Below it no distribution has the features of all rows.

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale

import surefoot as sf

X, y = load_breast_cancer(return_X_y=True)
X = scale(X) / 5
X_few, X_rest, y_few, y_rest = train_test_split(X, y, train_size=40, random_state=0)
clf = sf.RobustLogisticRegression(radius="auto", metric="euclidean", label_cost=1.0)
path = sf.radius_curve(clf, X_few, y_few, X_unlabeled=X_rest, n_radii=12, X_test=X_rest, y_test=y_rest)
path

# %%
# The paper's rule of thumb, ``"auto"``, is the largest radius at which the median confidence is at least 0.7.
# Calibration splits the labels into random halves and measures their distance. Neither rule uses the hidden labels. By
# default, calibration learns a metric from the labels. Here both radii have to be in the metric of the curve.

auto = clf.fit(X_few, y_few, X_unlabeled=X_rest).radius_
estimate = sf.calibrate_radius(X_few, y_few, X_unlabeled=X_rest, metric="euclidean", label_cost=1.0)
estimate

# %%
# Here both radii cover the truth. The calibrated radius is nearer, so its bound is better. On benchmark datasets the
# calibrated radius covered the truth in 96 % of the samples of 20 or 50 labels, at a nominal level of 90 %. This is a
# measurement, not a theorem.

truth = sf.transport_distance(X_few, y_few, X, y)
ax = path.plot().ax_
for name, radius, colour in [
    ("auto", auto, "#0072B2"),
    ("true distance", truth, "#666666"),
    ("calibrated", estimate.radius, "#D55E00"),
]:
    ax.axvline(radius - path.minimal_radius, color=colour, linestyle="--", linewidth=1, label=f"{name}: {radius:.3f}")
ax.legend(frameon=False, fontsize="small")
plt.show()
