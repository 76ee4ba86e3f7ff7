"""
A first certificate
===================

Twenty labels, 549 rows without one: a linear classifier whose worst case is bounded, and what the bound is made of.
"""

# %%
# The Wisconsin breast cancer data, with the labels of twenty rows. The others are hidden, and looked at last.

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale

import surefoot as sf
from surefoot.plots import CertificateDisplay, WorstCaseDisplay

X, y = load_breast_cancer(return_X_y=True)
X_few, X_rest, y_few, y_rest = train_test_split(scale(X), y, train_size=20, random_state=0)

# %%
# The unlabeled rows say where the data lies: the adversary may choose labels, but no other features. ``radius="auto"``
# is the largest radius at which the model still knows something.

clf = sf.RobustLogisticRegression(radius="auto", metric="euclidean", label_cost=1.0)
clf.fit(X_few, y_few, X_unlabeled=X_rest).certificate_

# %%
# ``risk`` is an upper bound on the expected loss over every distribution in the set; ``lower`` is forced by one of
# them. Both are recomputed by code that is not the solver's. With all labels at hand the guarantee can be seen to hold:
# the truth lies within the radius, and its risk below the bound.

distance = sf.transport_distance(X_few, y_few, scale(X), y)
true_risk = log_loss(y, clf.predict_proba(scale(X)))
print(f"distance to the truth {distance:.3f}, radius {clf.radius_:.3f}")
print(f"true risk {true_risk:.3f}, certified {clf.certificate_.risk:.3f}")
print(f"accuracy on the hidden labels {clf.score(X_rest, y_rest):.3f}")

ax = CertificateDisplay.from_estimator(clf, X_few, y_few).ax_
ax.axvline(true_risk, color="black", linestyle="--", label="the truth")
ax.legend(frameon=False, ncols=4, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1))
plt.show()

# %%
# The adversary is not only a number. Each point is a row: what the model says of it, and what the adversary would have
# it be. Off the diagonal they disagree; the adversary does so where turning a label costs it little.

WorstCaseDisplay.from_estimator(clf, X_few, X_unlabeled=X_rest)
plt.show()
# sphinx_gallery_thumbnail_number = 2
