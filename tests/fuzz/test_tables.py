"""Tables with odd bytes through fit, label, fit: every cell but the labeled one stays, and the file can still be read.

What a cell holds is judged by Python's csv module, on the bytes that are there.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from serve.services import store_of
from surefoot.cli import run
from surefoot.pool import database as e
from surefoot.pool.database import Event
from surefoot.pool.store import store_path
from surefoot.pool.store_labels import stored_book, write_table
from surefoot.pool.table import FileError, Format, TableError, read_labeled_table
from surefoot.pool.table.editing import label_writer

CLASSES = ["no", "yes", 'may "be"', "a,b", "c;d", "two\nlines"]
ODD = ['"', '""', ",", ";", "\t", "\r", "\n", "\r\n", "\x00", "\x1b[2J", "\ufeff", "\u2028", "é", "日本", " ", "NA"]
ENCODINGS = ["utf-8", "utf-8", "utf-8", "latin-1", "utf-16", "cp1252"]


def odd_text(rng: Random) -> str:
    if rng.random() < 0.01:
        return "long " * 30_000
    return "".join(rng.choice(ODD) if rng.random() < 0.4 else rng.choice("abc123") for _ in range(rng.randrange(6)))


def written(rng: Random, cell: str, delimiter: str) -> str:
    """A cell as one program or another writes it: in quotes where it must be, or where it likes."""
    if any(mark in cell for mark in (delimiter, '"', "\r", "\n")) or rng.random() < 0.2:
        return '"' + cell.replace('"', '""') + '"'
    return cell


def make_table(rng: Random) -> tuple[bytes, Format]:
    """The bytes of a table with a column 'y' of labels, some of them empty; some tables are not as they should be."""
    delimiter, encoding = rng.choice(",,,;\t|"), rng.choice(ENCODINGS)
    others = rng.randrange(1, 4)
    heads = ["x", "y", *[f"column {odd_text(rng)}{n}" for n in range(others)]]
    if rng.random() < 0.05:
        heads[-1] = heads[0]
    rng.shuffle(heads)
    at, number = heads.index("y"), heads.index("x")
    empty_column = rng.random() < 0.2
    rows = []
    for n in range(rng.randrange(12, 30)):
        cells = ["" if empty_column else odd_text(rng) for _ in heads]
        cells[number] = str(rng.random() * 10)
        cells[at] = rng.choice(CLASSES[:2]) if n < 6 else rng.choice(["", "", rng.choice(CLASSES)])
        rows.append(cells)
    rows[0][at], rows[1][at] = CLASSES[:2]
    ending = rng.choice(["\n", "\n", "\r\n", "\r"])
    blank = [ending if rng.random() < 0.05 else "" for _ in range(len(rows) + 1)]
    lines = [delimiter.join(written(rng, cell, delimiter) for cell in cells) for cells in [heads, *rows]]
    text = ending.join(space + line for space, line in zip(blank, lines, strict=True))
    text += rng.choice(["", ending, ending * 3])
    if encoding == "utf-8" and rng.random() < 0.3:
        text = "\ufeff" + text
    content = text.encode(encoding, "replace")
    if rng.random() < 0.2:  # a byte that does not belong there
        place = rng.randrange(len(content))
        content = content[:place] + rng.choice([b'"', b"\r", b"\n", b"\xff", b"\x00", b""]) + content[place + 1 :]
    return content, Format(delimiter, encoding)


def cells_of(content: bytes, how: Format) -> list[list[str]]:
    limit = csv.field_size_limit(10**9)
    try:
        text = content.decode(how.encoding).removeprefix("\ufeff")
        return [record for record in csv.reader(io.StringIO(text, newline=""), delimiter=how.delimiter) if record]
    finally:
        csv.field_size_limit(limit)


def header_at(records: list[list[str]]) -> int:
    """The number of the header: a stray line end in it makes its first part a title, which is skipped."""
    return next(at for at, record in enumerate(records[:6]) if "y" in [name.strip() for name in record])


def check_one_table(folder: Path, rng: Random) -> bool:
    """Write labels into a table; whether it could be read at all."""
    path = folder / "t.csv"
    content, how = make_table(rng)
    path.write_bytes(content)
    try:
        table = read_labeled_table(path, "y", how=how)
        writer = label_writer(table, content)
    except (FileError, TableError):
        assert path.read_bytes() == content
        return False
    expected = cells_of(content, how)
    head = header_at(expected)
    at = [name.strip() for name in expected[head]].index("y")
    assert len(expected) == head + 1 + len(table.labels)
    for _ in range(4):
        row, label = rng.randrange(len(table.labels)), rng.choice([*table.classes, None])
        writer.write({row: label})
        expected[head + row + 1][at] = label or ""
        assert cells_of(path.read_bytes(), how) == expected
        table = read_labeled_table(path, "y", how=how, classes=table.classes)
        assert table.labels[row] == label
        writer = label_writer(table, path.read_bytes())
    with store_of(table) as store:
        ada = store.person("ada").id
        store.append([Event(e.PICK, row, ada, purpose=e.LEARN)])
        assert stored_book(table).picked() == {row}
        if table.classes:
            store.append([Event(e.LABEL, row, ada, table.classes[0], e.LEARN)])
            write_table(store, table, path.read_bytes(), lambda _: table)
            expected[head + row + 1][at] = table.classes[0] if label in (None, table.classes[0]) else label
            assert cells_of(path.read_bytes(), how) == expected
    store_path(path).unlink()
    return True


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk: no power is cut here."""
    monkeypatch.setattr("os.fsync", lambda _: None)


def test_labels_harm_no_cell(tmp_path: Path) -> None:
    rng = Random(0)
    readable = sum(check_one_table(tmp_path, rng) for _ in range(80))
    assert 30 < readable < 80  # both kinds were tried


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_labels_harm_no_cell_at_length(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    for _ in range(400):
        check_one_table(tmp_path, rng)


def check_commands(rng: Random, monkeypatch: pytest.MonkeyPatch, printed: Callable[[], str]) -> bool:
    """fit, label, fit: no exit code but 0 and 2, and after an answer the table is readable; whether it was one."""
    path = Path("t.csv")
    content, how = make_table(rng)
    path.write_bytes(content)
    store_path(path).unlink(missing_ok=True)
    options = ["t.csv", "--label", "y", "--delimiter", str(how.delimiter), "--encoding", how.encoding]
    fit = ["fit", *options, "--radius", "50", "--no-report", "--no-worst-case"]
    before = run(fit)
    assert before in {0, 2}, printed()
    assert path.read_bytes() == content
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n2\n"))
    code = run(["label", *options, "--random-first", "50"])
    assert code in {0, 2}, printed()
    if code:
        assert path.read_bytes() == content
        return False
    old, new = cells_of(content, how), cells_of(path.read_bytes(), how)
    changed = [(r, c) for r, row in enumerate(old) for c, cell in enumerate(row) if new[r][c] != cell]
    head = header_at(old)
    at = [name.strip() for name in old[head]].index("y")
    assert [len(row) for row in old] == [len(row) for row in new]
    assert all(column == at for _, column in changed), changed
    all_labeled = all(row[at].strip() for row in new[head + 1 :])  # nothing is left to learn about, which `fit` refuses
    assert run(fit) == before or before == 2 or all_labeled, printed()
    return True


@pytest.mark.parametrize("n_tables", [6, pytest.param(120, marks=pytest.mark.slow)])
def test_commands_harm_no_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], n_tables: int
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = Random(n_tables)
    labeled = sum(check_commands(rng, monkeypatch, lambda: capsys.readouterr().err) for _ in range(n_tables))
    assert labeled > n_tables / 4
