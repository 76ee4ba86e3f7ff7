"""A table and its store: rows that move, labels that people type, and what is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from serve.services import store_of
from surefoot.pool import database as e
from surefoot.pool.database import Event
from surefoot.pool.store import FrozenBlobs, Store, store_path
from surefoot.pool.store_labels import (
    labels_to_write,
    open_store,
    picked_rows,
    stored_book,
    take_in,
    waiting_labels,
    write_table,
)
from surefoot.pool.table import Table, TableError, read_labeled_table

CLASSES = ["u", "v"]
TEXT = "x,z,y\n1,a,u\n2,b,\n2,b,\n4,d,v\n"


def table_of(folder: Path, text: str, name: str = "t.csv") -> Table:
    (folder / name).write_text(text)
    return read_labeled_table(folder / name, "y", classes=CLASSES)


def answer(table: Table, *events: tuple[str, int, str | None, str]) -> None:
    with store_of(table) as store:
        ada = store.person("ada").id
        store.append([Event(kind, row, ada, value, purpose) for kind, row, value, purpose in events])


def reader(table: Table) -> Callable[[bytes], Table]:
    return lambda content: read_labeled_table(table.path, "y", classes=CLASSES, content=content)


def write(table: Table) -> int:
    with store_of(table) as store:
        return write_table(store, table, table.path.read_bytes(), reader(table))


def labels(table: Table) -> list[str | None]:
    """The labels that count, of the table and its store together."""
    book = stored_book(table)
    assert book is not None
    return [book.labels.get(row) for row in range(len(table.labels))]


class TestRows:
    def test_picked_rows_are_remembered(self, tmp_path: Path) -> None:
        table = table_of(tmp_path, TEXT)
        assert not picked_rows(table).any()
        assert list(tmp_path.iterdir()) == [table.path]  # reading writes nothing
        answer(table, (e.PICK, 1, None, e.RANDOM), (e.PICK, 3, None, e.LEARN), (e.SKIP, 1, None, e.RANDOM))
        assert picked_rows(table).tolist() == [False, False, False, True]

    def test_they_are_known_by_their_cells(self, tmp_path: Path) -> None:
        table = table_of(tmp_path, TEXT)
        answer(table, (e.PICK, 2, None, e.LEARN), (e.SKIP, 1, None, e.RANDOM), (e.LABEL, 0, "v", e.RANDOM))
        moved = table_of(tmp_path, "z,new,x,y\nd,0,4,v\nb,1,2,\na,0,1,u\nb,1,2,\nc,1,9,\n")
        for found in (stored_book(moved), take_in(store_of(moved), moved)):
            assert (found.skipped, found.picked(), found.labels[0]) == ({1}, {3}, "v")
            assert found.conflicts == {2}  # u in the table, v by ada
        back = table_of(tmp_path, TEXT)
        assert (stored_book(back).skipped, stored_book(back).picked()) == ({1}, {2})

    def test_a_row_that_goes_may_come_back(self, tmp_path: Path) -> None:
        answer(table_of(tmp_path, TEXT), (e.LABEL, 1, "u", e.RANDOM), (e.LABEL, 2, "v", e.RANDOM))
        short = table_of(tmp_path, "x,z,y\n1,a,u\n4,d,v\n")
        store_of(short).close()
        assert labels(short) == ["u", "v"]
        assert sum(event.row < 0 for event in Store(store_path(short.path)).events()) == 2
        longer = table_of(tmp_path, "x,z,y\n2,b,\n5,e,\n2,b,\n1,a,u\n4,d,v\n")
        store_of(longer).close()
        assert labels(longer) == ["u", None, "v", "u", "v"]

    @pytest.mark.parametrize("text", [TEXT.replace("4,d", "5,d"), TEXT.replace(",z", ",w")])
    def test_a_picked_row_that_cannot_be_found_is_refused(self, tmp_path: Path, text: str) -> None:
        answer(table_of(tmp_path, TEXT), (e.PICK, 3, None, e.LEARN))
        changed = table_of(tmp_path, text)
        before = Store(store_path(changed.path)).events()
        with pytest.raises(TableError, match=r"row 4, as it was, cannot be found|the column 'z' is gone"):
            picked_rows(changed)
        with pytest.raises(TableError):
            store_of(changed)
        assert Store(store_path(changed.path)).events() == before

    def test_an_open_audit_speaks_of_the_rows_as_they_were(self, tmp_path: Path) -> None:
        table = table_of(tmp_path, TEXT)
        with store_of(table) as store:
            store.append([Event(e.FREEZE, audit=1, value="[]")], FrozenBlobs(1, b"", b""))
        more = table_of(tmp_path, TEXT + "9,e,\n")
        with pytest.raises(TableError, match="have changed since audit 1"):
            store_of(more)
        assert labels(more) == ["u", None, None, "v", None]  # reading needs no audit
        with Store(store_path(table.path)) as store:
            store.append([Event(e.CLOSE, audit=1, value="over")])
        with store_of(more) as store:
            assert store.about["moved_audits"] == 1

    def test_a_process_that_knows_the_old_numbers_writes_no_more(self, tmp_path: Path) -> None:
        old = store_of(table_of(tmp_path, TEXT))
        old.append([Event(e.LABEL, 1, 1, "u", e.RANDOM)])
        store_of(table_of(tmp_path, "x,z,y\n9,e,\n2,b,\n2,b,\n1,a,u\n4,d,v\n")).close()
        before = old.events()
        with pytest.raises(ValueError, match="Start this command again"):
            old.append([Event(e.LABEL, 1, 1, "u", e.RANDOM)])
        assert old.events() == before

    def test_the_store_lies_beside_the_table_itself(self, tmp_path: Path) -> None:
        (tmp_path / "there").mkdir()
        table_of(tmp_path / "there", TEXT)
        (tmp_path / "link.csv").symlink_to(tmp_path / "there" / "t.csv")
        linked = read_labeled_table(tmp_path / "link.csv", "y")
        answer(linked, (e.PICK, 1, None, e.LEARN), (e.LABEL, 1, "u", e.LEARN))
        assert write(linked) == 1
        assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["link.csv"]
        assert (tmp_path / "link.csv").is_symlink()
        there = read_labeled_table(tmp_path / "there" / "t.csv", "y")
        assert (picked_rows(there).tolist(), there.labels[1]) == ([False, True, False, False], "u")


class TestOtherProcesses:
    """A command reads the table, and then opens its store; another one writes labels into the table in between."""

    def test_a_table_that_was_read_before_labels_were_written_is_no_news(self, tmp_path: Path) -> None:
        early = table_of(tmp_path, TEXT)
        content = early.path.read_bytes()
        with store_of(early) as store:
            ada = store.person("ada").id
            store.append([Event(e.LABEL, 1, ada, "u", e.RANDOM), Event(e.LABEL, 2, ada, "u", e.RANDOM)])
            write_table(store, early, content, reader(early))
            store.append([Event(e.LABEL, 1, ada, "v", e.RANDOM)])  # she changes her mind, and goes on
            before = store.events()
            with open_store(early, content, reader(early)) as late:
                assert late.events() == before
                assert late.in_table() == {0: "u", 1: "u", 2: "u", 3: "v"}
                assert write_table(late, early, content, reader(early)) == 1
            assert store.events() == before
        assert read_labeled_table(early.path, "y").labels.tolist() == ["u", "v", "u", "v"]

    def test_a_table_whose_rows_changed_since_it_was_read_is_refused(self, tmp_path: Path) -> None:
        early = table_of(tmp_path, TEXT)
        content = early.path.read_bytes()
        store_of(early).close()
        changed = table_of(tmp_path, "x,z,y\n9,e,\n1,a,u\n2,b,\n2,b,\n4,d,v\n")
        before = store_path(early.path).read_bytes()
        with pytest.raises(TableError, match="changed by another program while the table was read"):
            open_store(early, content, reader(early))
        assert store_path(early.path).read_bytes() == before
        store_of(changed).close()


class TestLabels:
    """What the table held before, what the store says, what somebody typed -> the label that counts."""

    def test_answers_wait_until_they_are_written(self, tmp_path: Path) -> None:
        table = table_of(tmp_path, TEXT)
        answer(table, (e.LABEL, 1, "u", e.RANDOM), (e.SKIP, 2, None, e.RANDOM))
        assert waiting_labels(table) == 1
        assert write(table) == 1
        after = read_labeled_table(table.path, "y")
        assert after.labels.tolist() == ["u", "u", None, "v"]
        assert (waiting_labels(after), write(after)) == (0, 0)

    @pytest.mark.parametrize(
        ("typed", "expected"),
        [
            ("v", "v"),  # typed over the answer, after it was written
            ("", "u"),  # an emptied cell: the answer that was given to surefoot stays, and waits
        ],
    )
    def test_a_cell_that_is_changed_after_it_was_written(self, tmp_path: Path, typed: str, expected: str) -> None:
        table = table_of(tmp_path, TEXT)
        answer(table, (e.LABEL, 1, "u", e.RANDOM))
        write(table)
        edited = table_of(tmp_path, TEXT.replace("2,b,\n", f"2,b,{typed}\n", 1))
        assert (labels(edited)[1], waiting_labels(edited)) == (expected, int(not typed))
        for _ in range(2):  # the second time there is nothing new
            assert take_in(store_of(edited), edited).labels[1] == expected

    def test_a_cell_that_is_filled_while_an_answer_waits_makes_a_conflict(self, tmp_path: Path) -> None:
        answer(table_of(tmp_path, TEXT), (e.LABEL, 1, "u", e.RANDOM))
        edited = table_of(tmp_path, TEXT.replace("2,b,\n", "2,b,v\n", 1))
        assert stored_book(edited).conflicts == {1}
        assert write(edited) == 0  # what was typed stays in the table
        same = table_of(tmp_path, TEXT.replace("2,b,\n", "2,b,u\n", 1))
        assert labels(same)[1] == "u"

    def test_a_label_of_the_table_that_is_emptied_or_changed_there(self, tmp_path: Path) -> None:
        store_of(table_of(tmp_path, TEXT)).close()
        edited = table_of(tmp_path, "x,z,y\n1,a,\n2,b,\n2,b,\n4,d,u\n")
        assert labels(edited) == [None, None, None, "u"]
        assert (write(edited), edited.path.read_text()) == (0, "x,z,y\n1,a,\n2,b,\n2,b,\n4,d,u\n")

    def test_a_label_typed_for_a_row_that_all_skipped_counts(self, tmp_path: Path) -> None:
        answer(table_of(tmp_path, TEXT), (e.SKIP, 1, None, e.RANDOM))
        assert labels(table_of(tmp_path, TEXT.replace("2,b,\n", "2,b,v\n", 1)))[1] == "v"

    def test_a_kill_between_the_table_and_the_store_changes_nothing(self, tmp_path: Path) -> None:
        table = table_of(tmp_path, TEXT)
        answer(table, (e.LABEL, 1, "u", e.RANDOM))
        written = table_of(tmp_path, TEXT.replace("2,b,\n", "2,b,u\n", 1))
        before = len(Store(store_path(table.path)).events())
        assert take_in(store_of(written), written).labels == {0: "u", 1: "u", 3: "v"}
        assert len(Store(store_path(table.path)).events()) == before

    def test_a_store_of_another_label_column_says_nothing(self, tmp_path: Path) -> None:
        table = table_of(tmp_path, TEXT)
        answer(table, (e.PICK, 1, None, e.LEARN))
        other = read_labeled_table(table.path, "z")
        assert stored_book(other) is None
        assert not picked_rows(other).any()
        with pytest.raises(ValueError, match='its label is "y", that of the pool "z"'):
            store_of(other)

    def test_rows_on_which_people_disagree_are_empty_in_a_copy(self, tmp_path: Path) -> None:
        table = table_of(tmp_path, TEXT)
        with store_of(table) as store:
            for name, label in (("ada", "u"), ("bob", "v")):
                store.append([Event(e.LABEL, 1, store.person(name).id, label, e.RANDOM)])
        assert labels_to_write(stored_book(table), table) == {0: "u", 1: None, 2: None, 3: "v"}
