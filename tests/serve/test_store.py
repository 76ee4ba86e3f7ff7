"""The store: what it acknowledges is there, once, whatever happens to the process or the disk."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from serve.services import make_store
from surefoot._errors import FileError
from surefoot.pool.database import LABEL, Event, NotSavedError
from surefoot.pool.store import Store, hashed


def test_it_writes_ahead_and_waits_for_the_disk(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert store._database._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._database._connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_events_come_back_in_order(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    placed = store.append([Event(LABEL, 3, 1, "yes", "audit", 0.25, 2, "k"), Event(LABEL, 4, 1, "no")])
    store.close()
    assert make_store(tmp_path).events() == placed
    assert [event.id for event in placed] == [1, 2]


def test_a_batch_is_whole_or_not_there(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append([Event(LABEL, 0, 1, "yes", key="a")])
    with pytest.raises(NotSavedError, match="Nothing was changed"):
        store.append([Event(LABEL, 1, 1, "yes", key="b"), Event(LABEL, 2, 1, "yes", key="a")])
    assert [event.row for event in store.events()] == [0]
    store.append([Event(LABEL, 1, 1, "yes", key="b")])
    assert [event.row for event in store.events()] == [0, 1]


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append([Event(LABEL, 0, 1, "yes")])
    pages = store._database._connection.execute("PRAGMA page_count").fetchone()[0]
    store._database._connection.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(NotSavedError, match=r"the disk is full or fails.*Make room"):
        store.append([Event(LABEL, row, 1, "x" * 500) for row in range(100)])
    assert [event.row for event in store.events()] == [0]
    store._database._connection.execute("PRAGMA max_page_count=100000")
    store.append([Event(LABEL, 5, 1, "yes")])
    assert [event.row for event in store.events()] == [0, 5]


def test_a_store_of_another_pool_is_refused(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    with pytest.raises(FileError, match="its rows is 200, that of the pool 30"):
        make_store(tmp_path, 30)


@pytest.mark.parametrize("content", [b"no database at all, only text that is long enough to look like one" * 9, None])
def test_another_file_is_refused_and_kept(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "pool.csv.surefoot.db"
    if content is None:
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE mine (x)")
        other.close()
        content = path.read_bytes()
    path.write_bytes(content)
    with pytest.raises(FileError):
        make_store(tmp_path)
    assert path.read_bytes() == content


def test_a_store_that_is_not_there_is_not_made_by_a_reader(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="does not exist"):
        Store(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []


def test_tokens_are_stored_as_hashes(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    token = store.invite("ada")
    ada = store.invited(token)
    assert ada is not None
    secret = store.sign_in(ada)
    assert store.signed_in(secret) == ada
    assert store.signed_in(token) is None
    assert len(token) >= 22  # 128 bits, six to a character
    store.close()
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert token.encode() not in content
    assert secret.encode() not in content
    assert hashed(token).encode() in content


def test_a_new_invitation_ends_the_old_one_and_its_sessions(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    old = store.invite("ada")
    secret = store.sign_in(store.invited(old))
    new = store.invite("Ada")
    assert store.invited(old) is None
    assert store.signed_in(secret) is None
    assert [person.name for person in store.people()] == ["ada"]
    assert store.invited(new) == store.people()[0]
