"""Files, logs and locks: what a kill, a full disk or a second process leaves."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from surefoot._errors import FileError, LockedError
from surefoot._files import LineLog, check_writable, hold_file, read_events, whole_file, write_bytes

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and its locks")


def in_killed_child(work: Callable[[], None]) -> None:
    """Do some work in a child process, which is killed at its end without leaving any `with`."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


class TestWholeFile:
    def test_an_error_leaves_the_old_file(self, tmp_path: Path) -> None:
        path = tmp_path / "f"
        path.write_bytes(b"old")

        def stop(error: BaseException) -> None:
            with whole_file(path) as part:
                part.write_bytes(b"half")
                raise error

        with pytest.raises(FileError, match="No space left"):
            stop(OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(KeyboardInterrupt):
            stop(KeyboardInterrupt())
        assert path.read_bytes() == b"old"
        assert [file.name for file in tmp_path.iterdir()] == ["f"]

    def test_permissions_and_links_are_kept(self, tmp_path: Path) -> None:
        path, link = tmp_path / "f", tmp_path / "link"
        path.write_bytes(b"old")
        path.chmod(0o640)
        link.symlink_to(path)
        write_bytes(link, b"new")
        assert link.is_symlink()
        assert path.read_bytes() == b"new"
        assert path.stat().st_mode & 0o777 == 0o640
        mask = os.umask(0o027)
        try:
            write_bytes(tmp_path / "g", b"new")
        finally:
            os.umask(mask)
        assert (tmp_path / "g").stat().st_mode & 0o777 == 0o640

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_folder_without_rights_is_refused(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        with pytest.raises(FileError, match="may write to"):
            write_bytes(tmp_path / "f", b"")


@needs_fork
def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"old")

    def killed(target: Path) -> None:
        with whole_file(target) as part:
            part.write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)

    in_killed_child(lambda: killed(path))
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2
    with whole_file(path) as alive:
        write_bytes(path, b"new")  # another writer of the same file: the one that still writes keeps its own
        assert alive.exists()
        alive.write_bytes(b"newer")
    assert path.read_bytes() == b"newer"
    assert list(tmp_path.iterdir()) == [path]


def test_long_names_are_written(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 120 + ".csv")
    write_bytes(path, b"x")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_only_plain_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path / "link"):
        with pytest.raises(FileError, match="must be a plain file; it is a device"):
            write_bytes(path, b"x")
        assert path.is_fifo()
    with pytest.raises(FileError, match="must be a plain file; it is a device"):
        check_writable(os.devnull)  # asked only: root could replace it
    with pytest.raises(FileError, match="it is a folder"):
        check_writable(tmp_path)


class TestLineLog:
    def test_a_line_after_a_torn_one_is_whole(self, tmp_path: Path) -> None:
        log = LineLog(tmp_path / "log")
        log.append(b"first")
        for torn in (b"x", b"y" * 200_000):
            with log.path.open("ab") as file:
                file.write(torn)
            assert log.lines()[0] == b"first"
            assert torn not in log.lines()
            log.append(b"next")
        assert log.lines() == [b"first", b"next", b"next"]

    def test_a_write_that_fails_in_the_middle_leaves_no_trace(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log, write = LineLog(tmp_path / "log"), os.write
        log.append(b"first")
        with monkeypatch.context() as patch:
            patch.setattr("os.write", lambda file, line: write(file, line[:3]))
            with pytest.raises(OSError, match="only 3 of 7 bytes"):
                log.append(b"second")
        log.append(b"third")
        assert log.path.read_bytes() == b"first\nthird\n"

        def full(_file: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", full)
            with pytest.raises(OSError, match="No space left"):
                log.append(b"fourth")
        assert log.lines() == [b"first", b"third"]

    @pytest.mark.parametrize("line", [b"5", b"[]", b"null", b"{", b"\xff", b"[" * 100_000])
    def test_events_are_objects(self, tmp_path: Path, line: bytes) -> None:
        log = LineLog(tmp_path / "log")
        log.append(b"{}")
        log.append(line)
        with pytest.raises(FileError, match=r"must be a JSON object; got .* in line 2 of"):
            read_events(log)


@needs_fork
class TestLock:
    def test_a_second_holder_is_refused_by_any_name(self, tmp_path: Path) -> None:
        path, link = tmp_path / "table.csv", tmp_path / "link.csv"
        link.symlink_to(path)
        file = hold_file(path)
        with pytest.raises(LockedError):
            hold_file(link)
        os.close(file)
        os.close(hold_file(link))

    def test_a_killed_holder_holds_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "table.csv"
        in_killed_child(lambda: (hold_file(path), os.kill(os.getpid(), signal.SIGKILL)))
        os.close(hold_file(path))

    def test_no_two_hold_it_at_once(self, tmp_path: Path) -> None:
        """Four processes add 1 to a number 25 times each; without the lock, sums are lost."""
        lock, path = tmp_path / "lock", tmp_path / "n"
        path.write_text("0")
        children = []
        for _ in range(4):
            child = os.fork()
            if child == 0:
                done = 0
                while done < 25:
                    try:
                        file = hold_file(lock)
                        number = int(path.read_text())
                        time.sleep(1e-4)
                        path.write_text(str(number + 1))
                        done += 1
                        os.close(file)
                    except LockedError:
                        time.sleep(1e-4)
                os._exit(0)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
        assert path.read_text() == "100"
