"""
Audit the labels of a language model
====================================

A language model labeled 10,000 messages as complaints or praise, with a confidence for each. How good are the labels,
and is a second, cheaper model worse?
"""

# %%
# The answers here are synthetic: both models err more often where their confidence is low. An audit requires the
# predictions only, no model and no features.

import matplotlib.pyplot as plt
import numpy as np

import surefoot as sf

rng = np.random.default_rng(0)
n = 10_000
truth = np.where(rng.random(n) < 0.1, "complaint", "praise")


def answers(error):
    """Answers that are wrong with about this probability, and their confidence."""
    confidence = 1 - 2 * error * rng.random(n)
    wrong = rng.random(n) < 1 - confidence
    return np.where(wrong, np.where(truth == "praise", "complaint", "praise"), truth), confidence


large, confidence = answers(0.03)
small, _ = answers(0.12)

# %%
# First the error rate. 300 messages are sampled at random, and an annotator reads them without seeing the predictions.

audit = sf.Audit(predictions=large, scores=confidence, n_labels=300, random_state=0)
audit.run(lambda row: truth[row])
audit.bound()

# %%
# The same labels compare both models. All bounds hold together.

audit.compare({"small": small}, name="large")

# %%
# Complaints are rare, so an error rate says little about them. What does it cost to prove their recall? Each predicted
# praise may hide a complaint, so recall is expensive to prove.

n_positive = int(np.sum(large == "complaint"))
targets = [0.5, 0.6, 0.7, 0.8]
sizes = [sf.audit_size(t, 0.02, n, metric="recall", n_positive=n_positive).n_labels for t in targets]
dict(zip(targets, sizes, strict=True))

# %%
# The metric is declared before the first label. Its audit samples predicted complaints and predicted praise separately.

recall = sf.Audit(predictions=large, target={"recall": 0.7}, positive="complaint", n_labels=600, random_state=0)
recall.run(lambda row: truth[row])
recall.bound()

# %%
# The bound approaches the true recall as labels are added. In at least nine of ten audits it stays below.

counts, bounds = [100, 200, 400, 800, 1600], []
for n_labels in counts:
    one = sf.Audit(predictions=large, target={"recall": None}, positive="complaint", n_labels=n_labels, random_state=1)
    bounds.append(one.run(lambda row: truth[row]).bound().value)
fig, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
ax.plot(counts, bounds, "o-", color="#0072B2", label="proved recall, with 90 % confidence")
ax.axhline(np.mean(large[truth == "complaint"] == "complaint"), color="#009E73", linestyle="--", label="true recall")
ax.set(xscale="log", xlabel="labels", ylabel="recall of complaints", ylim=(0, 1.02))
ax.set_xticks(counts, [str(count) for count in counts])
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()
