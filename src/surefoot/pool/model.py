"""Learning the model of `surefoot fit`: as the library does by default, or at a radius asked for, in a given time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from surefoot.certificates.certificate import Certificate
from surefoot.costs import Learned
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.pool.choices import DEFAULT, Choices
from surefoot.pool.clock import Clock, TimeIsUpError, in_words
from surefoot.pool.learn_pool import Start, about_picked, learn, resolve_prior
from surefoot.pool.notes import Code, Note
from surefoot.pool.table import Pool
from surefoot.unlabeled import Unlabeled

# Unlabeled rows of the quick fit that tells how long the whole one takes, and its gap.
_PILOT_ROWS, _PILOT_TOL = 400, 1e-3
# From this size on (rows × labels × classes) a quick fit comes first.
_LARGE = 2_000_000
# What a default fit may cost per Newton step, in units of rows × classes² × (labels + features), and fewest rows.
_WORK, _FEWEST_ROWS = 20_000_000, 1000
# A fit that takes longer than this is announced; and this share of the time given is for learning.
_SLOW, _SHARE = 20.0, 0.4


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A fitted classifier; `seconds` is what learning took, `sample` the unlabeled rows (positions) that took part.

    sample : None where all did.
    """

    start: Start
    clf: RobustLogisticRegression
    seconds: float
    sample: NDArray[np.intp] | None = None
    notes: list[Note] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return self.sample is None

    @property
    def certificate(self) -> Certificate:
        """Of training: at the radius of training, which need not cover the truth."""
        return self.clf.certificate_

    @property
    def recipe(self) -> RobustLogisticRegression:
        """The same classifier, not fitted."""
        fresh = type(self.clf)(**self.clf.get_params(deep=False))
        fresh.tol = max(fresh.tol, _PILOT_TOL)
        return fresh


def train(start: Start, choices: Choices, clock: Clock) -> TrainedModel:
    """Learn from the labels of a pool, and from as many of its unlabeled rows as size and time allow."""
    most = most_rows(start) if choices.learn_rows is None else choices.learn_rows or len(start.rest)
    sample = drawn(len(start.rest), most, choices.seed)
    pilot, expected, bounded = None, None, False
    if clock.budget is not None or _size(start, len(start.rest) if sample is None else len(sample)) > _LARGE:
        # something is returned in any case: the quick fit may take its time
        quick, few = replace(choices, tol=_PILOT_TOL), drawn(len(start.rest), _PILOT_ROWS, choices.seed)
        pilot = _fit(start, few, quick, Clock(None, clock.say), None)
        n_rows, n_few = (len(start.rest) if at is None else len(at) for at in (sample, few))
        expected = pilot.seconds * max(n_rows / n_few, 1.0)
        if clock.budget is None and expected > _SLOW:
            clock.say(f"this takes about {in_words(expected)}; --time 60 would bound it")
        allowed = _SHARE * clock.budget - clock.passed if clock.budget is not None else float("inf")
        if expected > allowed:
            bounded = True
            sample = drawn(len(start.rest), int(n_few * max(allowed, 0.0) / pilot.seconds), choices.seed)
            if sample is not None and len(sample) <= n_few:
                return _noted(pilot, clock.budget)
    try:
        return _noted(_fit(start, sample, choices, clock, expected), clock.budget if bounded else None)
    except TimeIsUpError:
        if pilot is None:
            raise
        return _noted(pilot, clock.budget)


def most_rows(start: Start) -> int:
    """Unlabeled rows to learn from by default: a Newton step costs about rows × classes² × (labels + features)."""
    return max(int(_WORK / (len(start.pool.classes) ** 2 * (len(start.y) + start.rows.shape[1]))), _FEWEST_ROWS)


def _size(start: Start, n_rows: int) -> int:
    return n_rows * len(start.y) * len(start.pool.classes)


def _noted(found: TrainedModel, seconds: float | None) -> TrainedModel:
    if found.sample is None:
        return found
    note = Note(Code.SAMPLED, n_sampled=len(found.sample), n_rows=len(found.start.rest), seconds=seconds)
    return replace(found, notes=[*found.notes, note])


def _fit(
    start: Start, sample: NDArray[np.intp] | None, choices: Choices, clock: Clock, seconds: float | None
) -> TrainedModel:
    began = time.monotonic()
    some = start if sample is None else replace(start, rest=np.ascontiguousarray(start.rest[sample]))
    with clock.stage(f"learning from {len(some.y)} labels and {len(some.rest)} unlabeled rows", seconds):
        if choices.radius == DEFAULT:
            clf = RobustLogisticRegression(
                label_prior=resolve_prior(choices.prior, start),
                metric=learned_metric(start.pool),
                classes=start.classes,
                tol=choices.tol,
                n_jobs=choices.n_jobs,
            ).fit(some.rows, some.y, some.weights, X_unlabeled=Unlabeled(some.rest))
            notes = about_picked(some)
        else:
            fit = learn(some, choices, error=False)
            clf, notes = fit.clf, fit.notes
    return TrainedModel(start, clf, time.monotonic() - began, sample, notes)


def learned_metric(pool: Pool) -> Learned:
    """The library's metric with the scales that cleaning gave the features, before it divided by the largest entry.

    Columns of 0 and 1 and the directions of texts weigh as much as they vary: standardised, each rare category and each
    faint direction would weigh as much as a column of numbers.
    """
    return Learned(unit=1.0 / float(pool.cleaner.named_steps["scale"].scale_))


def drawn(n: int, most: int, seed: int) -> NDArray[np.intp] | None:
    """Positions of at most so many of n rows, drawn at random, in order; None for all."""
    return None if n <= most else np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


def sampled(start: Start, most: int, seed: int) -> Start:
    """The same labels with at most so many unlabeled rows, drawn at random."""
    at = drawn(len(start.rest), most, seed)
    return start if at is None else replace(start, rest=np.ascontiguousarray(start.rest[at]))
