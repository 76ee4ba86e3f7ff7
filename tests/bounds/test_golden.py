"""Journals and stores written before the engine was there draw the same rows and prove the same bounds.

golden_audits.json holds what the earlier audits wrote and proved: of `Audit`, of the loop and of the page.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

import surefoot as sf
from generators import numbered, told
from surefoot.active import ProvenLabeling, RandomSampling
from surefoot.bounds.engine import AuditEngine, AuditPolicy, level_of
from surefoot.pool.database import Event
from surefoot.pool.label_log import LabelLog
from surefoot.pool.schedule import AuditSchedule, Goal, is_shared
from surefoot.pool.store import FrozenBlobs

GOLDEN = json.loads((Path(__file__).parent / "golden_audits.json").read_text())
N = 120
TRUTH = (np.random.default_rng(0).random(N) < 0.4).astype(np.intp)
CLF, _ = told(TRUTH, 0.06, np.random.default_rng(1))
KNOWN = np.full(N, np.nan)
KNOWN[:40] = TRUTH[:40]
KNOWN[3] = 1 - TRUTH[3]
CLASSES = ["no", "yes"]


def restore(tmp_path: Path, lines: list[str]) -> Path:
    path = tmp_path / "journal.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("golden", GOLDEN["audits"], ids=lambda golden: golden["name"])
class TestAudit:
    def open(self, golden: dict[str, Any], path: Path) -> sf.Audit:
        y = KNOWN if golden["known"] else None
        return sf.Audit(CLF, numbered(N), y, journal=path, random_state=7, **golden["options"])

    def test_it_writes_the_same_journal_and_proves_the_same(self, tmp_path: Path, golden: dict[str, Any]) -> None:
        audit = self.open(golden, tmp_path / "new.jsonl")
        uppers = []
        for k in range(len(golden["uppers"])):
            row = audit.next()
            assert row is not None
            if k in golden["skips"]:
                audit.skip(row)
            else:
                audit.record(row, int(TRUTH[row]))
            uppers.append(audit.anytime_bound().value)
        assert uppers == golden["uppers"]
        assert (tmp_path / "new.jsonl").read_text().splitlines() == golden["journal"]

    def test_it_resumes_the_journal(self, tmp_path: Path, golden: dict[str, Any]) -> None:
        audit = self.open(golden, restore(tmp_path, golden["journal"]))
        assert audit.anytime_bound().value == golden["uppers"][-1]
        found = (audit.next(), audit.n_errors, audit.n_known, audit.proved)
        assert found == (golden["next"], golden["n_errors"], golden["n_known"], golden["proved"])
        if audit.is_uniform:
            assert audit.bound().value == golden["bound"]

    def test_a_changed_label_counts_as_if_it_had_been_so_at_first(self, tmp_path: Path, golden: dict[str, Any]) -> None:
        """Uniform and weighted draws alike: against the bounds that were recorded, after three changes and back."""
        engine = self.open(golden, restore(tmp_path, golden["journal"]))._engine
        labels = engine.labels
        changed = [list(labels)[k] for k in (len(labels) - 1, 0, 6)]
        known = [row for row in (3, 11) if row in engine.known]
        for row in [*changed, *known]:
            before = engine.known.get(row, labels.get(row))
            engine.settle(row, 1 - before if before is not None else 0)
        engine.unsettle(changed[0])
        for row in changed:
            engine.settle(row, labels[row])
        for row in known:
            engine.settle(row, int(KNOWN[row]))
        assert engine.labels == labels
        assert engine.anytime_upper == golden["uppers"][-1]


@pytest.mark.parametrize("golden", GOLDEN["series"], ids=lambda golden: golden["picks"])
def test_a_series_of_audits_resumes(tmp_path: Path, golden: dict[str, Any]) -> None:
    """Three classifiers frozen by hand, a skip in each audit, labels and a skip in learning."""
    found = ProvenLabeling(
        None,
        numbered(N),
        target_error=0.02,
        policy=AuditPolicy(budget=12),
        sampling=golden["picks"],
        random_state=3,
        journal=restore(tmp_path, golden["journal"]),
    )
    rng = np.random.default_rng(4)
    clf = [told(TRUTH, step["rate"], rng)[0] for step in golden["steps"]][-1]
    audit = found.freeze(clf)
    last = golden["steps"][-1]
    assert found.n_audits == golden["n_audits"] == 3
    assert sorted(found.labels.items()) == [tuple(pair) for pair in golden["labels"]]
    assert sorted(found.learned) == golden["learned"]
    assert sorted(found.skipped) == golden["skipped"]
    assert (audit.level, audit.anytime_upper, audit.n_errors) == (last["level"], last["bound"], last["n_errors"])
    assert list(audit.labels) == last["rows"]
    draw = audit.next_draw()
    assert draw is not None
    assert draw.row == golden["next"]


@pytest.mark.parametrize("golden", GOLDEN["proven"], ids=lambda golden: f"{golden['phase']} {golden['picks']}")
def test_a_loop_resumes(tmp_path: Path, golden: dict[str, Any]) -> None:
    X = np.random.default_rng(0).normal(size=(N, 2)).round(2)
    found = ProvenLabeling(
        KNeighborsClassifier(1),
        X,
        target_error=golden["target"],
        strategy=RandomSampling(random_state=0),
        classes=[0, 1],
        journal=restore(tmp_path, golden["journal"]),
        random_state=5,
        sampling=golden["picks"],
    )
    state = found.state
    for name in ("phase", "n_labels", "audit_labels", "audit_errors", "bound", "audit_level"):
        assert getattr(state, name) == golden[name], name
    assert state.n_audits == golden["audits"]
    assert (found.proof and found.proof.value) == golden["proof"]


@pytest.mark.parametrize("golden", GOLDEN["page"], ids=lambda golden: f"audit {golden['number']}")
def test_labels_in_any_order_and_changes_of_mind(golden: dict[str, Any]) -> None:
    """After each event of the page, its labels, errors, bound and next row, where a change counted all labels anew."""
    predictions = [CLASSES[k] for k in CLF.predictions]
    known = {row: CLASSES[TRUTH[row]] for row in range(golden["known"])}
    level, seed = level_of(0.9, golden["number"]), golden["seed"] + golden["number"]
    engine = AuditEngine(predictions, known, level=level, seed=seed, target=golden["target"])
    assert [draw.row for draw in engine.draw(20)] == golden["order"]
    for row, kind, label, n_labels, n_errors, bound, proved, waiting in golden["events"]:
        if kind == "undo":
            engine.unsettle(row)
        else:
            engine.settle(row, label)
        draw = engine.next_draw()
        found = (engine.n_labels, engine.n_errors, engine.anytime_upper, engine.proved)
        assert found == (n_labels, n_errors, bound, proved)
        assert (None if draw is None else draw.row) == waiting


@pytest.mark.parametrize("golden", GOLDEN["desks"], ids=lambda golden: f"{golden['phase']} {golden['n_audits']}")
def test_the_events_of_a_store_replay(golden: dict[str, Any]) -> None:
    """Two people, undo, skips, conflicts that are settled, several audits."""
    book = LabelLog(golden["n_rows"], CLASSES, lambda row: is_shared(row, 0.2, 0))

    def frozen(audit: int) -> FrozenBlobs:
        predictions, known, _ = golden["frozen"][audit - 1]
        return FrozenBlobs(audit, base64.b64decode(predictions), base64.b64decode(known))

    turns = AuditSchedule(book, Goal(golden["target"], 0.9, 0), 4, frozen)
    for values in golden["events"]:
        event = Event(**values)
        book.apply(event)
        turns.apply(event)
    assert [[point.n_labels, point.value, point.audit] for point in turns.curve.points] == golden["curve"]
    assert (turns.phase, turns.n_audits) == (golden["phase"], golden["n_audits"])
    assert (None if turns.last is None else list(turns.last[:3])) == golden["last"]
    assert (None if turns.audit is None else turns.audit.anytime_upper) == golden["bound"]
