"""Which features matter: coefficients per standard deviation, beside those learned against the worst case."""

from __future__ import annotations

import numpy as np

from surefoot._types import FloatArray
from surefoot.pool.model_with_rows import ModelWithRows, Names
from surefoot.pool.summary.contents import Weight

_MOST_SHOWN = 12


def feature_weights(fitted: ModelWithRows, names: Names, worst_coef: FloatArray | None) -> tuple[Weight, ...]:
    """The features of largest weight; of several classes that class which a feature speaks for most.

    worst_coef : (1, d) or (K, d) coefficients learned against the worst case, None where there are none.
    """
    spread = np.vstack([fitted.X, fitted.U]).std(axis=0)
    now = fitted.clf.coef_ * spread
    worst = None if worst_coef is None else worst_coef * spread
    found = []
    size = np.abs(now[0]) if len(now) == 1 else now.max(axis=0)
    for i in np.argsort(-size, kind="stable")[:_MOST_SHOWN].tolist():
        k = int(now[:, i].argmax()) if len(now) > 1 else 0
        sign = 1.0
        if len(now) == 1:
            k, sign = (1, 1.0) if now[0, i] >= 0 else (0, -1.0)
        row = k if len(now) > 1 else 0
        if now[row, i] == 0:
            continue
        other = None if worst is None else float(sign * worst[row, i])
        found.append(Weight(names.features[i], names.classes[k], float(sign * now[row, i]), other))
    return tuple(found)
