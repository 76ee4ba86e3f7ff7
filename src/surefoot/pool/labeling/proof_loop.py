"""Labels until a proof: the loop that learns from a table and audits by turns, and the model that it proves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from surefoot.active.proof import ProvenLabeling
from surefoot.active.strategies import RandomSampling, RobustModelChange
from surefoot.bounds.policy import AuditPolicy, FreezeSchedule
from surefoot.estimators.robust import RobustLogisticRegression
from surefoot.pool.choices import DEFAULT, NONE, WEAK, Choices
from surefoot.pool.model import learned_metric
from surefoot.pool.model_file import ModelFile, save_model, without_pool
from surefoot.pool.store import Log
from surefoot.pool.table import Pool


class RandomFirst(RandomSampling):
    """Rows at random until there are enough labels, then those whose label says most."""

    def __init__(self, random_first: int, seed: int) -> None:
        super().__init__(missing_label=None, random_state=seed)
        self.random_first, self.seed = random_first, seed

    def query(self, X: Any, y: Any, **options: Any) -> Any:  # type: ignore[override]
        labeled = sum(value is not None for value in np.asarray(y, dtype=object))
        if labeled < self.random_first:
            return super().query(X, y, **options)
        return RobustModelChange(random_state=self.seed, missing_label=None).query(X, y, **options)


def proven_labeling(
    pool: Pool, choices: Choices, log: Log, *, target_error: float, level: float, random_first: int
) -> ProvenLabeling:
    """The loop for a pool, resumed where its log is there."""
    own: dict[str, Any] = {"radius": choices.radius}
    if choices.radius == DEFAULT:
        own = {"metric": learned_metric(pool)}
    if choices.prior != WEAK:
        own["label_prior"] = None if choices.prior == NONE else np.array(choices.prior)
    clf = RobustLogisticRegression(tol=choices.tol, classes=pool.classes, n_jobs=choices.n_jobs, **own)
    return ProvenLabeling(
        clf,
        pool.rows,
        None if log.read() else pool.labels,
        target_error=target_error,
        level=level,
        policy=AuditPolicy(FreezeSchedule(max(random_first, 2))),
        strategy=RandomFirst(random_first, choices.seed),
        classes=pool.classes,
        journal=log,
        random_state=choices.seed,
    )


def save_proved(path: Path, pool: Pool, labeling: ProvenLabeling) -> None:
    """Write the model that is proved, with what is proved of it."""
    model, proof = labeling.model, labeling.proof
    if model is None or proof is None:
        raise RuntimeError("only a model that is proved is written")
    # the labels were chosen, so that the certificate of the fit promises nothing: what is proved is all
    summary = {
        "proved_error": proof.value,
        "level": proof.level,
        "labels": proof.n_labels,
        "errors": proof.n_errors,
        "statement": proof.statement,
    }
    steps = [*pool.cleaner.steps, ("classify", without_pool(model))]
    save_model(path, ModelFile(Pipeline(steps), pool.table.label, pool.classes, pool.columns.stored(), summary))
