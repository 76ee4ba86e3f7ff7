"""The demonstration: `surefoot demo` certifies a classifier learned from 20 labels, and draws it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from surefoot._files import OutputFile, whole_file
from surefoot._validation import FloatArray, SeparableWarning
from surefoot.certificates.certificate import Certificate
from surefoot.certificates.radius import minimal_radius, transport_distance
from surefoot.estimators.ball import WassersteinLogisticRegression
from surefoot.estimators.curves import RadiusCurve, radius_curve
from surefoot.estimators.robust import RobustLogisticRegression

N_LABELS = 20
# Figure: radii per curve, and how far to the right it goes, as a multiple of the distance to the truth.
N_RADII, REACH = 14, 1.6
# Okabe and Ito's colours: told apart by colour-blind readers too; the markers differ as well.
STYLES = {"strong": ("#0072B2", "o"), "weak": ("#E69F00", "s"), "ball": ("#555555", "^")}
TRUTH = "#D55E00"
NAMES = {"strong": "robust, strong prior", "weak": "robust, weak prior", "ball": "ball alone"}
FORMATS = (".pdf", ".png", ".svg")
# In the metadata of the figure: by it the command line knows what it may overwrite.
MADE_BY = "surefoot demo"

Classifier = RobustLogisticRegression | WassersteinLogisticRegression


@dataclass(frozen=True)
class DemoData:
    """All rows X (N, d) with their labels y (N,), and which rows the learner sees labeled, which unlabeled."""

    X: FloatArray
    y: Any
    names: list[str]
    labeled: Any
    unlabeled: Any

    @classmethod
    def breast_cancer(cls, seed: int) -> DemoData:
        """The Wisconsin data, standardised and then divided by the largest absolute entry, as in the paper."""
        data = load_breast_cancer()
        X = StandardScaler().fit_transform(data.data)
        order = np.random.default_rng(seed).permutation(len(X))
        names = [str(name) for name in data.target_names]
        return cls(X / np.abs(X).max(), data.target, names, order[:N_LABELS], order[N_LABELS:])

    @property
    def label_probabilities(self) -> FloatArray:
        return np.bincount(self.y) / len(self.y)

    def radius(self) -> float:
        """Transport distance from the labeled rows to the whole dataset: a set of this radius contains the truth."""
        return transport_distance(self.X[self.labeled], self.y[self.labeled], self.X, self.y)

    def priors(self) -> dict[str, Any]:
        return {"strong": self.label_probabilities, "weak": "clopper-pearson"}

    def fit_robust(self, radius: float | str, prior: Any) -> RobustLogisticRegression:
        model = RobustLogisticRegression(radius, prior)
        return model.fit(self.X[self.labeled], self.y[self.labeled], X_unlabeled=self.X[self.unlabeled])

    def curve(self, model: Classifier, radii: FloatArray) -> RadiusCurve:
        """The model learned at each radius."""
        rows = None if isinstance(model, WassersteinLogisticRegression) else self.X[self.unlabeled]
        return radius_curve(model, self.X[self.labeled], self.y[self.labeled], X_unlabeled=rows, radii=radii)

    def fit_ball(self, radius: float) -> WassersteinLogisticRegression:
        return WassersteinLogisticRegression(radius=radius).fit(self.X[self.labeled], self.y[self.labeled])

    def minimal_radius(self, prior: Any) -> float:
        return minimal_radius(
            self.X[self.labeled], self.y[self.labeled], X_unlabeled=self.X[self.unlabeled], label_prior=prior
        )


@dataclass(frozen=True)
class Outcome:
    """What a fitted classifier guarantees, and how it does on all rows with their true labels."""

    certificate: Certificate
    true_risk: float
    accuracy: float
    confidence: float

    @classmethod
    def from_model(cls, model: Classifier, task: DemoData) -> Outcome:
        true_risk = -model.predict_log_proba(task.X)[np.arange(len(task.y)), task.y].mean()
        confidence = np.median(model.predict_proba(task.X).max(axis=1))
        return cls(model.certificate_, float(true_risk), float(model.score(task.X, task.y)), float(confidence))

    def covers(self, task: DemoData, true_radius: float) -> bool:
        """Whether the decision set contains the distribution of all rows with their true labels."""
        lo, hi = self.certificate.label_intervals.T
        p = task.label_probabilities
        inside = bool(np.all((p >= lo - 1e-9) & (p <= hi + 1e-9)))
        return inside and self.certificate.radius >= true_radius * (1.0 - 1e-9)


def table(rows: dict[str, Outcome], task: DemoData, true_radius: float) -> list[str]:
    """Aligned lines: one per classifier, under a heading of two lines."""
    form = "{:<22}{:>8}{:>11}{:>9}{:>13}{:>13}{:>10}{:>11}"
    lines = [
        form.format("", "", "certified", "true", "certified", "true", "", "truth in"),
        form.format("", "radius", "risk", "risk", "likelihood", "likelihood", "accuracy", "the set?"),
    ]
    for name, row in rows.items():
        numbers = [row.certificate.radius, row.certificate.risk, row.true_risk]
        likelihoods = [row.certificate.likelihood, np.exp(-row.true_risk)]
        cells = [f"{x:.4f}" for x in numbers] + [f"{x:.3f}" for x in likelihoods]
        lines.append(form.format(name, *cells, f"{row.accuracy:.1%}", "yes" if row.covers(task, true_radius) else "no"))
    return lines


def report(rows: dict[str, Outcome], task: DemoData, true_radius: float) -> str:
    """The demonstration in words."""
    counts = np.bincount(task.y[task.labeled], minlength=len(task.names))
    shown = ", ".join(f"{count} {name}" for count, name in zip(counts, task.names, strict=True))
    lines = [
        f"Wisconsin breast cancer data: {len(task.X)} rows, {task.X.shape[1]} features.",
        f"Labels shown: {N_LABELS} ({shown}); the other {len(task.unlabeled)} rows are unlabeled.",
        f"Distance from the labeled rows to the whole dataset: {true_radius:.4f}. A set of this radius contains the",
        "truth if its label intervals do: the true risk is then at most the certified risk.",
        "",
        *table(rows, task, true_radius),
        "",
        "Risk is the expected log loss; likelihood is exp(-risk), 0.5 for a coin. True risk, true likelihood and",
        f"accuracy are those on all {len(task.X)} rows, with the labels that were hidden.",
        "Strong prior: the true label probabilities. Weak prior: Clopper-Pearson intervals from the 20 labels.",
        'radius="auto" (weak prior) looks at no hidden label: it is the largest radius with median confidence 0.7.',
        "Where the truth is not in the set, the certificate guarantees nothing about it.",
    ]
    if rows["ball alone"].confidence < 0.5 + 1e-6:
        lines.append("At this radius the best answer for the ball alone is probability 1/2 for every row: a coin.")
    return "\n".join([*lines, "", "The first row in full:", repr(rows["robust, strong prior"].certificate)])


def curves(task: DemoData, true_radius: float) -> dict[str, RadiusCurve]:
    """One curve per method: the robust ones from their minimal radius up, the ball from zero."""
    end = REACH * true_radius
    found = {}
    for key, prior in task.priors().items():
        least = task.minimal_radius(prior)
        # radii that lie closer together near the minimal one, where the curves are steep
        radii = least + max(end - least, 0.2 * least) * np.linspace(0.0, 1.0, N_RADII) ** 2
        found[key] = task.curve(RobustLogisticRegression(label_prior=prior), radii)
    found["ball"] = task.curve(WassersteinLogisticRegression(), end * np.linspace(0.0, 1.0, 2 * N_RADII) ** 2)
    return found


def draw(found: dict[str, RadiusCurve], X: FloatArray, true_radius: float, path: Path) -> None:
    """Write the figure: certified likelihood and median confidence over the rows X (N, d), against the radius."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.7), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, title in zip(panels, ("guaranteed", "learned"), strict=True):
        axes.axvspan(-1.0, true_radius, color="0.94", zorder=0)
        axes.axvline(true_radius, color=TRUTH, linewidth=1.5, linestyle="--", zorder=1)
        axes.axhline(0.5, color="0.6", linewidth=1, linestyle=":", zorder=1)
        for key, curve in reversed(found.items()):  # the ball first, below the others
            colour, marker = STYLES[key]
            values = curve.likelihood if title == "guaranteed" else _confidence(curve, X)
            axes.plot(curve.radii, values, color=colour, marker=marker, markersize=4, label=NAMES[key])
        axes.set_title(f"What is {title}", fontsize=11)
        axes.set_xlabel("radius of the decision set")
        axes.set_ylabel("certified likelihood" if title == "guaranteed" else "median confidence over all rows")
        axes.set_xlim(-0.03 * true_radius, REACH * true_radius * 1.02)
        axes.set_ylim(0.45, 1.02)
        axes.tick_params(labelleft=True)
        axes.spines[["top", "right"]].set_visible(False)
    note = {"va": "top", "fontsize": 9}
    panels[0].text(1.03 * true_radius, 0.99, "distance to\nthe whole dataset", color=TRUTH, **note)
    panels[0].text(0.4 * true_radius, 0.99, "too small to\ncontain the truth", color="0.35", ha="center", **note)
    panels[0].text(0.0, 0.485, "a coin", color="0.35", **note)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], frameon=False, ncols=3, loc="outside lower center")
    figure.suptitle(f"Wisconsin breast cancer data, {N_LABELS} labels", fontsize=12)
    ending = path.suffix.lower()[1:]
    with whole_file(path) as part:
        figure.savefig(part, dpi=150, format=ending, metadata={"Software" if ending == "png" else "Creator": MADE_BY})


def _confidence(curve: RadiusCurve, X: FloatArray) -> FloatArray:
    """Median over the rows of the larger class probability of the model at each radius (m,)."""
    scores = X @ curve.coef[:, 0].T + curve.intercept[:, 0]  # type: ignore[index]  # a curve of learned models
    return np.asarray(np.median(expit(np.abs(scores)), axis=0))


@dataclass(frozen=True)
class Demonstration:
    """The demonstration: what each classifier guaranteed and did, and the distance to the truth."""

    task: DemoData
    true_radius: float
    outcomes: dict[str, Outcome]

    @classmethod
    def from_seed(cls, seed: int) -> Demonstration:
        task = DemoData.breast_cancer(seed)
        true_radius, priors = task.radius(), task.priors()
        models: dict[str, Classifier] = {
            NAMES["strong"]: task.fit_robust(true_radius, priors["strong"]),
            NAMES["weak"]: task.fit_robust(true_radius, priors["weak"]),
            NAMES["ball"]: task.fit_ball(true_radius),
            'robust, radius="auto"': task.fit_robust("auto", priors["weak"]),
        }
        return cls(task, true_radius, {name: Outcome.from_model(model, task) for name, model in models.items()})

    @property
    def report(self) -> str:
        return report(self.outcomes, self.task, self.true_radius)

    @property
    def data(self) -> dict[str, Any]:
        """The table for a program."""
        return {
            "true_radius": self.true_radius,
            "classifiers": {
                name: {
                    "radius": row.certificate.radius,
                    "certified_risk": row.certificate.risk,
                    "true_risk": row.true_risk,
                    "accuracy": row.accuracy,
                    "truth_in_the_set": row.covers(self.task, self.true_radius),
                }
                for name, row in self.outcomes.items()
            },
        }

    def draw(self, path: Path) -> None:
        with warnings.catch_warnings():
            # at the smallest radii of a curve coefficients may grow without bound; the certificates hold all the same
            warnings.simplefilter("ignore", SeparableWarning)
            found = curves(self.task, self.true_radius)
        draw(found, self.task.X, self.true_radius, path)


def figure_file(path: Path) -> OutputFile:
    """The figure, which replaces an older one of its own only."""
    return OutputFile(path, "figure", "--out", lambda file: MADE_BY.encode() in file.read_bytes())
