"""Figure 1: the ball alone on Wisconsin breast cancer, 20 labels: no confidence long before the true distance."""

from __future__ import annotations

from surefoot.paper.ball_radius import BallOverRadius

EXPERIMENT = BallOverRadius("figure1", "Figure 1, the ball alone on breast cancer", 20, ("breast-cancer",))
