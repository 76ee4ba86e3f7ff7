"""Neural networks: the dual objective as a torch loss, and a classifier on skorch with a certificate.

Requires the extra `torch`: pip install "surefoot[torch]".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from surefoot.nn.dual_loss import DualLoss
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError('surefoot.nn needs PyTorch, which is not installed: pip install "surefoot[torch]"') from error

if TYPE_CHECKING:
    from surefoot.nn.classifier import RobustNetClassifier

__all__ = ["DualLoss", "RobustNetClassifier"]


def __getattr__(name: str) -> Any:
    """Import `RobustNetClassifier` on first use, because `DualLoss` alone does not require skorch."""
    if name != "RobustNetClassifier":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from surefoot.nn.classifier import RobustNetClassifier
    except ModuleNotFoundError as error:
        if error.name != "skorch":
            raise
        raise ImportError(
            'RobustNetClassifier needs skorch, which is not installed: pip install "surefoot[torch]"'
        ) from error
    return RobustNetClassifier
