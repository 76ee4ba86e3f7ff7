"""Tables from files: reading, the convention that empty labels are unlabeled rows, cleaning, writing labels back.

Names are loaded from their modules when they are used: a mistake in a file's name is told without scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surefoot.pool.table.cleaning import LargestEntryScaler, make_cleaner
    from surefoot.pool.table.columns import Columns, sort_columns
    from surefoot.pool.table.errors import FileError, TableError
    from surefoot.pool.table.pool import Pool, Table, check_learnable, clean, clean_with, read_labeled_table
    from surefoot.pool.table.reading import Format, read_content, read_table

_MODULES = {
    "cleaning": ("LargestEntryScaler", "make_cleaner"),
    "columns": ("Columns", "sort_columns"),
    "errors": ("FileError", "TableError"),
    "pool": ("Pool", "Table", "check_learnable", "clean", "clean_with", "read_labeled_table"),
    "reading": ("Format", "read_content", "read_table"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Columns",
    "FileError",
    "Format",
    "LargestEntryScaler",
    "Pool",
    "Table",
    "TableError",
    "check_learnable",
    "clean",
    "clean_with",
    "make_cleaner",
    "read_content",
    "read_labeled_table",
    "read_table",
    "sort_columns",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
