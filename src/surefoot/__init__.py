"""surefoot: few labels, many unlabeled rows, a classifier with a certified worst case."""

from surefoot._version import __version__

__all__ = ["__version__"]
