"""Points of the dual problem."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot._types import FloatArray


@dataclass(frozen=True)
class DualPoint:
    """A point (θ, α, β, λ): theta (K−1, p) against class 0 (or (0, 0) for fixed losses), beta (n,), lam (K,) net."""

    theta: FloatArray
    alpha: float
    lam: FloatArray
    beta: FloatArray
