"""What a user may get wrong with files: each error names the rule, what was found and the fix."""

from __future__ import annotations


class TableError(ValueError):
    """A table that cannot be used as it is."""


class FileError(ValueError):
    """A file that cannot be read or written."""
