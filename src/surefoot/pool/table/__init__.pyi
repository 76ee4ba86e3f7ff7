from .cells import FileError, TableError
from .cleaning import LargestEntryScaler, make_cleaner
from .columns import Columns, sort_columns
from .pool import Pool, Table, check_learnable, clean, clean_with, read_labeled_table
from .reading import Format, read_content, read_table

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
