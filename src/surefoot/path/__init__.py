"""Curves over the radius: a model learned at each radius, and a fixed classifier judged at each."""

from __future__ import annotations

from surefoot.path.along import bound_along
from surefoot.path.curve import WorstCaseCurve, worst_case_curve
from surefoot.path.radii import RadiusPath, radius_path

__all__ = ["RadiusPath", "WorstCaseCurve", "bound_along", "radius_path", "worst_case_curve"]
