"""Audits: the draws, the bounds, the journal, what is refused; the labels planned and those they take."""

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
from scipy.stats import hypergeom
from sklearn.linear_model import LogisticRegression

import surefoot as sf
from generators import Told, numbered, told
from refusals import Refused, refuses
from surefoot._errors import FileError, LockedError
from surefoot.priors.clopper_pearson import hypergeometric_upper

SRC = Path(sf.__file__).resolve().parents[1]
N = 300
TRUTH = (np.random.default_rng(0).random(N) < 0.4).astype(np.intp)
CLF, ERROR = told(TRUTH, 0.06, np.random.default_rng(1))


def audit(**keywords: object) -> sf.Audit:
    return sf.Audit(CLF, numbered(N), **{"random_state": 0, **keywords})  # type: ignore[arg-type]


def answer(row: int) -> int:
    return int(TRUTH[row])


class TestDraws:
    @pytest.mark.parametrize("picks", ["uniform", "weighted"])
    def test_every_row_comes_once_and_the_bound_ends_at_the_truth(self, picks: str) -> None:
        found = audit(sampling=picks).run(answer)
        assert sorted(found.labels) == list(range(N))
        assert found.next() is None
        assert found.n_errors == round(ERROR * N)
        if picks == "uniform":
            assert found.anytime_bound().value == pytest.approx(ERROR)
        assert found.anytime_bound().value >= ERROR - 1e-12

    def test_next_is_the_same_until_recorded(self) -> None:
        found = audit()
        first = found.next()
        assert found.next() == first
        assert first is not None
        found.record(first, answer(first))
        assert found.next() != first

    def test_another_classifier_gets_other_rows(self) -> None:
        """So labels of one audit, used to train the next classifier, are not its next audit's first rows again."""
        other = Told(1 - CLF.predictions, CLF.beliefs)
        rows = list(audit().run(answer, max_labels=40).labels)
        others = list(sf.Audit(other, numbered(N), random_state=0).run(answer, max_labels=40).labels)
        assert len(set(rows) & set(others)) < 20

    def test_uniform_draws_hit_every_row_alike(self) -> None:
        counts = np.zeros(30)
        for seed in range(600):
            rows = sf.Audit(CLF, numbered(30), random_state=seed).run(answer, max_labels=10).labels
            counts[list(rows)] += 1
        assert np.abs(counts / 600 - 1 / 3).max() < 0.08

    def test_known_labels_count_and_are_not_drawn(self) -> None:
        y = np.full(N, np.nan)
        y[:100] = TRUTH[:100]
        known_errors = int(np.sum(CLF.predictions[:100] != TRUTH[:100]))
        found = audit(y=y).run(answer, max_labels=50)
        assert min(found.labels) >= 100
        most = hypergeometric_upper(found.n_errors, 50, 200, 0.9)
        assert found.bound().value == pytest.approx((known_errors + most) / N)


class TestBounds:
    def test_the_planned_bound_counts_what_is_missing_as_errors(self) -> None:
        found = audit(n_labels=60)
        values = []
        while (row := found.next()) is not None:
            found.record(row, answer(row))
            values.append(found.bound().value)
        assert np.all(np.diff(values) <= 0)
        assert found.n_labels == 60
        assert values[-1] == hypergeometric_upper(found.n_errors, 60, N, 0.9) / N
        assert "60, was fixed in advance" in found.bound().assumptions[-1]

    def test_without_a_plan_the_present_number_stands_for_it(self) -> None:
        found = audit().run(answer, max_labels=25)
        assert found.bound().value == hypergeometric_upper(found.n_errors, 25, N, 0.9) / N
        assert audit().bound().value == 1.0
        assert audit().anytime_bound().value == 1.0

    def test_a_skipped_row_counts_as_an_error(self) -> None:
        found = audit()
        row = found.next()
        assert row is not None
        found.skip(row)
        assert found.n_errors == 1
        assert found.labels == {row: None}
        assert found.run(lambda _: None, max_labels=5).n_errors == 5

    def test_one_rule_proves(self) -> None:
        found = audit(target_error=0.12, n_labels=100).run(answer)
        assert found.rule == "planned"
        assert found.proved is (found.bound().value <= 0.12)
        peeking = audit(target_error=0.12).run(answer)
        assert peeking.rule == "anytime"
        assert peeking.proved
        assert peeking.n_labels < N
        assert peeking.anytime_bound().value <= 0.12
        assert not audit().run(answer).proved  # no target

    def test_picks_follow_the_planned_size(self) -> None:
        weighted = audit(sampling="auto", n_labels=200, rule="anytime")
        assert not weighted.is_uniform
        assert "betting" in weighted.anytime_bound().method
        assert audit(sampling="auto", n_labels=199, rule="anytime").is_uniform
        assert audit(sampling="auto").is_uniform
        with refuses("sampling"):
            audit(sampling="weighted").bound()
        with refuses("sampling", "'uniform'"):
            audit(sampling="weighted", n_labels=50)

    def test_it_prints(self) -> None:
        found = audit(target_error=0.2).run(answer, max_labels=30)
        assert "errors on" in repr(found)
        assert "theorem" in repr(found.anytime_bound())
        assert found.anytime_bound().kind == "theorem"


class TestPredictions:
    """Predictions in place of a classifier."""

    def given(self, **keywords: object) -> sf.Audit:
        scores = 1.0 - CLF.beliefs
        options = {"predictions": CLF.predictions, "scores": scores, "random_state": 0, **keywords}
        return sf.Audit(**options)  # type: ignore[arg-type]

    @pytest.mark.parametrize("sampling", ["uniform", "weighted"])
    def test_they_are_audited_as_the_classifier_that_makes_them(self, sampling: str) -> None:
        found = self.given(sampling=sampling).run(answer, max_labels=60)
        same = audit(sampling=sampling).run(answer, max_labels=60)
        assert found.labels == same.labels
        assert found.anytime_bound().value == same.anytime_bound().value
        assert found.anytime_bound().statement.endswith("of the 300 rows of the pool")

    def test_texts(self) -> None:
        words = np.where(CLF.predictions == 1, "spam", "ham")
        found = sf.Audit(predictions=words, n_labels=50, random_state=0)
        found.run(lambda row: "spam" if TRUTH[row] else "ham")
        assert found.n_errors == sum(words[row] != label for row, label in found.labels.items())
        assert found.bound().value == hypergeometric_upper(found.n_errors, 50, N, 0.9) / N

    @pytest.mark.parametrize(
        ("keywords", "match"),
        [
            ({"predictions": None}, "clf"),
            ({"clf": CLF, "X_pool": numbered(N)}, "predictions"),
            ({"clf": CLF, "predictions": None}, "X_pool"),
            ({"predictions": []}, ("predictions", "shape (0,)")),
            ({"predictions": [[0, 1]]}, ("predictions", "shape (1, 2)")),
            ({"predictions": [0, None], "scores": None}, ("predictions", "None at row 1")),
            ({"predictions": [0.0, np.nan], "scores": None}, ("predictions", "nan at row 1")),
            ({"predictions": ["a", "c"], "classes": ["a", "b"], "scores": None}, ("predictions", "'c' at row 1")),
            ({"scores": np.where(np.arange(N) == 7, np.nan, 0.5)}, ("scores", "nan")),
            ({"scores": np.ones(7)}, ("scores", "shape (7,)")),
            ({"scores": ["high"] * N}, "scores"),
            ({"scores": None, "sampling": "weighted"}, "scores"),
            ({"scores": np.full(N, 3.0), "sampling": "weighted"}, "scores"),
        ],
    )
    def test_refusals(self, keywords: dict[str, object], match: Refused) -> None:
        with refuses(match):
            self.given(**keywords)

    def test_other_scores_are_refused_by_the_journal(self, tmp_path: Path) -> None:
        path = tmp_path / "audit.jsonl"
        self.given(journal=path).run(answer, max_labels=3)
        with refuses("scores"):
            self.given(journal=path, scores=CLF.beliefs)
        assert self.given(journal=path).n_labels == 3


class TestAnyOrder:
    """Rows that `next_rows` gives, labeled in any order."""

    @pytest.mark.parametrize("sampling", ["uniform", "weighted"])
    def test_the_order_of_the_labels_does_not_matter(self, sampling: str, tmp_path: Path) -> None:
        path = tmp_path / "audit.jsonl"
        found = audit(sampling=sampling, journal=path)
        rows = found.next_rows(20)
        assert rows == list(audit(sampling=sampling).run(answer, max_labels=20).labels)
        assert found.next_rows(20) == rows
        shuffled = np.random.default_rng(3).permutation(rows).tolist()
        for row in shuffled[:12]:
            found.record(row, answer(row))
        found.close()
        again = audit(sampling=sampling, journal=path)
        assert again.labels == found.labels
        left = [row for row in rows if row not in shuffled[:12]]
        assert again.next_rows(8) == left
        for row in left:
            again.record(row, answer(row))
        whole = audit(sampling=sampling).run(answer, max_labels=20)
        assert again.labels == whole.labels
        assert again.anytime_bound().value == whole.anytime_bound().value
        assert again.next() == whole.next()

    def test_rows_not_given_and_rows_answered_are_refused(self) -> None:
        found = audit()
        rows = found.next_rows(5)
        found.record(rows[3], 0)
        for row in (rows[3], next(r for r in range(N) if r not in rows)):
            with refuses("row", row):
                found.record(row, 0)
        assert found.n_labels == 0
        with refuses("n", 0):
            found.next_rows(0)

    def test_it_ends_with_the_plan_and_the_pool(self) -> None:
        assert len(audit(n_labels=7).next_rows(100)) == 7
        assert len(audit().next_rows(1000)) == N
        assert audit().run(answer).next_rows(3) == []


class TestRefusals:
    @pytest.mark.parametrize(
        ("keywords", "match"),
        [
            ({"level": 1.0}, "level"),
            ({"level": 0}, "level"),
            ({"target_error": 1.5}, ("target_error", 1.5)),
            ({"n_labels": 0}, ("n_labels", 0)),
            ({"rule": "both"}, ("rule", "'both'")),
            ({"rule": "planned"}, ("n_labels", "None")),
            ({"sampling": "unsure"}, ("sampling", "'unsure'")),
            ({"uniform_fraction": 0.1, "sampling": "weighted"}, ("uniform_fraction", 0.2)),
            ({"random_state": -1}, ("random_state", -1)),
            ({"y": [0, 1]}, ("y", "shape (2,)")),
        ],
    )
    def test_arguments(self, keywords: dict[str, object], match: Refused) -> None:
        with refuses(match):
            audit(**keywords)

    def test_rows_not_drawn_and_classes_not_known(self) -> None:
        found = audit().run(answer, max_labels=3)
        row = found.next()
        assert row is not None
        other = next(r for r in range(N) if r != row and r not in found.labels)
        with refuses("row", row, other):
            found.record(other, 0)
        recorded = next(iter(found.labels))
        with refuses("row", 33):
            found.record(recorded, 0)
        with refuses("label", "[0, 1]", 2):
            found.record(row, 2)
        with refuses("label", "nan"):
            found.record(row, float("nan"))
        assert found.n_labels == 3  # nothing was lost, nothing was added
        found.record(row, answer(row))
        assert found.n_labels == 4

    def test_a_class_may_be_named_that_is_never_predicted(self) -> None:
        found = audit(classes=[0, 1, 2])
        row = found.next()
        assert row is not None
        found.record(row, 2)
        assert found.n_errors == 1

    def test_an_unfitted_classifier(self) -> None:
        with refuses("classifier"):
            sf.Audit(LogisticRegression(), numbered(5))


class TestJournal:
    @pytest.mark.parametrize("picks", ["uniform", "weighted"])
    def test_it_resumes_where_it_was(self, tmp_path: Path, picks: str) -> None:
        whole = audit(sampling=picks).run(answer, max_labels=40)
        path = tmp_path / "audit.jsonl"
        audit(sampling=picks, journal=path).run(answer, max_labels=17)
        resumed = audit(sampling=picks, journal=path).run(answer, max_labels=40)
        assert resumed.labels == whole.labels
        assert resumed.anytime_bound().value == whole.anytime_bound().value
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert len(lines) == 41
        assert all(0 < line["p"] <= 1 for line in lines[1:])

    def test_without_a_seed_the_journal_keeps_its_own(self, tmp_path: Path) -> None:
        path = tmp_path / "audit.jsonl"
        first = audit(random_state=None, journal=path).run(answer, max_labels=5)
        row = first.next()
        first.close()
        assert audit(random_state=None, journal=path).next() == row

    def test_a_torn_line_is_cut_off(self, tmp_path: Path) -> None:
        path = tmp_path / "audit.jsonl"
        audit(journal=path).run(answer, max_labels=9)
        whole = path.read_bytes()
        path.write_bytes(whole[:-7])
        resumed = audit(journal=path)
        assert resumed.n_labels == 8
        resumed.run(answer, max_labels=9)
        assert path.read_bytes() == whole

    def test_another_classifier_is_refused(self, tmp_path: Path) -> None:
        """As one trained on audited rows is, which predicts otherwise."""
        path = tmp_path / "audit.jsonl"
        audit(journal=path).run(answer, max_labels=20)
        before = path.read_bytes()
        other, _ = told(TRUTH, 0.03, np.random.default_rng(5))
        with refuses("predictions"):
            sf.Audit(other, numbered(N), random_state=0, journal=path)
        assert path.read_bytes() == before

    @pytest.mark.parametrize("change", [{"level": 0.95}, {"random_state": 1}, {"n_labels": 50}])
    def test_other_arguments_are_refused(self, tmp_path: Path, change: dict[str, object]) -> None:
        path = tmp_path / "audit.jsonl"
        audit(journal=path).run(answer, max_labels=4)
        with refuses("seed" if "random_state" in change else next(iter(change))):
            audit(journal=path, **change)

    def test_a_changed_journal_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "audit.jsonl"
        audit(journal=path).run(answer, max_labels=4)
        lines = path.read_text().splitlines()
        path.write_text("\n".join([lines[0], *lines[2:]]) + "\n")  # a label that did not please
        with pytest.raises(FileError, match=r"audit\.jsonl .* line 2 .*got row"):
            audit(journal=path)

    def test_a_file_of_another_kind_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "other.jsonl"
        path.write_text('{"journal":"surefoot.active","version":1}\n')
        with refuses("journal"):
            audit(journal=path)

    def test_a_second_writer_is_refused_until_the_first_is_done(self, tmp_path: Path) -> None:
        path = tmp_path / "audit.jsonl"
        first = audit(journal=path).run(answer, max_labels=3)
        for _ in range(2):  # a refusal leaves the lock where it was
            with pytest.raises(LockedError):
                audit(journal=path)
        first.run(answer, max_labels=5)
        first.close()
        with refuses("row", 0):
            first.record(0, 0)
        second = audit(journal=path)
        assert second.n_labels == 5
        del second
        assert audit(journal=path).n_labels == 5

    def test_another_process_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "audit.jsonl"
        folders = [str(SRC), str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
        with subprocess.Popen(
            [sys.executable, "-c", AUDITOR + "\nimport time; time.sleep(60)", str(path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            with pytest.raises(LockedError):
                audit(journal=path)
            process.kill()
        assert audit(journal=path).n_labels >= 1

    @pytest.mark.parametrize(
        ("line", "damaged"),
        [
            (1, '{"journal":"surefoot.audit","version":1}'),
            (1, "SEEDLESS"),
            (1, "ODD KNOWN"),
            (1, "not JSON"),
            (3, "{}"),
            (3, '{"label":5}'),
            (3, '{"label":[5]}'),
            (3, '{"label":[1,2,3],"p":0.1}'),
            (3, '{"label":{"row":1},"p":0.1}'),
            (3, '{"skip":[]}'),
            (3, '{"skip":null}'),
            (3, '{"label":["5",1],"p":0.1}'),
            (3, "NULL LABEL"),
            (3, "[1, 2]"),
        ],
    )
    def test_a_damaged_journal_is_named_with_its_line(self, tmp_path: Path, line: int, damaged: str) -> None:
        path = tmp_path / "audit.jsonl"
        audit(journal=path).run(answer, max_labels=6)
        lines = path.read_text().splitlines()
        header, event = json.loads(lines[0]), json.loads(lines[2])
        made = {
            "SEEDLESS": {key: value for key, value in header.items() if key != "seed"},
            "ODD KNOWN": {**header, "known": [[1, 0], [2]]},
            "NULL LABEL": {"label": [event["label"][0], None], "p": event["p"]},
        }
        lines[line - 1] = json.dumps(made[damaged]) if damaged in made else damaged
        path.write_text("\n".join(lines) + "\n")
        before = path.read_bytes()
        for _ in range(2):  # the second time, too: the first has let go of the file
            with pytest.raises(ValueError, match=r"audit\.jsonl") as found:
                audit(journal=path, random_state=None if line == 1 else 0)
            assert not isinstance(found.value, LockedError)
            assert f"line {line}" in str(found.value) or damaged.startswith('{"journal"')
        assert path.read_bytes() == before

    def test_a_log_that_lies_elsewhere(self) -> None:
        """Any object with read and append: a table of a database, say."""

        class Log:
            def __init__(self) -> None:
                self.lines: list[str] = []

            def read(self) -> list[dict[str, object]]:
                return [json.loads(line) for line in self.lines]

            def append(self, event: dict[str, object]) -> None:
                self.lines.append(json.dumps(event))

        log = Log()
        first = audit(journal=log).run(answer, max_labels=7)
        assert len(log.lines) == 8
        again = audit(journal=log)
        assert again.labels == first.labels
        assert again.next() == first.next()
        log.lines[4] = "{}"
        with pytest.raises(ValueError, match="line 5"):
            audit(journal=log)

    def test_a_killed_process_loses_no_answer(self, tmp_path: Path) -> None:
        path = tmp_path / "audit.jsonl"
        folders = [str(SRC), str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
        for kill in range(2):
            process = subprocess.Popen(
                [sys.executable, "-c", AUDITOR, str(path)],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
            )
            assert process.stdout is not None
            acknowledged = [process.stdout.readline() for _ in range(5 + 3 * kill)]
            time.sleep(0.01 * kill)
            process.send_signal(signal.SIGKILL)
            acknowledged += process.stdout.readlines()
            process.wait()
            rows = {int(line) for line in acknowledged if line.endswith("\n")}
            assert len(rows) >= 5
            assert rows <= set(audit(journal=path).labels)


AUDITOR = """
import sys
import numpy as np
import surefoot as sf
from generators import numbered, told

truth = (np.random.default_rng(0).random(300) < 0.4).astype(np.intp)
clf, _ = told(truth, 0.06, np.random.default_rng(1))
audit = sf.Audit(clf, numbered(300), journal=sys.argv[1], random_state=0)
while (row := audit.next()) is not None:
    audit.record(row, int(truth[row]))
    print(row, flush=True)
"""


class TestSize:
    def test_the_plot_draws_what_the_curve_says(self) -> None:
        import matplotlib as mpl

        mpl.use("agg")
        size = sf.audit_size(target=0.1, expected_error=0.0, n_pool=400)
        axes = size.plot([0.1])
        shares, labels = axes.lines[0].get_data()
        np.testing.assert_array_equal(labels, size.curve(np.asarray(shares) / 100))
        assert labels[0] == size.n_labels
        assert len(size.plot().lines) == 3

    def test_known_labels_leave_fewer_rows_to_draw_from(self) -> None:
        truth = np.zeros(200, dtype=np.intp)
        clf = Told(np.where(np.arange(200) < 6, 1, 0), np.full(200, 0.1))
        known = np.where(np.arange(200) < 100, truth.astype(float), np.nan)  # six errors among them
        audit = sf.Audit(clf, numbered(200), known, target_error=0.1, random_state=0)
        size = audit.expected_size(0.0)
        assert (size.n_pool, size.target) == (100, pytest.approx(0.14))  # 20 errors are allowed, 6 are there
        audit.run(lambda row: int(truth[row]), max_labels=size.n_labels)
        assert audit.bound().value <= 0.1
        assert audit.n_known == 100

    def test_the_plan_is_the_least_that_does(self) -> None:
        """Against a search over every number of labels and every number of errors allowed."""
        size = sf.audit_size(target=0.1, expected_error=0.03, n_pool=200, power=0.8)
        bad, real = 21, 6
        enough = [
            n
            for n in range(1, 201)
            if any(hypergeom.cdf(c, 200, bad, n) <= 0.1 and hypergeom.cdf(c, 200, real, n) >= 0.8 for c in range(bad))
        ]
        assert size.n_labels == enough[0]
        assert size.n_errors is not None
        assert hypergeometric_upper(size.n_errors, size.n_labels, 200, 0.9) <= 20

    @pytest.mark.slow
    def test_an_audit_takes_what_was_said(self) -> None:
        """Of 60 audits each, as many as the confidence level says reach the target by the planned size, peeking."""
        M, target = 10, 0.1
        wrong = np.arange(400) < M
        clf = Told(np.where(wrong, 1, 0), np.full(400, 0.1))
        size = sf.audit_size(target=target, expected_error=M / 400, n_pool=400, power=0.8)
        assert size.n_labels is not None
        assert size.n_anytime is not None
        planned = [
            sf.Audit(clf, numbered(400), target_error=target, n_labels=size.n_labels, random_state=s)
            .run(lambda _: 0)
            .proved
            for s in range(60)
        ]
        peeking = [
            sf.Audit(clf, numbered(400), target_error=target, random_state=s).run(lambda _: 0).n_labels
            for s in range(60)
        ]
        assert sum(planned) >= 42
        assert 42 <= sum(n <= size.n_anytime for n in peeking) <= 58

    def test_laws(self) -> None:
        size = sf.audit_size(0.05, 0.02, 5000)
        curve = size.curve([0.0, 0.01, 0.02, 0.03])
        assert np.all(np.diff(curve) > 0)
        assert curve[2] == size.n_labels
        table = size.table([0.02, 0.05, 0.1], [0.0, 0.01])
        assert table.shape == (3, 2)
        assert np.all(np.diff(table, axis=0) < 0)
        assert np.isnan(size.curve([0.06])[0])
        assert sf.audit_size(0.05, 0.06, 5000).n_labels is None
        assert "more than all 5000 rows" in repr(sf.audit_size(0.05, 0.06, 5000))
        assert str(size.n_labels) in repr(size)
        assert audit(target_error=0.1).expected_size(0.02).n_pool == N

    @pytest.mark.parametrize("bad", [{"target": 2}, {"expected_error": -1}, {"n_pool": 0}, {"level": 1}, {"power": 7}])
    def test_refusals(self, bad: dict[str, float]) -> None:
        with refuses(next(iter(bad))):
            sf.audit_size(**bad)  # type: ignore[arg-type]
