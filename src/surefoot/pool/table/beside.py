"""The files that surefoot keeps beside a table; where the path of the table is a link, beside the file itself."""

from __future__ import annotations

import os
from pathlib import Path

AnyPath = str | os.PathLike[str]


def asked_path(table: AnyPath) -> Path:
    """The journal of the rows that were asked for."""
    return _beside(table, ".asked.jsonl")


def audit_path(table: AnyPath) -> Path:
    """The journal of an audit."""
    return _beside(table, ".audit.jsonl")


def proof_path(table: AnyPath) -> Path:
    """The journal of a proof."""
    return _beside(table, ".proof.jsonl")


def settings_path(table: AnyPath) -> Path:
    """The file with the options of earlier commands."""
    return _beside(table, ".surefoot.toml")


def store_path(table: AnyPath) -> Path:
    """The store of the labeling page."""
    return _beside(table, ".surefoot.db")


def files_of(table: AnyPath) -> list[Path]:
    """A table and all files that may lie beside it: no output of a command may take the place of one."""
    store = store_path(table)
    logs = [store.with_name(f"{store.name}{end}") for end in ("-wal", "-shm")]  # as SQLite names them
    return [
        Path(table),
        asked_path(table),
        audit_path(table),
        proof_path(table),
        settings_path(table),
        store,
        *logs,
    ]


def _beside(table: AnyPath, end: str) -> Path:
    return Path(f"{Path(table).resolve()}{end}")
