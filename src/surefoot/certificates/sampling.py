"""How far a mean over fresh rows can fall short of the expectation: the paper's ε(N_u), one-sided, at a level."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.stats import norm

from surefoot._types import FloatArray

NORMAL: Literal["normal"] = "normal"
BERNSTEIN: Literal["bernstein"] = "bernstein"

# sup_x |P(S ≤ x) − Φ(x)| ≤ C E|X|³ / (σ³ √m) for means of m i.i.d. variables (Shevtsova, 2011)
BERRY_ESSEEN = 0.4748


def normal_term(values: FloatArray, level: float) -> float:
    """One-sided normal bound with the Berry–Esseen correction: z σ/√m with Φ(−z) + C ρ/(σ³ √m) = 1 − level.

    σ and ρ = E|φ − Eφ|³ are those of the sample, so the level is met up to their own error. Infinite where the
    correction alone exceeds 1 − level: then m rows are too few for the normal law to promise anything at this level.

    Parameters
    ----------
    values : (m,) φ at fresh rows.
    """
    m = len(values)
    if m < 2:
        return np.inf
    centred = values - values.mean()
    sigma = float(np.sqrt(centred @ centred / (m - 1)))
    third = float(np.mean(np.abs(centred) ** 3))
    # ρ ≥ σ³ for every distribution (Lyapunov): equal values do not make few rows enough
    skewness = third / sigma**3 if sigma > 0 else 1.0
    left = (1.0 - level) - BERRY_ESSEEN * skewness / np.sqrt(m)
    return float(norm.isf(left)) * sigma / np.sqrt(m) if left > 0 else np.inf


def bernstein_term(values: FloatArray, level: float, low: float, high: float) -> float:
    """Empirical Bernstein bound (Maurer and Pontil, 2009, theorem 4) for φ in [low, high], at any m ≥ 2.

    √(2 V log(2/δ)/m) + 7 (high − low) log(2/δ) / (3 (m − 1)), V the sample variance, δ = 1 − level. No moment is
    assumed: the level holds for every distribution on the interval.
    """
    m = len(values)
    if m < 2:
        return np.inf
    log = np.log(2.0 / (1.0 - level))
    variance = float(np.var(values, ddof=1))
    return float(np.sqrt(2.0 * variance * log / m) + 7.0 * (high - low) * log / (3.0 * (m - 1)))
