"""
Classify texts
==============

The method requires distances between rows. For texts, a scikit-learn pipeline of TF-IDF and SVD provides them.
"""

# %%
# The texts are generated messages to a shop. Complaints and questions have their own words and common words.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import surefoot as sf

rng = np.random.default_rng(0)
COMMON = "the order my a for on it with your shop this that again please thanks".split()
OWN = [
    "broken late refund damaged wrong missing complaint never angry returned scratched unacceptable".split(),
    "when how size colour available delivery price gift open hours stock which".split(),
]


def message(kind):
    own = rng.choice(OWN[kind], size=rng.integers(1, 5))
    stray = rng.choice(OWN[1 - kind], size=rng.integers(0, 2))
    words = np.concatenate([own, stray, rng.choice(COMMON, size=rng.integers(3, 9))])
    return " ".join(rng.permutation(words))


y = (rng.random(800) < 0.4).astype(int)
texts = [message(kind) for kind in y]
print(f"{texts[0]!r}, {texts[1]!r}")

# %%
# The projection uses no labels, so it is fitted to all texts. The model gets thirty labels.

embed = make_pipeline(TfidfVectorizer(), TruncatedSVD(20, random_state=0), StandardScaler())
X = embed.fit_transform(texts)
X /= np.abs(X).max()
few = np.arange(800) < 30
clf = sf.RobustLogisticRegression().fit(X[few], y[few], X_unlabeled=X[~few])
print(f"accuracy on the unlabeled texts: {clf.score(X[~few], y[~few]):.1%}")
sf.error_bound(clf, X[few], y[few], X_unlabeled=X[~few])

# %%
# Which texts should you label next? ``MinModelChange`` chooses texts that change the model much with either label.

from surefoot import active

pool_labels = np.where(few, y, np.nan)
rows = active.MinModelChange().query(X, pool_labels, clf, batch_size=3)
for row in rows:
    print(f"confidence {clf.predict_proba(X[[row]])[0].max():.2f}: {texts[row]!r}")

# %%
# The chosen texts in the first two dimensions:

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.scatter(*X[:, :2].T, c=clf.predict_proba(X)[:, 1], cmap="PuOr", s=10, alpha=0.7)
ax.scatter(*X[few][:, :2].T, facecolors="none", edgecolors="black", s=40, label="labeled")
ax.scatter(*X[rows][:, :2].T, marker="*", color="#D55E00", s=160, label="to label next")
ax.set(xlabel="first dimension", ylabel="second")
ax.legend(frameon=False)
plt.show()
