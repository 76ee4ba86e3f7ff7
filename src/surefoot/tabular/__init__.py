"""Tables from files: reading, the convention that empty labels are unlabeled rows, cleaning, writing labels back."""

from surefoot.tabular.cleaning import LargestEntryScaler, make_cleaner
from surefoot.tabular.columns import Columns, sort_columns
from surefoot.tabular.errors import FileError, TableError
from surefoot.tabular.pool import Pool, Table, check_learnable, clean, clean_with, read_labeled_table
from surefoot.tabular.reading import Format, read_content, read_table

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
