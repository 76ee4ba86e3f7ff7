"""Check the bounds of figures 5 and 6 that do not hold on P: the intervals of their weak prior must have missed P.

python benchmarks/weak_prior_misses.py RUN_FOLDER

Each sample is repeated, with its 95 % Clopper-Pearson intervals. A bound that fails although the prior holds would be a
bug, and sets the exit status to 1.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from surefoot.paper.protocol import Settings, Task
from surefoot.paper.samples import Sample
from surefoot.priors import resolve_prior


def prior_holds(task: Task, settings: Settings) -> bool:
    """True if the intervals of the labeled sample contain the label probabilities of P."""
    sample = Sample.draw(task, settings, int(task.variant))
    counts = np.bincount(sample.labeled[1], minlength=2).astype(float)
    low, high = resolve_prior("clopper-pearson").intervals(counts).T
    p = sample.label_probabilities
    return bool(np.all(low <= p) and np.all(p <= high))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    run = parser.parse_args().run
    seed = json.loads((run / "config.json").read_text(encoding="utf-8"))["settings"]["seed"]
    failed, unexplained, missed, samples = 0, 0, 0, 0
    for line in (run / "records.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        task = Task(**record["task"])
        holds = prior_holds(task, Settings(datasets=(task.dataset,), trials=1, seed=seed))
        samples, missed = samples + 1, missed + (not holds)
        for row in record["rows"]:
            if row["bound"] > row["likelihood"] + 1e-6:
                failed += 1
                unexplained += holds or row["method"] != "weak"
    print(f"the weak prior misses P in {missed} of {samples} samples")
    print(f"{failed} bounds fail on P, {unexplained} although the weak prior holds")
    return 1 if unexplained else 0


if __name__ == "__main__":
    raise SystemExit(main())
