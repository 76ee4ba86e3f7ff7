"""Reading, sorting columns, cleaning, writing labels back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from surefoot.datasets._catalogue import standardize
from surefoot.pool.notes import Code, one_per_kind
from surefoot.pool.table import (
    FileError,
    Format,
    LargestEntryScaler,
    TableError,
    clean,
    read_labeled_table,
    read_table,
    sort_columns,
)
from surefoot.pool.table.cells import as_numbers, number_style
from surefoot.pool.table.editing import label_writer
from surefoot.pool.table.pool import read_labels
from surefoot.pool.table.reading import read_header, recognised


def table_of(tmp_path: Path, text: str, label: str = "y", name: str = "t.csv", **how: object):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", newline="")
    return read_labeled_table(path, label, how=Format(**how))


cell = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r", exclude_categories=["Cs"]), max_size=6)


# openpyxl takes a text that begins with = for a formula, and refuses control characters, as Excel does
sheet_cell = st.text(
    st.characters(codec="utf-8", exclude_characters="=\ufffe\uffff", exclude_categories=["Cs", "Cc"]), max_size=6
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(cell, cell), min_size=1, max_size=6), st.sampled_from([",", ";", "\t"]))
def test_texts_survive_a_round_trip(rows: list[tuple[str, str]], delimiter: str) -> None:
    """What pandas writes is read back, cell by cell; blank cells and the marks of missing ones are empty."""
    import tempfile

    from surefoot.pool.table.reading import EMPTY

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        frame = pd.DataFrame(rows, columns=["a", "b"], dtype=object)
        frame.to_csv(path, index=False, sep=delimiter, quoting=1)
        found = read_table(path, Format(delimiter))
        for name in frame.columns:
            for ours, theirs in zip(frame[name], found[name], strict=True):
                assert (ours == theirs) or (pd.isna(theirs) and ours in EMPTY), (ours, theirs)


TEXT = "Größe;Preis €;y\r\n" + "klein;1,5;süß\r\ngroß;2,5;\r\n" * 20


@pytest.mark.parametrize(
    ("encoding", "read_as"),
    [("utf-8", "utf-8"), ("cp1252", "cp1252"), ("utf-16-le", "utf-16-le"), ("utf-16-be", "utf-16-be")],
)
def test_encodings_are_recognised_and_kept(tmp_path: Path, encoding: str, read_as: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(TEXT.encode(encoding))
    table = read_labeled_table(path, "y", classes=["süß", "bitter"])
    assert list(table.cells.columns) == ["Größe", "Preis €", "y"]
    assert table.how.encoding == read_as
    assert (Code.ENCODING in [note.code for note in table.notes]) == (read_as != "utf-8")
    label_writer(table, path.read_bytes()).write({1: "süß"})
    assert path.read_bytes() == TEXT.replace("2,5;", "2,5;süß", 1).encode(encoding)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=40))
def test_utf8_is_recognised(text: str) -> None:
    assert recognised(text.encode()) == "utf-8"


@pytest.mark.parametrize("content", ["a,y\nü,1\n".encode() + b"\xff,2\n", b"PK\x03\x04\xff\xfe\x00\x81"])
def test_a_damaged_file_is_no_other_encoding(content: bytes) -> None:
    assert recognised(content) == "utf-8"


@pytest.mark.parametrize("above", ["Sales of 2024\n", "Sales; by region\n\n", "Sales;;;\n", "Sales\nby region\n"])
@pytest.mark.parametrize("mark", ["|", ","])
def test_a_title_above_the_header_is_skipped(tmp_path: Path, above: str, mark: str) -> None:
    path = tmp_path / "t.csv"
    rows = "a;b;c;y\n1;2;x;no\n3;4;z;yes\n5;6;x;\n"
    path.write_text((above + rows).replace(";", mark), encoding="utf-8")
    table = read_labeled_table(path, "y")
    assert list(table.cells.columns) == ["a", "b", "c", "y"]
    assert table.labels.tolist() == ["no", "yes", None]
    (title,) = [note for note in table.notes if note.code is Code.TITLE]
    assert title.parameters["n_lines"] == above.strip().count("\n") + 1
    label_writer(table, path.read_bytes()).write({2: "no"})
    assert path.read_text(encoding="utf-8") == (above + rows.replace("5;6;x;", "5;6;x;no")).replace(";", mark)


@pytest.mark.parametrize(
    "text", [",y\n0,a\n1,b\n", "name,y\na,1\nb,2\n", "x,,y\n1,2,a\n3,4,b\n", "y,x\na\nb\n", "a,b,y\n1,2,u\n3,4,v\n"]
)
def test_a_header_is_no_title(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    assert read_header(path, text.encode(), Format(",")).n_above == 0


class TestWorkbooks:
    """A sheet of Excel is read as the CSV that holds the same cells."""

    ROWS = (("age", "when", "done", "note", "y"), (31, datetime(2024, 1, 31), True, "N/A", "a"),
            (2.5, datetime(2024, 2, 1, 8, 30), False, "later", None), (None, None, True, " 1,5", "b"))  # fmt: skip

    @staticmethod
    def save(path: Path, sheets: dict[str, Sequence[Sequence[object]]]) -> Path:
        book = openpyxl.Workbook()
        book.remove(book.active)
        for name, rows in sheets.items():
            sheet = book.create_sheet(name)
            for row in rows:
                sheet.append(list(row))
        book.save(path)
        return path

    def test_cells_and_labels(self, tmp_path: Path) -> None:
        table = read_labeled_table(self.save(tmp_path / "t.xlsx", {"Data": self.ROWS}), "y")
        text = "age,when,done,note,y\n31,2024-01-31,True,N/A,a\n2.5,2024-02-01 08:30:00,False,later,\n"
        same = table_of(tmp_path, text + ',,True," 1,5",b\n')
        pd.testing.assert_frame_equal(table.cells, same.cells)
        assert table.labels.tolist() == ["a", None, "b"]
        assert not table.notes

    @given(st.lists(st.tuples(sheet_cell, sheet_cell), min_size=1, max_size=6))
    @settings(max_examples=30, deadline=None)
    def test_a_sheet_is_read_as_its_csv(self, rows: list[tuple[str, str]]) -> None:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            frame = pd.DataFrame([("k", *row) for row in rows], columns=["key", "a", "b"], dtype=object)
            frame.to_csv(Path(folder) / "t.csv", index=False, quoting=1, lineterminator="\r\n")
            self.save(Path(folder) / "t.xlsx", {"Data": [tuple(frame.columns), *frame.itertuples(index=False)]})
            pd.testing.assert_frame_equal(read_table(Path(folder) / "t.xlsx"), read_table(Path(folder) / "t.csv"))

    @pytest.mark.parametrize("above", [[("Sales",)], [("Sales",), (), ("by region", None, None)], [(), ("Sales", "")]])
    def test_titles_blank_rows_and_blank_columns(self, tmp_path: Path, above: list[tuple[object, ...]]) -> None:
        rows = [("Total\namount", " when", "y", None), (1, "x", "a", None), (), (2, "z", None, " "), ()]
        table = read_labeled_table(self.save(tmp_path / "t.xlsx", {"Data": [*above, *rows]}), "y")
        assert list(table.cells.columns) == ["Total amount", "when", "y"]
        assert table.labels.tolist() == ["a", None]
        (note,) = table.notes
        assert note.code is Code.TITLE

    def test_the_first_sheet_with_cells_is_read(self, tmp_path: Path) -> None:
        path = self.save(tmp_path / "t.xlsx", {"Blank": [], "Data": self.ROWS, "Other": [("x", "z"), (1, 2)]})
        (note,) = read_labeled_table(path, "y").notes
        assert (note.code, note.parameters) == (Code.SHEET, {"file": "t.xlsx", "sheet": "Data", "others": ["Other"]})
        with pytest.raises(TableError, match="a visible sheet with cells"):
            read_table(self.save(tmp_path / "none.xlsx", {"Blank": []}))

    def test_what_cannot_be_done(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = self.save(tmp_path / "t.xlsx", {"Data": self.ROWS})
        with pytest.raises(TableError, match=r"must be written to a \.csv"):
            label_writer(read_labeled_table(path, "y"), path.read_bytes())
        (tmp_path / "bad.xlsx").write_bytes(b"PK\x03\x04 is no workbook")
        with pytest.raises(FileError, match="could not be read as a workbook"):
            read_table(tmp_path / "bad.xlsx")
        monkeypatch.setitem(sys.modules, "openpyxl", None)
        path.write_bytes(path.read_bytes() + b" ")  # a content that was not read before
        with pytest.raises(ImportError, match=r"surefoot\[xlsx\]"):
            read_table(path)


def test_names_are_told_apart_by_more_than_blanks(tmp_path: Path) -> None:
    table = table_of(tmp_path, '"Total\namount",a b,"a  b",y\n1,2,3,u\n', label="y")
    assert list(table.cells.columns) == ["Total amount", "a b", "a  b", "y"]
    assert list(table_of(tmp_path, '" y",x\nu,3\n').cells.columns) == ["y", "x"]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [(["8,3e-05", "1,5", "2"], [8.3e-05, 1.5, 2.0]), (["1,5E3", "-2,25e+1", "7"], [1500.0, -22.5, 7.0])],
)
def test_powers_of_ten_are_numbers_in_a_column_with_decimal_commas(cells: list[str], expected: list[float]) -> None:
    column = pd.Series(cells, dtype=object)
    values, wrong = as_numbers(column, number_style(column))
    assert not wrong.any()
    assert values.tolist() == expected


def test_notes_on_many_columns_are_one_per_kind() -> None:
    dates = [f"{day:02d}.03.2024" for day in range(1, 29)]
    frame = pd.DataFrame({f"d{k}": dates for k in range(10)} | {"x": np.arange(28) % 5})
    notes = sort_columns(frame).notes
    assert [note.code for note in notes] == [Code.DATES] * 10
    (together,) = one_per_kind(notes)
    assert "'d0' (%d.%m.%Y" in together
    assert "and 2 more" in together
    assert one_per_kind(notes[:1]) == notes[:1]


def test_byte_order_marks_and_nameless_columns_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf,x\r\n0,1\r\n1,\r\n")
    frame = read_table(path)
    assert list(frame.columns) == ["column 1", "x"]
    assert frame["x"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (["1", "1.0", None, "2"], ["1", "1", None, "2"]),
        (["yes", " yes ", "", None], ["yes", "yes", None, None]),
        ([1.0, 0.0, np.nan, 1.0], ["1", "0", None, "1"]),
        ([True, False, None, True], ["True", "False", None, "True"]),
        (["1", "b", None, "01"], ["1", "b", None, "01"]),
    ],
)
def test_labels(column: list[object], expected: list[object]) -> None:
    assert read_labels(pd.Series(column)).tolist() == expected


def test_labels_that_differ_in_capitals_are_noted(tmp_path: Path) -> None:
    assert "'Yes', 'yes' differ only in capitals" in table_of(tmp_path, "x,y\n1,yes\n2,Yes\n3,\n").notes[0]


class TestColumns:
    def test_kinds(self) -> None:
        n = 40
        frame = pd.DataFrame(
            {
                "id": np.arange(n) + 5,
                "customer_id": [f"c{i}" for i in range(n)],
                "age": [str(i % 9) if i else None for i in range(n)],
                "city": ["a", "b"] * (n // 2),
                "flag": [True, False] * (n // 2),
                "code": [1, 2] * (n // 2),
            }
        )
        found = sort_columns(frame, categories=["code"])
        assert found.numbers == ["age"]
        assert found.categories == ["city", "flag", "code"]
        assert set(found.left_out) == {"id", "customer_id"}
        assert "ignoring 'id' (a row index); 'customer_id' (an identifier" in found.notes[0]

    def test_sorted_numbers_are_no_row_numbers(self) -> None:
        assert sort_columns(pd.DataFrame({"x": np.arange(40) * 3})).numbers == ["x"]

    def test_all_useless_columns_are_named_at_once(self) -> None:
        frame = pd.DataFrame({"a": [1, 1, 1], "b": [np.nan] * 3, "c": [1, 2, 4]})
        with pytest.raises(TableError, match=r"'a' \(constant.*'b' \(empty\).*--drop 'a,b'"):
            sort_columns(frame, strict=True)
        found = sort_columns(frame)
        assert found.used == ["c"]
        assert found.notes == ["ignoring 'a' (constant, '1'); 'b' (empty)."]
        with pytest.raises(TableError, match=r"a useful column .*'a' \(constant"):
            sort_columns(frame[["a", "b"]])


class TestCleaning:
    def test_numbers_are_cleaned_as_in_the_paper(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        numbers = rng.gamma(2.0, size=(30, 3))
        frame = pd.DataFrame(numbers, columns=list("abc")).assign(y=["u", None, "v"] * 10)
        frame.to_csv(tmp_path / "t.csv", index=False)
        pool = clean(read_labeled_table(tmp_path / "t.csv", "y"))
        assert pool.rows == pytest.approx(standardize(numbers), abs=1e-12)

    def test_gaps_and_categories(self, tmp_path: Path) -> None:
        table = table_of(tmp_path, "a,b,y\n1,p,u\n3,,v\n,q,\n5,p,\n")
        pool = clean(table)
        names = list(pool.cleaner.get_feature_names_out())
        assert names == ["a", "missingindicator_a", "b_(missing)", "b_p", "b_q"]
        scaled = pool.rows * pool.cleaner[-1].scale_
        spread = np.std([1, 3, 3, 5])
        assert scaled[:, 0] == pytest.approx((np.array([1, 3, 3, 5]) - 3) / spread)
        assert scaled[:, 1].tolist() == [0, 0, 1, 0]
        assert scaled[:, 2:].tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]
        assert np.abs(pool.rows).max() == 1.0
        assert pool.columns.used == ["a", "b"]
        again = pool.columns.read(pd.DataFrame({"b": ["new"], "a": [None]}))
        assert pool.cleaner.transform(again)[0, 2:].tolist() == [0, 0, 0]

    def test_the_scaler_is_an_ordinary_transformer(self) -> None:
        check_estimator(LargestEntryScaler())
        rows = np.array([[1.0, -4.0], [2.0, 0.0]])
        assert LargestEntryScaler().fit_transform(rows).tolist() == (rows / 4).tolist()
        assert LargestEntryScaler().fit(np.zeros((2, 2))).transform([[1.0, 2.0]]).tolist() == [[1.0, 2.0]]
        make_pipeline(LargestEntryScaler(), LogisticRegression()).fit(rows, [0, 1])
