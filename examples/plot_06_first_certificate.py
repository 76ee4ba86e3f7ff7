"""
Certify the worst case
======================

Train a linear classifier from 20 labels and 549 unlabeled rows, and bound its worst expected loss.
"""

# %%
# We use the Wisconsin breast cancer data with twenty labels. The hidden labels are used only to check the result.

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
# The decision set contains all distributions with the features of these rows, within a distance of the labeled ones.
# Its radius here is the rule of thumb of the paper, ``radius="auto"``: the largest radius at which the median
# confidence is at least 0.7.

clf = sf.RobustLogisticRegression(radius="auto", metric="euclidean", label_cost=1.0)
clf.fit(X_few, y_few, X_unlabeled=X_rest).certificate_

# %%
# ``risk`` is an upper bound on the expected loss over all distributions in the set. ``lower`` is attained by one of
# these distributions. Separate code checks both after the solver has finished. Because all labels are known in this
# example, we can check the guarantee: the true distribution lies within the radius, and its risk is below the bound.

distance = sf.transport_distance(X_few, y_few, scale(X), y)
true_risk = log_loss(y, clf.predict_proba(scale(X)))
print(f"distance to the truth {distance:.3f}, radius {clf.radius_:.3f}")
print(f"true risk {true_risk:.3f}, certified {clf.certificate_.risk:.3f}")
print(f"accuracy on the hidden labels {clf.score(X_rest, y_rest):.3f}")

ax = CertificateDisplay.from_estimator(clf, X_few, y_few).ax_
ax.axvline(true_risk, color="black", linestyle="--", label="true risk")
ax.legend(frameon=False, ncols=4, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1))
plt.show()

# %%
# The certificate also contains the worst-case distribution. Each point is a row, with the probability that the model
# predicts and the probability in the worst case. They differ away from the diagonal, for rows whose label is cheap to
# change.

WorstCaseDisplay.from_estimator(clf, X_few, X_unlabeled=X_rest)
plt.show()
# sphinx_gallery_thumbnail_number = 2
