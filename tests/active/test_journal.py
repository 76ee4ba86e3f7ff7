"""The journal: no acknowledged answer is ever lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import surefoot.active as al
from refusals import refuses
from surefoot._errors import LockedError
from surefoot.bounds.journal import JournalFile, hash_rows

SRC = Path(al.__file__).resolve().parents[2]

X = np.random.default_rng(0).normal(size=(400, 3))
TRUTH = (X[:, 0] > 0).astype(int)

# Labels rows until it is killed; prints a row only when its label has been acknowledged.
LABELER = """
import sys
import numpy as np
from sklearn.linear_model import LogisticRegression
import surefoot.active as al

X = np.random.default_rng(0).normal(size=(400, 3))
truth = (X[:, 0] > 0).astype(int)
learner = al.ActiveLearner(LogisticRegression(), X, strategy=al.RandomSampling(random_state=0), journal=sys.argv[1])
print("ready", flush=True)
for row in np.random.default_rng(len(learner.labels)).permutation(learner.open_rows):
    if row % 7 == 0:
        learner.skip(row)
        print("skip", row, flush=True)
    else:
        learner.label(row, truth[row])
        print("label", row, flush=True)
    if learner.n_labels % 5 == 1:
        learner.fit()
"""


def learner(path: Path, **keywords: object) -> al.ActiveLearner:
    return al.ActiveLearner(LogisticRegression(), X, journal=path, **keywords)  # type: ignore[arg-type]


def test_a_killed_process_loses_no_answer(tmp_path: Path) -> None:
    path, rng = tmp_path / "answers.jsonl", np.random.default_rng()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")])}
    labeled: set[int] = set()
    skipped: set[int] = set()
    for kill in range(4):
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", LABELER, str(path)],
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if kill:
            time.sleep(float(rng.uniform(0.0, 0.05)))
        process.send_signal(signal.SIGKILL)
        acknowledged = process.stdout.read()
        ended = process.wait()
        assert ended == -signal.SIGKILL or (kill and ended == 0)  # a fast machine may label all rows first
        # the pipe may end within a line: what was not printed whole was not seen by anybody
        for line in acknowledged.rpartition("\n")[0].splitlines():
            kind, row = line.split()
            (labeled if kind == "label" else skipped).add(int(row))
        resumed = learner(path)
        assert labeled <= set(resumed.labels), f"kill {kill}"
        assert not skipped & set(resumed.open_rows.tolist())
        assert all(value == TRUTH[row] for row, value in resumed.labels.items())
        resumed.close()
        assert resumed.n_labels - len(labeled) <= kill + 1  # at most one more per kill: written, not yet printed
    assert labeled


def test_every_torn_end_is_repaired(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    first = learner(path)
    first.label([3, 4], [0, 1])
    first.label(5, 1)
    first.close()
    content = path.read_bytes()
    last = content.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(last, len(content)):
        path.write_bytes(content[:cut])
        resumed = learner(path)
        assert resumed.labels == {3: 0, 4: 1}
        resumed.label(9, 0)  # the torn line is gone: the next one is whole
        resumed.close()
        assert learner(path).labels == {3: 0, 4: 1, 9: 0}


def test_a_torn_header_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    learner(path)
    path.write_bytes(path.read_bytes()[:20])
    resumed = learner(path)
    resumed.label(1, 1)
    resumed.close()
    assert learner(path).labels == {1: 1}


def test_it_resumes_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    y = np.full(400, np.nan)
    y[:20] = TRUTH[:20]
    strategy = al.MinModelChange(random_state=0)
    first = al.ActiveLearner(LogisticRegression(), X, y, strategy=strategy, journal=path)
    first.run(lambda rows, _: TRUTH[rows], max_labels=25)
    first.skip(first.suggest(2))
    first.label(0, 1 - TRUTH[0])
    suggested = first.suggest(3)
    first.close()
    for given in (y, None):  # the journal holds the first labels too, and its corrections win
        resumed = al.ActiveLearner(LogisticRegression(), X, given, strategy=strategy, journal=path)
        assert resumed.labels == first.labels
        assert resumed.labels[0] == 1 - TRUTH[0]
        np.testing.assert_array_equal(resumed.open_rows, first.open_rows)
        assert resumed.rounds == first.rounds
        np.testing.assert_array_equal(resumed.suggest(3), suggested)
        assert resumed.rounds == first.rounds
        resumed.close()


def test_many_answers_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    learner(path).label([7, 8, 9], [0, 1, 0])
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    assert json.loads(lines[1]) == {"label": [[7, 0], [8, 1], [9, 0]]}
    assert json.loads(lines[0])["rows"] == 400


def test_labels_keep_their_types(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    first = learner(path)
    first.label([1, 2, 3, 4], ["naïve", np.str_("b"), "c\n", ""])
    first.close()
    assert learner(path).labels == {1: "naïve", 2: "b", 3: "c\n", 4: ""}
    numbers = learner(tmp_path / "numbers.jsonl")
    numbers.label([1, 2, 3], [np.int64(5), np.float32(0.5), True])
    numbers.close()
    assert learner(tmp_path / "numbers.jsonl").labels == {1: 5, 2: 0.5, 3: True}


def test_another_pool_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    learner(path)
    with refuses("fingerprint", repr(hash_rows(X)), repr(hash_rows(X[::-1]))):
        al.ActiveLearner(LogisticRegression(), X[::-1], journal=path)
    with refuses("rows", 400, 399):
        al.ActiveLearner(LogisticRegression(), X[1:], journal=path)
    assert hash_rows(X) != hash_rows(X[:, ::-1])
    assert hash_rows(X) == hash_rows(np.asfortranarray(X))


def test_one_learner_at_a_time_writes_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    first = learner(path)
    with pytest.raises(LockedError):
        learner(path)
    first.label(3, 1)
    first.close()
    assert learner(path).labels == {3: 1}


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text('{"a": 1}\n', encoding="utf-8")
    with refuses("journal", 1):
        learner(path)
    path.write_text("dear diary\nmore\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 1 of"):
        learner(path)


def test_an_answer_that_cannot_be_written_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "answers.jsonl"
    first = learner(path)

    def full(_file: int, _line: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.write", full)
        with pytest.raises(OSError, match="No space left"):
            first.label(3, 1)
    assert first.labels == {}
    first.label(4, 1)
    first.close()
    assert learner(path).labels == {4: 1}


def test_a_write_cut_short_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = JournalFile(tmp_path / "answers.jsonl")
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr("os.write", lambda file, line: write(file, line[:5]))
        with pytest.raises(OSError, match="only 5 of"):
            journal.append({"label": [[1, 1]]})
    assert journal.read() == []


@pytest.mark.parametrize(
    "line",
    [
        *(
            '{"label": 3}',
            '{"label": [[1]]}',
            '{"label": [[400, 1]]}',
            '{"label": [["a", 1]]}',
            '{"label": [[1, [2]]]}',
        ),
        *('{"skip": [1.5]}', '{"skip": 7.5}', '{"round": 1}', '{"round": {"x": 1}}', "[]", "5"),
    ],
)
def test_odd_lines_are_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "answers.jsonl"
    learner(path).label(3, 1)
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match="line 3 "):
        learner(path)


def test_an_answer_after_a_torn_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full for a moment must not make the next answer unreadable."""
    path, write = tmp_path / "answers.jsonl", os.write
    first = learner(path)
    with monkeypatch.context() as patch:
        patch.setattr("os.write", lambda file, line: write(file, line[:5]))
        patch.setattr("os.ftruncate", lambda *_: None)  # the torn line cannot be taken back either
        with pytest.raises(OSError, match="only 5 of"):
            first.label(3, 1)
    first.label(4, 1)
    first.close()
    assert learner(path).labels == {4: 1}
