"""Curves over the radius: a model learned at each radius, and a fixed classifier judged at each."""

from __future__ import annotations

from surefoot.path.along import bound_along
from surefoot.path.curve import RadiusCurve
from surefoot.path.radius import radius_curve

__all__ = ["RadiusCurve", "bound_along", "radius_curve"]
