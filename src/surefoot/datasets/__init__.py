"""The datasets of the paper's experiments, ready to use: `load("abalone")`.

The raw files of the UCI archive are looked for in a folder of your own or in the user's cache, and downloaded into the
cache otherwise. See docs/datasets.md.
"""

from surefoot.datasets._catalogue import standardize
from surefoot.datasets._download import DatasetCorruptError, DatasetNotFoundError
from surefoot.datasets._load import NAMES, load, names, paper_names

__all__ = ["NAMES", "DatasetCorruptError", "DatasetNotFoundError", "load", "names", "paper_names", "standardize"]
