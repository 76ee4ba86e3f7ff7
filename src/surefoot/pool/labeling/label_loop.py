"""Labels one at a time until a certified risk is small enough: at random at first, then where they say most."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from surefoot.losses import LOG_LOSS, ZERO_ONE
from surefoot.pool.choices import Choices
from surefoot.pool.labeling.events import LEARN, RANDOM
from surefoot.pool.labeling.terminal import Sitting
from surefoot.pool.learn_pool import Fit, Start, learn, says_little
from surefoot.pool.next_rows import candidates, working_rows
from surefoot.pool.table import Pool


@dataclass
class LabelLoop:
    """Learns from the labels of a sitting and chooses rows among at most `most` unlabeled ones (0 for all).

    loss, target : when to stop, at a certified log loss or share of errors; None to go on.
    keep : rows that take part; fit : with all labels so far, None before there are enough; risks : of all fits.
    """

    pool: Pool
    choices: Choices
    sitting: Sitting
    loss: str
    target: float | None
    random_first: int
    most: int
    fit: Fit | None = None
    risks: list[float] = field(default_factory=list)
    keep: NDArray[np.intp] = field(init=False)

    def __post_init__(self) -> None:
        self.keep = working_rows(self.pool, self.most, self.choices.seed)

    @property
    def n_labels(self) -> int:
        return int(self.pool.labeled.sum())

    @property
    def n_random(self) -> int:
        return int((self.pool.labeled & ~self.sitting.picked()).sum())

    @property
    def n_seen(self) -> int:
        """Classes that labels show."""
        return len({label for label in self.pool.labels if label is not None})

    @property
    def reached(self) -> bool:
        """Whether the certified risk is at most the target."""
        return self.target is not None and self.fit is not None and self.risks[-1] <= self.target

    def refit(self) -> None:
        """Learn from all labels so far and certify; there is no fit before there are enough random ones."""
        self.fit, self.sitting.news = None, False
        if self.n_random < self.random_first or self.n_seen < 2 or self.pool.labeled[self.keep].all():
            return
        start = Start.of(self.pool.subset(self.keep), self.sitting.picked()[self.keep], nearest=True)
        self.fit = learn(start, self.choices, error=self.loss == ZERO_ONE)
        self.risks.append(float(self.fit.certificate.risk if self.loss == LOG_LOSS else self.fit.error or 0.0))

    def choose(self) -> tuple[int, str | None] | None:
        """The next row, claimed from other processes, and why, None if it was drawn at random.

        There is none if no row is left, or if other processes have news for the next fit.
        """
        while True:
            self.sitting.catch_up()
            open_rows = self.keep[~self.pool.labeled[self.keep]]
            free = np.array([self.sitting.is_free(row) for row in open_rows.tolist()], dtype=bool)
            if self.sitting.news or not free.any():
                return None
            if self.fit is None or self.n_random < self.random_first:
                rng = np.random.default_rng([self.choices.seed, self.sitting.n_picks])
                row, reason, purpose = int(rng.choice(open_rows[free])), None, RANDOM
            else:
                ranked = candidates(self._chooser(self.fit), 1 + int((~free).sum()), self.choices.seed)
                best = next(one for one in ranked if free[one.position])
                row, reason, purpose = int(open_rows[best.position]), best.reason, LEARN
            if self.sitting.claim(row, purpose):
                return row, reason

    def _chooser(self, fit: Fit) -> Fit:
        """The classifier that chooses rows: a constant one has no opinion; one of a smaller radius takes its place."""
        certificate = fit.certificate
        if not says_little(certificate):
            return fit
        smaller = certificate.minimal_radius + (certificate.radius - certificate.minimal_radius) / 16
        return learn(fit.start, replace(self.choices, radius=smaller), error=False)
