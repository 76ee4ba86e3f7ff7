"""Raw files: canonical forms, packed forms, checks, and where they are looked for."""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.datasets._catalogue import DATASETS, ISOLET, PULSAR
from surefoot.datasets._download import (
    Archive,
    DatasetCorruptError,
    RawFile,
    canonical_isolet,
    canonical_text,
    locate,
    user_cache,
)

CONTENT = b"1,2\n3,4\n"
FILE = RawFile("x.data", hashlib.sha256(CONTENT).hexdigest())
ARCHIVE = Archive(7, "x+y", "x", (FILE,))


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


class TestCanonicalText:
    @pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
    @pytest.mark.parametrize("last", [True, False])
    def test_line_ends_do_not_matter(self, end: bytes, last: bool) -> None:
        assert canonical_text(b"1,2" + end + b"3,4" + end * last) == CONTENT

    def test_runs_of_blanks_do_not_matter(self) -> None:
        assert canonical_text(b"ADT1  0.58\t0.61  \n\n ADT2 0.43 0.67") == b"ADT1 0.58 0.61\nADT2 0.43 0.67\n"

    @given(st.text(alphabet="ab,; \t\r\n").map(str.encode))
    def test_is_idempotent_and_keeps_the_fields(self, content: bytes) -> None:
        once = canonical_text(content)
        assert canonical_text(once) == once
        assert once.split() == content.split()

    def test_the_order_of_lines_matters(self) -> None:
        assert canonical_text(b"3,4\n1,2\n") != canonical_text(CONTENT)


class TestCanonicalIsolet:
    @staticmethod
    def rows(n: int) -> np.ndarray:
        rng = np.random.default_rng(0)
        return np.column_stack([rng.integers(-10_000, 10_001, (n, 617)), rng.integers(1, 27, n)])

    @staticmethod
    def text(rows: np.ndarray, form: str) -> bytes:
        return b"\n".join(b", ".join(form.encode() % (v / 1e4) for v in row[:-1]) + b", %d." % row[-1] for row in rows)

    def test_the_order_of_rows_and_the_form_of_numbers_do_not_matter(self) -> None:
        rows = self.rows(9)
        first = canonical_isolet(self.text(rows, "%.4f"))
        assert first == canonical_isolet(self.text(rows[::-1], " %.6e") + b"\n")
        back = np.frombuffer(first, "<i2").reshape(-1, 618)
        assert sorted(map(tuple, back)) == sorted(map(tuple, rows))

    def test_every_number_matters(self) -> None:
        rows = self.rows(3)
        other = rows.copy()
        other[1, 300] += 1 if other[1, 300] < 0 else -1
        assert canonical_isolet(self.text(rows, "%.4f")) != canonical_isolet(self.text(other, "%.4f"))

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"1, 2, 3.\n", "618 columns; got 3"),
            (b"0.00005, " * 617 + b"1.", "multiples of 0.0001"),
            (b"nan, " * 617 + b"1.", "multiples of 0.0001"),
            (b"4.0, " * 617 + b"1.", "multiples of 0.0001"),
            (b"<html>", "could not convert"),
        ],
    )
    def test_refuses_anything_else(self, content: bytes, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            canonical_isolet(content)


class TestRead:
    """RawFile.read: what it accepts, and how it fails."""

    def packed(self, compress_z: Callable[..., bytes]) -> dict[str, bytes]:
        return {
            "x.data": CONTENT,
            "x.data.gz": gzip.compress(CONTENT),
            "x.data.Z": compress_z(CONTENT),
            "x+y.zip": zipped(**{"Index": b"", "x.data": CONTENT}),
        }

    @pytest.mark.parametrize("name", ["x.data", "x.data.gz", "x.data.Z", "x+y.zip"])
    def test_packed_or_not(self, name: str, tmp_path: Path, compress_z: Callable[..., bytes]) -> None:
        path = tmp_path / name
        path.write_bytes(self.packed(compress_z)[name])
        assert FILE.read(path) == CONTENT

    @pytest.mark.parametrize(
        "members",
        [
            {"deep/er/x.data": CONTENT},
            {"x.data.gz": gzip.compress(CONTENT)},
            {"other.zip": zipped(y=b""), "x.zip": zipped(**{"x/x.data": CONTENT})},
            {"__MACOSX/._x.data": b"junk", "not-x.data": b"junk", "x.data": CONTENT},
        ],
    )
    def test_any_layout_of_the_zip(self, members: dict[str, bytes], tmp_path: Path) -> None:
        path = tmp_path / "x+y.zip"
        path.write_bytes(zipped(**members))
        assert FILE.read(path) == CONTENT

    def test_z_in_zip(self, tmp_path: Path, compress_z: Callable[..., bytes]) -> None:
        path = tmp_path / "x+y.zip"
        path.write_bytes(zipped(**{"x.data.Z": compress_z(CONTENT)}))
        assert FILE.read(path) == CONTENT

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("x.data", b"1,2\n3,5\n", "sha256 of its content"),
            ("x.data", b"", "sha256 of its content"),
            ("x.data.gz", gzip.compress(CONTENT)[:-9], "cannot be unpacked"),
            ("x.data.gz", gzip.compress(CONTENT)[:12] + b"\xff" * 12, "cannot be unpacked"),
            ("x.data.gz", b"not gzip", "cannot be unpacked"),
            ("x.data.Z", b"not compress", "cannot be unpacked: a .Z file must begin"),
            ("x+y.zip", zipped(**{"x.data": CONTENT})[:-30], "cannot be unpacked"),
            ("x+y.zip", zipped(**{"y.data": CONTENT}), "holds no file x.data"),
        ],
        # compressed bytes hold the time of day, which must not get into the names of tests
        ids=["other", "empty", "short-gz", "broken-gz", "no-gz", "no-Z", "short-zip", "other-zip"],
    )
    def test_damage_is_named(self, name: str, content: bytes, message: str, tmp_path: Path) -> None:
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(DatasetCorruptError, match=message) as caught:
            FILE.read(path)
        assert str(path) in str(caught.value) or path.as_posix() in str(caught.value)
        assert "Delete it" in str(caught.value)

    def test_text_that_is_no_isolet(self, tmp_path: Path) -> None:
        path = tmp_path / "isolet5.data"
        path.write_bytes(b"<html>sorry</html>")
        with pytest.raises(DatasetCorruptError, match=r"is not the isolet5\.data expected: could not convert"):
            ISOLET.files[1].read(path)


class TestFind:
    def put(self, path: Path, content: bytes = CONTENT) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def test_order_of_folders(self, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        in_cache = self.put(cache / "x" / "x.data")
        assert locate(ARCHIVE) == (in_cache,)
        in_variable = self.put(tmp_path / "variable" / "x" / "x.data.gz", gzip.compress(CONTENT))
        monkeypatch.setenv("SUREFOOT_DATA", str(tmp_path / "variable"))
        assert locate(ARCHIVE) == (in_variable,)
        in_argument = self.put(tmp_path / "argument" / "x.data")
        assert locate(ARCHIVE, tmp_path / "argument") == (in_argument,)
        assert locate(ARCHIVE, str(tmp_path / "nowhere")) == (in_variable,)

    def test_the_home_folder_may_be_written_as_tilde(
        self, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("USERPROFILE", str(tmp_path))
        path = self.put(tmp_path / "data" / "x" / "x.data")
        assert locate(ARCHIVE, "~/data") == (path,)
        monkeypatch.setenv("SUREFOOT_DATA", "~/data")
        assert locate(ARCHIVE) == (path,)

    def test_an_empty_variable_is_no_folder(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SUREFOOT_DATA", "")
        monkeypatch.chdir(self.put(cache.parent / "here" / "x.data").parent)
        with pytest.raises(FileNotFoundError):
            locate(ARCHIVE, download_if_missing=False)

    def test_files_may_come_from_different_folders(self, tmp_path: Path, cache: Path) -> None:
        two = Archive(7, "x+y", "x", (FILE, RawFile("z.data", FILE.sha256)))
        first, second = self.put(tmp_path / "x" / "x.data"), self.put(cache / "x" / "z.data")
        assert locate(two, tmp_path) == (first, second)

    def test_a_folder_of_that_name_is_no_file(self, tmp_path: Path, cache: Path) -> None:
        (tmp_path / "x" / "x.data").mkdir(parents=True)
        path = self.put(tmp_path / "x" / "x.data.gz")
        assert locate(ARCHIVE, tmp_path) == (path,)


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/xdg"}, "/xdg/surefoot/datasets"),
        ("linux", {"XDG_CACHE_HOME": ""}, "/home/me/.cache/surefoot/datasets"),
        ("darwin", {}, "/home/me/Library/Caches/surefoot/datasets"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/surefoot/datasets"),
        ("win32", {"LOCALAPPDATA": ""}, "/home/me/AppData/Local/surefoot/datasets"),
    ],
)
def test_user_cache_by_platform(
    platform: str, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert user_cache() == Path(expected)


# sha256 of the files that the UCI archive serves, as others have published them
PUBLISHED = {
    "abalone.data": "de37cdcdcaaa50c309d514f248f7c2302a5f1f88c168905eba23fe2fbc78449f",
    "agaricus-lepiota.data": "e65d082030501a3ebcbcd7c9f7c71aa9d28fdfff463bf4cf4716a3fe13ac360e",
    "ann-test.data": "c649ea19416e78c7996cfaaa2a9e281cb597d4b075aaa68c494fc3e4ee3aa30b",
    "ann-train.data": "3da53a156bda36cb0c97e9f4b6b111c9226c54c4aa00230de5604b787c47e3a6",
    "bank-full.csv": "d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d",
    "covtype.data": "0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945",
    "HTRU_2.csv": "b13b4d8929e96ecd196e464c1c8a454c3ac2ffa631015f6388957531a9923f59",
    "letter-recognition.data": "2b89f3602cf768d3c8355267d2f13f2417809e101fc2b5ceee10db19a60de6e2",
    "magic04.data": "e9314b7ebd4b4b59a3b3d65f7316663963777b16a46786877651dbbaa640b36a",
    "spambase.data": "b1ef93de71f97714d3d7d4f58fc9f718da7bbc8ac8a150eff2778616a8097b12",
    "winequality-white.csv": "76c3f809815c17c07212622f776311faeb31e87610d52c26d87d6e361b169836",
    "yeast.data": "7cf61776fc04f527f93bf57a327b863893a1225d82df02d457e8950173218258",
}
ARCHIVES = {dataset.archive.number: dataset.archive for dataset in DATASETS.values() if dataset.archive.files}
FILES = [(archive, file) for archive in ARCHIVES.values() for file in archive.files]


@pytest.mark.parametrize(("archive", "file"), FILES, ids=[file.name for _, file in FILES])
def test_checksums_hold_for_uci_files(archive: Archive, file: RawFile, dataset_path: Callable[[str], Path]) -> None:
    """The bytes that UCI serves pass our check, and a single changed character does not."""
    (path,) = Archive(archive.number, archive.slug, archive.folder, (file,)).find([dataset_path(archive.folder).parent])
    assert path is not None
    content = file.unpack(path.read_bytes(), path.as_posix())
    if archive is PULSAR:
        content = content.rstrip().replace(b"\n", b"\r")  # as UCI has it; our copy was saved anew
    if file.name in PUBLISHED:
        assert hashlib.sha256(content).hexdigest() == PUBLISHED[file.name]
    else:
        assert archive is ISOLET  # no checksum was published
    canonical = file.check(content, path)
    if file is ISOLET.files[0]:
        return  # takes seconds; isolet5.data goes on
    at = next(i for i in range(len(content) // 2, len(content)) if content[i : i + 1].isalnum())
    other = b"1" if content[at : at + 1] != b"1" else b"2"
    with pytest.raises(DatasetCorruptError, match="sha256"):
        file.check(content[:at] + other + content[at + 1 :], path)
    assert file.check(content + b"\n", path) == canonical
