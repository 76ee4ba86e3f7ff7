"""Labels written back into tables."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from surefoot.pool.table import FileError, Format, Table, TableError, read_labeled_table
from surefoot.pool.table.editing import label_writer
from surefoot.pool.table.pool import as_targets


def table_of(folder: Path, text: str) -> Table:
    path = folder / "t.csv"
    path.write_text(text, encoding="utf-8", newline="")
    return read_labeled_table(path, "y")


def write(table: Table, labels: dict[int, str | None]) -> None:
    label_writer(table, table.path.read_bytes()).write(labels)


class TestLabelWriter:
    TEXT = 'a,y,"b\nq"\r\n1,,"x\ny"\r\n\r\n"2, 3", ,z\n4,u,"he said ""no"""'

    def test_only_the_line_of_the_row_changes(self, tmp_path: Path) -> None:
        table = table_of(tmp_path, self.TEXT)
        assert table.labels.tolist() == [None, None, "u"]
        write(table, {0: "new, label", 1: "v"})
        expected = 'a,y,"b\nq"\r\n1,"new, label","x\ny"\r\n\r\n"2, 3",v,z\n4,u,"he said ""no"""'
        assert table.path.read_bytes().decode() == expected
        write(read_labeled_table(table.path, "y"), {2: None})
        again = read_labeled_table(table.path, "y")
        assert again.labels.tolist() == ["new, label", "v", None]
        assert again.cells["b q"].tolist() == ["x\ny", "z", 'he said "no"']
        assert table.path.read_bytes().decode() == expected.replace("4,u", "4,")

    def test_a_failed_write_can_be_repeated(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = table_of(tmp_path, self.TEXT)

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", full)
            with pytest.raises(FileError, match="No space left"):
                write(table, {0: "v"})
        assert table.path.read_bytes().decode() == self.TEXT
        write(table, {1: "w"})
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
        write(read_labeled_table(path, "y"), {row: "v"})
        assert path.read_bytes() == after
        write(read_labeled_table(path, "y"), {row: None})
        write(read_labeled_table(path, "y"), {row: 'w "x", \n'})
        assert read_labeled_table(path, "y").labels[row] == 'w "x",'

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "latin-1", "utf-8-sig", "cp1252"])
    def test_encodings_stay(self, tmp_path: Path, encoding: str) -> None:
        path, text = tmp_path / "t.csv", "größe,y\nü,ä\n2,\n"
        path.write_bytes(text.encode(encoding))
        table = read_labeled_table(path, "y", how=Format(encoding=encoding), classes=["ä", "ö"])
        write(table, {1: "ö"})
        assert path.read_bytes() == (text[:-1] + "ö\n").encode(encoding)

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
    @pytest.mark.parametrize("asked", ["utf-8", "utf-8-sig"])
    def test_a_byte_order_mark_tells_the_encoding(self, tmp_path: Path, encoding: str, asked: str) -> None:
        path, text = tmp_path / "t.csv", ("\ufeff" if encoding == "utf-16-be" else "") + "größe,y\nü,ä\n2,\n"
        path.write_bytes(text.encode(encoding))
        table = read_labeled_table(path, "y", how=Format(encoding=asked), classes=["ä", "ö"])
        assert table.cells["größe"].tolist() == ["ü", "2"]
        label_writer(table, path.read_bytes()).write({1: "ö"})
        assert path.read_bytes() == (text[:-1] + "ö\n").encode(encoding)

    def test_the_order_of_the_bytes_stays(self, tmp_path: Path) -> None:
        path, text = tmp_path / "t.csv", "\ufeffx,y\n1,u\n2,\n"
        path.write_bytes(text.encode("utf-16-be"))
        table = read_labeled_table(path, "y", how=Format(encoding="utf-16"))
        write(table, {1: "v"})
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
            writer.write({1: "v"})
        assert table.path.read_bytes() == b"x,y\n0,\n1,u\n2,\n3,\n"
        table.path.write_bytes(content.replace(b"3", b"4"))
        os.utime(table.path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        with pytest.raises(TableError, match="changed by another program"):
            writer.write({2: "v"})
        table.path.write_bytes(content)
        writer.write({1: "v"})  # what counts is what the file holds, not when it was written

    def test_a_quote_that_is_never_closed_is_refused(self, tmp_path: Path) -> None:
        for text in ('x,y\n1,u\n2,"v\n3,\n4,w\n', 'x,y\n1,u\n"2,\n3,v\n', 'x,y\n5" pipe,u\n2,"v\n3,w'):
            with pytest.raises(TableError, match=r"in the record that begins in line 3 is not"):
                table_of(tmp_path, text)
        assert len(table_of(tmp_path, 'x,y\n5" pipe,u\n2,v\n').labels) == 2


def test_long_numbers_in_a_text_file_keep_their_digits(tmp_path: Path) -> None:
    table = table_of(tmp_path, "x,y\n1,9007199254740992\n2,9007199254740993\n3,5\n4,\n")
    assert table.classes == ["5", "9007199254740992", "9007199254740993"]
    assert len(set(as_targets(table.labels[:3], table.classes).tolist())) == 3
    write(table, {3: "9007199254740993"})
    assert read_labeled_table(table.path, "y").labels[3] == "9007199254740993"


def test_many_labels_at_once_are_as_many_one_by_one(tmp_path: Path) -> None:
    table = table_of(tmp_path, TestLabelWriter.TEXT)
    content = table.path.read_bytes()
    labels = {2: None, 0: 'a longer "one"', 1: "v"}
    writer = label_writer(table, content)
    at_once = writer.bytes_with(labels)
    assert at_once != content
    assert table.path.read_bytes() == content
    for row, label in labels.items():
        write(read_labeled_table(table.path, "y"), {row: label})
    assert table.path.read_bytes() == at_once


class TestParquetLabels:
    def test_many_at_once(self, tmp_path: Path) -> None:
        path = tmp_path / "t.parquet"
        pq.write_table(pa.table({"x": [1.0, 2.0, 3.0, 4.0], "y": pa.array(["a", None, None, "b"])}), path)
        write(read_labeled_table(path, "y"), {2: "b", 0: None})
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
        write(read, {row: label})
        expected = read.labels.copy()
        expected[row] = label
        assert read_labeled_table(path, "y", classes=classes).labels.tolist() == expected.tolist()
        found = pq.read_table(path)
        assert found.select(["x", "z"]).equals(table.select(["x", "z"]))
        write(read_labeled_table(path, "y", classes=classes), {row: None})
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


NULLABLE = ["boolean", "Int64", "Int8", "float64", "datetime64[ns]", "period[D]", "int64[pyarrow]", "category"]


@pytest.mark.parametrize("kind", NULLABLE)
def test_pandas_reads_a_column_that_has_become_one_of_texts(tmp_path: Path, kind: str) -> None:
    """The type that pandas notes in the file's metadata goes with the old type of the column."""
    path = tmp_path / "t.parquet"
    pd.DataFrame({"x": pd.array([1, None, 3], dtype="Int64"), "y": pd.Series([None] * 3, dtype=kind)}).to_parquet(path)
    write(read_labeled_table(path, "y", classes=["yes", "no"]), {1: "no", 0: "yes"})
    found = pd.read_parquet(path)
    assert [None if pd.isna(label) else label for label in found["y"]] == ["yes", "no", None]
    assert found["x"].dtype == "Int64"
