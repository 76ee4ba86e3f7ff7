"""Labels written back into tables, and the journal of the rows that were asked for."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from surefoot.pool.table import FileError, Format, Table, TableError, read_labeled_table
from surefoot.pool.table.asked import AskedRows, picked_rows
from surefoot.pool.table.editing import label_writer
from surefoot.pool.table.pool import as_targets


def table_of(folder: Path, text: str) -> Table:
    path = folder / "t.csv"
    path.write_text(text, encoding="utf-8", newline="")
    return read_labeled_table(path, "y")


class TestLabelWriter:
    TEXT = 'a,y,"b\nq"\r\n1,,"x\ny"\r\n\r\n"2, 3", ,z\n4,u,"he said ""no"""'

    def test_only_the_line_of_the_row_changes(self, tmp_path: Path) -> None:
        table = table_of(tmp_path, self.TEXT)
        assert table.labels.tolist() == [None, None, "u"]
        writer = label_writer(table, table.path.read_bytes())
        writer.write(0, "new, label")
        writer.write(1, "v")
        expected = 'a,y,"b\nq"\r\n1,"new, label","x\ny"\r\n\r\n"2, 3",v,z\n4,u,"he said ""no"""'
        assert table.path.read_bytes().decode() == expected
        writer.write(2, None)
        again = read_labeled_table(table.path, "y")
        assert again.labels.tolist() == ["new, label", "v", None]
        assert again.cells["b\nq"].tolist() == ["x\ny", "z", 'he said "no"']
        assert table.path.read_bytes().decode() == expected.replace("4,u", "4,")

    def test_a_failed_write_can_be_repeated(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = table_of(tmp_path, self.TEXT)
        writer = label_writer(table, table.path.read_bytes())

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", full)
            with pytest.raises(FileError, match="No space left"):
                writer.write(0, "v")
        assert table.path.read_bytes().decode() == self.TEXT
        writer.write(1, "w")
        assert read_labeled_table(table.path, "y").labels.tolist() == [None, "w", "u"]

    @pytest.mark.parametrize(
        ("before", "row", "after"),
        [
            # a byte order mark, and a first header that is quoted and holds the delimiter
            (
                b'\xef\xbb\xbf"age, years",y,z\n1,u,10\n3,,30\n',
                1,
                b'\xef\xbb\xbf"age, years",y,z\n1,u,10\n3,v,30\n',
            ),
            # a line break in the last row, no end of the last line
            (b'x,z,y\n1,ok,u\n3,"two\nlines",', 1, b'x,z,y\n1,ok,u\n3,"two\nlines",v'),
            # lone carriage returns, in a cell and between rows
            (b'x,z,y\r1,"a\rb",u\r3,"c\rd",\r', 1, b'x,z,y\r1,"a\rb",u\r3,"c\rd",v\r'),
            # quotes that need not be there, in and after a cell, and in the label's
            (b'x,z,y\n"1","a"b"c",u\n"3",5" pipe," "\n', 1, b'x,z,y\n"1","a"b"c",u\n"3",5" pipe,v\n'),
            (b'y,x,z\n\n\n"",1,\n"u",2,\x00\n', 0, b'y,x,z\n\n\nv,1,\n"u",2,\x00\n'),
        ],
    )
    def test_odd_bytes_stay(self, tmp_path: Path, before: bytes, row: int, after: bytes) -> None:
        path = tmp_path / "t.csv"
        path.write_bytes(before)
        writer = label_writer(read_labeled_table(path, "y"), before)
        writer.write(row, "v")
        assert path.read_bytes() == after
        writer.write(row, None)
        writer.write(row, 'w "x", \n')
        assert read_labeled_table(path, "y").labels[row] == 'w "x",'

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "latin-1", "utf-8-sig", "cp1252"])
    def test_encodings_stay(self, tmp_path: Path, encoding: str) -> None:
        path, text = tmp_path / "t.csv", "größe,y\nü,ä\n2,\n"
        path.write_bytes(text.encode(encoding))
        table = read_labeled_table(path, "y", how=Format(encoding=encoding), classes=["ä", "ö"])
        label_writer(table, path.read_bytes()).write(1, "ö")
        assert path.read_bytes() == (text[:-1] + "ö\n").encode(encoding)

    def test_the_order_of_the_bytes_stays(self, tmp_path: Path) -> None:
        path, text = tmp_path / "t.csv", "\ufeffx,y\n1,u\n2,\n"
        path.write_bytes(text.encode("utf-16-be"))
        table = read_labeled_table(path, "y", how=Format(encoding="utf-16"))
        label_writer(table, path.read_bytes()).write(1, "v")
        assert path.read_bytes() == (text[:-1] + "v\n").encode("utf-16-be")

    def test_classes_that_the_file_cannot_hold_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        path.write_bytes(b"x,y\n1,a\n2,\n")
        table = read_labeled_table(path, "y", how=Format(encoding="latin-1"), classes=["a", "\u65e5"])
        with pytest.raises(TableError, match="must be text in iso8859-1"):
            label_writer(table, path.read_bytes())

    def test_the_rows_read_are_the_rows_written(self, tmp_path: Path) -> None:
        """Another program saves the table after it was read: no label may go to another row."""
        table = table_of(tmp_path, "x,y\n1,u\n2,\n3,\n")
        content, stamp = table.path.read_bytes(), table.path.stat()
        table.path.write_bytes(b"x,y\n0,\n1,u\n2,\n3,\n")
        writer = label_writer(table, content)
        with pytest.raises(TableError, match="changed by another program"):
            writer.write(1, "v")
        assert table.path.read_bytes() == b"x,y\n0,\n1,u\n2,\n3,\n"
        table.path.write_bytes(content)
        writer.write(1, "v")  # what counts is what the file holds, not when it was written
        table.path.write_bytes(table.path.read_bytes().replace(b"3", b"4"))
        os.utime(table.path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        with pytest.raises(TableError, match="changed by another program"):
            writer.write(2, "v")

    def test_a_quote_that_is_never_closed_is_refused(self, tmp_path: Path) -> None:
        for text in ('x,y\n1,u\n2,"v\n3,\n4,w\n', 'x,y\n1,u\n"2,\n3,v\n', 'x,y\n5" pipe,u\n2,"v\n3,w'):
            with pytest.raises(TableError, match=r"in the record that begins in line 3 is not"):
                table_of(tmp_path, text)
        assert len(table_of(tmp_path, 'x,y\n5" pipe,u\n2,v\n').labels) == 2


def test_long_numbers_in_a_text_file_keep_their_digits(tmp_path: Path) -> None:
    table = table_of(tmp_path, "x,y\n1,9007199254740992\n2,9007199254740993\n3,5\n4,\n")
    assert table.classes == ["5", "9007199254740992", "9007199254740993"]
    assert len(set(as_targets(table.labels[:3], table.classes).tolist())) == 3
    label_writer(table, table.path.read_bytes()).write(3, "9007199254740993")
    assert read_labeled_table(table.path, "y").labels[3] == "9007199254740993"


def test_many_labels_at_once_are_as_many_one_by_one(tmp_path: Path) -> None:
    table = table_of(tmp_path, TestLabelWriter.TEXT)
    content = table.path.read_bytes()
    labels = {2: None, 0: 'a longer "one"', 1: "v"}
    at_once = label_writer(table, content)
    assert at_once.bytes_with(labels) != content
    assert table.path.read_bytes() == content
    at_once.write_all(labels)
    after = table.path.read_bytes()
    at_once.write(1, "w")
    table.path.write_bytes(content)
    one_by_one = label_writer(table, content)
    for row, label in labels.items():
        one_by_one.write(row, label)
    assert table.path.read_bytes() == after
    one_by_one.write(1, "w")
    assert table.path.read_bytes() == at_once.bytes_with({})


class TestParquetLabels:
    def test_many_at_once(self, tmp_path: Path) -> None:
        path = tmp_path / "t.parquet"
        pq.write_table(pa.table({"x": [1.0, 2.0, 3.0, 4.0], "y": pa.array(["a", None, None, "b"])}), path)
        label_writer(read_labeled_table(path, "y"), path.read_bytes()).write_all({2: "b", 0: None})
        assert pq.read_table(path)["y"].to_pylist() == [None, None, "b", "b"]

    @pytest.mark.parametrize("numbers", [[2**53, 2**53 + 1, 5, None], [2**60, 1, 2, 3]])
    def test_numbers_of_which_two_would_be_one_are_refused(self, tmp_path: Path, numbers: list[int | None]) -> None:
        path = tmp_path / "t.parquet"
        pq.write_table(pa.table({"x": [1.0, 2.0, 3.0, 4.0], "y": pa.array(numbers)}), path)
        with pytest.raises(TableError, match=r"must be below 2\*\*53; got .* in row 1"):
            read_labeled_table(path, "y")

    @staticmethod
    def written(folder: Path, column: pa.Array, classes: list[str] | None, row: int, label: str) -> pa.Table:
        """Write a label and take it back; every other cell must stay."""
        path = folder / "t.parquet"
        table = pa.table({"x": pa.array(range(len(column)), pa.int8()), "y": column, "z": ["a"] * len(column)})
        pq.write_table(table, path)
        read = read_labeled_table(path, "y", classes=classes)
        writer = label_writer(read, path.read_bytes())
        writer.write(row, label)
        expected = read.labels.copy()
        expected[row] = label
        assert read_labeled_table(path, "y", classes=classes).labels.tolist() == expected.tolist()
        found = pq.read_table(path)
        assert found.select(["x", "z"]).equals(table.select(["x", "z"]))
        writer.write(row, None)
        assert read_labeled_table(path, "y", classes=classes).labels.tolist() == read.labels.tolist()
        return found

    @pytest.mark.parametrize(
        ("column", "label"),
        [
            (pa.array([True, None, False]), "False"),
            (pa.array([1, None, 0], pa.int8()), "0"),
            (pa.array([1.5, None, 0], pa.float32()), "1.5"),
            (pa.array(["01", None, "b"]), "01"),
            (pa.array(["u", None, "v"], pa.large_string()), "v"),
            (pa.array(["u", None, "v"]).dictionary_encode(), "v"),
            (pa.array(["u", None, "v"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())), "v"),
        ],
        ids=lambda value: str(getattr(value, "type", value)),
    )
    def test_the_type_of_the_column_stays(self, tmp_path: Path, column: pa.Array, label: str) -> None:
        assert self.written(tmp_path, column, None, 1, label).schema.field("y").type == column.type

    @pytest.mark.parametrize("kind", [pa.null(), pa.bool_(), pa.float64(), pa.string()], ids=str)
    def test_an_empty_column_takes_any_classes(self, tmp_path: Path, kind: pa.DataType) -> None:
        found = self.written(tmp_path, pa.nulls(4, kind), ["yes", "no"], 2, "yes")
        assert found["y"].to_pylist() == [None, None, "yes", None]

    @pytest.mark.parametrize(
        ("column", "classes"), [(pa.array([1, None, 2], pa.int8()), "1,2,300"), (pa.array([1, None, 2]), "1,2,b")]
    )
    def test_a_class_of_another_type_is_refused(self, tmp_path: Path, column: pa.Array, classes: str) -> None:
        with pytest.raises(TableError, match="which cannot hold the class"):
            self.written(tmp_path, column, classes.split(","), 1, classes.rsplit(",", maxsplit=1)[-1])


def test_asked_rows_are_remembered(tmp_path: Path) -> None:
    table = table_of(tmp_path, "x,y\n1,u\n2,\n3,v\n4,\n")
    assert not picked_rows(table).any()
    asked = AskedRows(table)
    asked.ask(1, random=True)
    asked.ask(3, random=False)
    asked.skip(1)
    again = AskedRows(read_labeled_table(table.path, "y"))
    assert again.order == [1, 3]
    assert again.skipped == {1}
    assert again.pending(table.labeled) == 3
    assert picked_rows(table).tolist() == [False, False, False, True]
    labeled = table_of(tmp_path, "x,y\n1,u\n2,\n3,v\n4,u\n")
    assert AskedRows(labeled).pending(labeled.labeled) is None
    other = table_of(tmp_path, "x,y\n1,u\n2,\n3,v\n5,u\n")
    with pytest.raises(TableError, match="the rows have changed since: that of line 3 cannot be found"):
        picked_rows(other)


def test_asked_rows_are_known_by_their_cells(tmp_path: Path) -> None:
    asked = AskedRows(table_of(tmp_path, "x,z,y\n1,a,u\n2,b,\n2,b,\n4,d,v\n"))
    assert not asked.path.exists()  # nothing to remember yet
    asked.ask(2, random=False)
    asked.skip(1)
    asked.ask(3, random=True)
    moved = AskedRows(table_of(tmp_path, "z,new,x,y\nd,0,4,v\n\nb,1,2,\na,0,1,u\nb,1,2,\nc,1,9,\n"))
    assert moved.order == [3, 0]
    assert moved.skipped == {1}
    assert moved.picked(5).tolist() == [False, False, False, True, False]
    assert AskedRows(table_of(tmp_path, "x,z,y\n2,b,\n7,a,u\n2,b,\n5,d,v\n")).order == [2]
    with pytest.raises(TableError, match="the column 'z' is gone"):
        AskedRows(table_of(tmp_path, "x,w,y\n1,a,u\n2,b,\n2,b,\n4,d,v\n"))


def test_the_journal_lies_beside_the_table_itself(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    table_of(tmp_path / "there", "x,y\n1,u\n2,\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "there" / "t.csv")
    linked = read_labeled_table(tmp_path / "link.csv", "y")
    AskedRows(linked).ask(1, random=False)
    label_writer(linked, (tmp_path / "link.csv").read_bytes()).write(1, "u")
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["link.csv"]
    assert (tmp_path / "link.csv").is_symlink()
    assert picked_rows(read_labeled_table(tmp_path / "there" / "t.csv", "y")).tolist() == [False, True]


@pytest.mark.parametrize(
    "line", ['{"ask":"x","key":"0","twin":0}', '{"ask":1}', '{"ask":[1],"key":"0","twin":0}', "[1]", "{}", "7"]
)
def test_odd_lines_of_a_journal_are_named(tmp_path: Path, line: str) -> None:
    table = table_of(tmp_path, "x,y\n1,u\n2,\n")
    asked = AskedRows(table)
    asked.ask(1, random=True)
    with asked.path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(FileError, match=r"line 3.*Remove the line"):
        AskedRows(table)
    asked.path.write_text('{"journal": "surefoot.active", "version": 1}\n')
    with pytest.raises(FileError, match="must be a journal of surefoot label, in version 2"):
        AskedRows(table)
