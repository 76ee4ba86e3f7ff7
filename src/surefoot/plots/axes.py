"""What every display shares: axes that are made when none are given, and colours."""

from __future__ import annotations

from typing import Any

# Okabe and Ito's colours, told apart by readers who do not see all hues
BLUE, ORANGE, GREEN, PINK, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666"


class Display:
    """Axes that are made when none are given."""

    ax_: Any
    figure_: Any

    def _axes(self, ax: Any, size: tuple[float, float]) -> Any:
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError('surefoot.plots needs matplotlib. Run: pip install "surefoot[plots]"') from error
        if ax is None:
            _, ax = plt.subplots(figsize=size, layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        return ax
