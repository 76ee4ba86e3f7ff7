"""Journals of audits with damaged or forged lines: they are refused with the file named, or resumed."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import surefoot as sf

ODD = [None, 1, -1, 1.5, 1e308, 10**30, "x", "", [], {}, [1], {"a": 1}, True]
RNG = np.random.default_rng(0)
PREDICTIONS, SCORES = RNG.choice(["a", "b"], 60), RNG.random(60)
TRUTH = np.where(RNG.random(60) < 0.9, PREDICTIONS, "b")


def audit(path: Path) -> sf.Audit:
    return sf.Audit(predictions=PREDICTIONS, scores=SCORES, target_error=0.2, journal=path, random_state=0)


def changed(rng: Random, value: Any) -> Any:
    """A value of JSON with one part removed, added, or made odd."""
    if not isinstance(value, dict | list) or not value:
        return rng.choice(ODD)
    at = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    kind = rng.random()
    if kind < 0.3:
        value.pop(at)
    elif kind < 0.5 and isinstance(value, list):
        value.insert(at, rng.choice(ODD))
    else:
        value[at] = changed(rng, value[at])
    return value


def damaged(rng: Random, lines: list[str]) -> bytes:
    """The lines with one or two of them changed, left out, doubled, or cut."""
    lines = list(lines)
    for _ in range(rng.choice([1, 2])):
        at, kind = rng.randrange(len(lines)), rng.random()
        if kind < 0.6:
            lines[at] = json.dumps(changed(rng, json.loads(lines[at]) if lines[at].endswith("}") else {}))
        elif kind < 0.7 and len(lines) > 1:
            lines.pop(at)
        elif kind < 0.8:
            lines.insert(at, rng.choice(lines))
        elif kind < 0.9:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        else:
            lines[at] += "\x00\udcff"
    return ("\n".join(lines) + "\n" * rng.randrange(2)).encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("n_files", [100, pytest.param(1500, marks=pytest.mark.slow)])
def test_a_damaged_journal_is_refused_or_resumed(tmp_path: Path, n_files: int) -> None:
    """Two writers once made journals that ended in KeyError and in "not enough values to unpack"."""
    rng, path = Random(7), tmp_path / "journal.jsonl"
    first = audit(path)
    for _ in range(12):
        row = first.next()
        first.record(row, TRUTH[row])
    whole = first.bound().value
    del first
    lines, resumed, refused = path.read_text().splitlines(), 0, []
    for number in range(n_files):
        content = damaged(rng, lines)
        path.write_bytes(content)
        try:
            again = audit(path)
        except ValueError as error:
            refused.append(str(error))
            continue
        resumed += 1
        assert 0.0 <= again.bound().value <= 1.0, f"file {number}"
        if path.read_bytes() == "\n".join([*lines, ""]).encode():
            assert again.bound().value == whole
        del again
    assert n_files / 20 < resumed < n_files / 2
    assert all("journal" in message for message in refused), {one for one in refused if "journal" not in one}
