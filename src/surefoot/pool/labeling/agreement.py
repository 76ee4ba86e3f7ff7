"""How far people agree: percent, Cohen's κ of two, Fleiss' κ of more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from surefoot._types import FloatArray
from surefoot.pool.labeling.book import Book
from surefoot.pool.labeling.events import LABEL


@dataclass(frozen=True)
class Agreement:
    """Agreement of people on rows that two or more of them labeled.

    n_rows : rows that were compared; share : of all pairs of answers, how many are alike.
    kappa : 1 for full agreement, 0 for that of chance; None where chance alone would agree always, or nothing was
        compared; name : "Cohen" for two people, "Fleiss" for more.
    """

    n_rows: int
    share: float | None
    kappa: float | None
    name: str


def agreement(answers: Sequence[Mapping[int, str]], classes: Sequence[str]) -> Agreement:
    """Agreement on rows, each a mapping from person to label."""
    shared = [row for row in answers if len(row) >= 2]
    people = sorted({person for row in shared for person in row})
    name = "Cohen" if len(people) <= 2 else "Fleiss"
    if not shared:
        return Agreement(0, None, None, name)
    pairs = [a == b for row in shared for a, b in combinations(row.values(), 2)]
    if len(people) == 2:
        first, second = ([row[person] for row in shared] for person in people)
        kappa = cohen_kappa(first, second, classes)
    else:
        counts = np.array([[list(row.values()).count(name) for name in classes] for row in shared], dtype=np.float64)
        kappa = fleiss_kappa(counts)
    return Agreement(len(shared), float(np.mean(pairs)), kappa, name)


def agreement_in(book: Book) -> Agreement:
    """Agreement on the rows of a book."""
    answers = [
        {who: str(event.value) for who, event in state.answers.items() if event.kind == LABEL}
        for state in book.rows.values()
        if len(state.answers) > 1
    ]
    return agreement(answers, book.classes)


def cohen_kappa(first: Sequence[str], second: Sequence[str], classes: Sequence[str]) -> float | None:
    """Cohen's κ of two people who labeled the same rows."""
    from sklearn.metrics import cohen_kappa_score

    if len(set(first) | set(second)) == 1:
        return None  # 0 / 0: one class alone
    return float(cohen_kappa_score(first, second, labels=list(classes)))


def fleiss_kappa(counts: FloatArray) -> float | None:
    """Fleiss' κ of counts (rows, classes): how many people gave each row each label.

    Rows may have different numbers of answers, two or more: their agreement is averaged, and chance is that of all
    answers together.
    """
    answers = counts.sum(axis=1)
    alike = (counts * (counts - 1)).sum(axis=1) / (answers * (answers - 1))
    chance = float(((counts.sum(axis=0) / counts.sum()) ** 2).sum())
    return None if chance >= 1.0 else float((alike.mean() - chance) / (1.0 - chance))
