"""Figure 2: the ball alone, likelihood and largest confidence over the radius, 100 labels."""

from __future__ import annotations

from surefoot.paper.ball_radius import BallOverRadius
from surefoot.paper.panels import PAPER

EXPERIMENT = BallOverRadius("figure2", "Figure 2, the ball alone over its radius", 100, PAPER)
