"""Plots in the manner of scikit-learn's displays: `from_…` computes, `plot` draws, `ax_` and `figure_` are kept.

Needs matplotlib: `pip install "surefoot[plots]"`.
"""

from surefoot.plots.displays import CertificateDisplay, RadiusCurveDisplay, WorstCaseDisplay

__all__ = ["CertificateDisplay", "RadiusCurveDisplay", "WorstCaseDisplay"]
