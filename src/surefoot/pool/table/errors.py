"""What a user may get wrong with files: each error names the rule, what was found and the fix."""

from __future__ import annotations

from surefoot._errors import FileError

__all__ = ["FileError", "TableError"]


class TableError(ValueError):
    """A table that cannot be used as it is."""
