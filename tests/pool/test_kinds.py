"""What a column holds: dates, decimal commas, free text, identifiers, mixtures; and how it is scaled."""

from __future__ import annotations

import io
import re
import warnings
from datetime import date, datetime, timedelta
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
import skops.io
import skrub
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from surefoot.pool.model_file import ModelFile, load_model, save_model
from surefoot.pool.notes import Code
from surefoot.pool.table import TableError, clean, read_labeled_table, sort_columns
from surefoot.pool.table.cells import COMMA, FORMATS, POINT, THOUSANDS, as_days, as_numbers, date_format, number_style
from surefoot.pool.table.cleaning import FARTHEST, DateParts, TailScaler, TextParts
from surefoot.pool.table.columns import counts_rows, is_free_text
from surefoot.pool.table.pool import as_targets, in_order

SUBJECTS = ["invoice", "refund", "parcel", "password", "screen", "battery", "contract", "address"]


def tickets(n: int, seed: int = 0) -> pd.DataFrame:
    """Support tickets of two kinds, told apart by their words alone."""
    rng = np.random.default_rng(seed)
    billing = rng.random(n) < 0.5
    texts = [
        f"Dear team, number {rng.integers(10**6)}: my {rng.choice(SUBJECTS)} "
        + (rng.choice(["charge", "payment", "card"]) if kind else rng.choice(["crash", "freeze", "error"]))
        + f" happened again on day {rng.integers(400)}, please {rng.choice(['help', 'call', 'write'])} me soon"
        for kind in billing
    ]
    return pd.DataFrame({"ticket": texts, "kind": np.where(billing, "billing", "technical")})


class TestDates:
    @pytest.mark.parametrize("how", [text for text in FORMATS if "%d" in text and "%y" not in text][::3])
    def test_the_common_formats_are_read_as_python_reads_them(self, how: str) -> None:
        moments = [datetime(2021, 1, 30, 13, 5, 7) + timedelta(days=17 * i, hours=i) for i in range(40)]
        texts = [moment.strftime(how) for moment in moments]
        expected = [(datetime.strptime(text, how) - datetime(1970, 1, 1)) / timedelta(days=1) for text in texts]
        found = date_format(pd.Series(texts))
        assert found is not None
        assert as_days(pd.Series(texts), found[0]) == pytest.approx(expected)

    def test_iso_dates_of_parquet_and_text_agree(self) -> None:
        days = pd.Series(pd.date_range("2020-02-25", periods=30, freq="36h"))
        texts = days.dt.strftime("%Y-%m-%dT%H:%M:%SZ")
        stored, written = date_format(days), date_format(texts)
        assert stored is not None
        assert written is not None
        assert as_days(days, stored[0]) == pytest.approx(as_days(texts, written[0]))

    def test_a_long_cell_takes_linear_time(self) -> None:
        """With time that grows as the square of the length, this would take hours."""
        assert date_format(pd.Series(["-" * 3_000_000, "13/02/2021", "01/03/2021"])) is None

    def test_day_or_month_first_is_decided_by_the_column_or_said(self) -> None:
        assert date_format(pd.Series(["13/02/2021", "01/03/2021"])) == ("%d/%m/%Y", None)
        assert date_format(pd.Series(["02/13/2021", "01/03/2021"])) == ("%m/%d/%Y", None)
        doubt = pd.DataFrame({"day": ["01/02/2021", "03/04/2021", "05/06/2021"], "x": [1, 2, 4]})
        assert "%d/%m/%Y is also possible" in sort_columns(doubt).notes[0]

    @pytest.mark.parametrize(
        "cells",
        [["1-2", "3-4"], ["a-1", "b-2"], [1.5, 2.5], ["2020", "2021"], ["4.5", "10.25"], [True, False], ["", "x"]],
    )
    def test_other_cells_are_no_dates(self, cells: list[object]) -> None:
        assert date_format(pd.Series(cells)) is None

    def test_parts_come_round_again(self) -> None:
        monday = (date(2024, 1, 1) - date(1970, 1, 1)).days
        days = np.array([[monday], [monday + 7], [monday + 3], [monday + 46], [monday + 82], [np.nan]], dtype=float)
        parts = DateParts().fit(days)
        assert parts.parts_ == [["days", "weekday", "month"]]
        found = dict(zip(parts.get_feature_names_out(), parts.transform(days).T, strict=True))
        assert found["x0_weekday_sin"][0] == pytest.approx(found["x0_weekday_sin"][1])
        assert found["x0_weekday_cos"][:2] == pytest.approx([1.0, 1.0])  # Monday begins the round
        assert found["x0_month_cos"][0] == pytest.approx(1.0)  # and January
        assert found["x0_month_sin"][5] == found["x0_weekday_cos"][5] == 0

    def test_a_cell_that_is_no_date_is_missing_with_a_note(self) -> None:
        days = [f"2021-03-{day:02}" for day in range(1, 31)]
        frame = pd.DataFrame({"day": ["soon", *days], "x": range(0, 93, 3)})
        found = sort_columns(frame)
        assert "'day' contains dates, but row 1 contains 'soon'. Treating this cell as missing." in found.notes[0]
        assert np.isnan(found.read(frame)["day"].iloc[0])
        with pytest.raises(TableError, match="mixes"):
            sort_columns(frame, strict=True)


class TestNumbers:
    def test_other_columns_tell_how_commas_are_meant(self) -> None:
        three = {"rate": ["1,250", "2,125", "3,000"], "count": ["1.250", "980", "12.400"]}
        alone = sort_columns(pd.DataFrame(three))
        assert alone.styles == {"rate": THOUSANDS}
        beside = pd.DataFrame({**three, "price": ["0,5", "1.234,75", "2"], "plain": ["1.5", "2.25", "3"]})
        found = sort_columns(beside)
        assert found.styles == {"rate": COMMA, "count": COMMA, "price": COMMA}
        read = found.read(beside)
        assert read["rate"].tolist() == [1.25, 2.125, 3.0]
        assert read["count"].tolist() == [1250, 980, 12400]
        assert read["plain"].tolist() == [1.5, 2.25, 3.0]
        assert any("reading numbers of 'rate' such as '1,250' as 1.25" in note for note in found.notes)

    @settings(max_examples=50, deadline=None)
    @given(
        st.lists(st.decimals(-(10**6), 10**6, places=2), min_size=3, max_size=20), st.sampled_from([COMMA, THOUSANDS])
    )
    def test_numbers_in_every_style_are_read_back(self, values: list, style: str) -> None:
        texts = [f"{value:,}" for value in values]
        if style == COMMA:
            texts = [text.translate(str.maketrans(",.", ".,")) for text in texts]
        found, wrong = as_numbers(pd.Series(texts), style)
        assert not wrong.any()
        assert found == pytest.approx([float(value) for value in values])

    @pytest.mark.parametrize(
        ("cells", "style"),
        [
            (["1,5", "2,25", "-3"], COMMA),
            (["1.234,5", "2"], COMMA),
            (["-0,802", "1,250", "12,345"], COMMA),  # no thousands begin with 0
            (["1,234", "12,345,678", "5"], THOUSANDS),
            (["$1,200.50", "$7"], THOUSANDS),
            (["45%", "3.5%"], THOUSANDS),
            (["1.5", "2"], POINT),
            (["a,b", "c"], POINT),
            ([1.5, 2.0], POINT),
        ],
    )
    def test_the_column_says_how_it_writes_numbers(self, cells: list[object], style: str) -> None:
        assert number_style(pd.Series(cells)) == style

    def test_the_majority_decides(self) -> None:
        few = pd.DataFrame({"x": [*map(str, range(0, 120, 3)), "unknown"]})
        assert sort_columns(few).numbers == ["x"]
        assert "'x' contains numbers, but row 41 contains 'unknown'" in sort_columns(few).notes[0]
        many = pd.DataFrame({"x": ["low", "high"] * 20 + ["3"] * 10})
        assert sort_columns(many).categories == ["x"]
        assert "'x' contains texts and numbers (20%)" in sort_columns(many).notes[0]

    @pytest.mark.parametrize(
        ("name", "values", "expected"),
        [
            ("x", np.arange(50), True),
            ("x", np.random.default_rng(0).permutation(50), True),
            ("x", np.arange(50) * 3, False),
            ("PassengerId", np.arange(50) * 3, True),
            ("id_str", np.arange(50) * 10**12, True),
            ("paid", np.arange(50) * 3, False),
            ("year", np.arange(1950, 2000), False),
            ("x", np.arange(10), False),
            ("id", np.arange(50) % 25, False),
        ],
    )
    def test_row_numbers(self, name: str, values: np.ndarray, expected: bool) -> None:
        assert counts_rows(name, values.astype(float)) is expected


class TestTexts:
    def test_codes_and_names_are_left_out_and_prose_is_read(self) -> None:
        n = 60
        frame = pd.DataFrame(
            {
                "code": [f"A-{i * 37 % 101}x" for i in range(n)],
                "state": [f"{'abcdefghij'[i % 10]}{'klmnopqrst'[i // 10]}land" for i in range(n)],
                "note": tickets(n)["ticket"],
                "city": ["Rome", "Oslo", "Bonn"] * 20,
            }
        )
        found = sort_columns(frame)
        assert set(found.left_out) == {"code", "state"}
        assert found.texts == ["note"]
        assert found.categories == ["city"]
        assert sort_columns(frame, categories=["note"]).categories == ["note", "city"]
        assert sort_columns(frame, texts=["city"]).texts == ["note", "city"]

    def test_names_that_share_no_words_are_no_prose(self) -> None:
        texts = pd.Series([f"w{i}a w{i}b w{i}c w{i}d" for i in range(80)])
        assert not is_free_text(texts)

    def test_words_tell_tickets_apart_and_survive_a_model_file(self, tmp_path: Path) -> None:
        frame, new = tickets(300), tickets(200, seed=1)
        labels = frame["kind"].where(np.arange(300) < 50)
        frame.assign(kind=labels).to_csv(tmp_path / "t.csv", index=False)
        pool = clean(read_labeled_table(tmp_path / "t.csv", "kind"))
        assert pool.columns.texts == ["ticket"]
        model = LogisticRegression(C=100).fit(pool.rows[pool.labeled], pool.targets)
        stored = ModelFile(
            Pipeline([*pool.cleaner.steps, ("classify", model)]), "kind", pool.classes, pool.columns.stored()
        )
        save_model(tmp_path / "m.skops", stored)
        loaded = load_model(tmp_path / "m.skops")
        answers = loaded.pipeline.predict(loaded.columns.read(new))
        assert np.mean(answers == new["kind"]) > 0.9

    def test_texts_that_differ_are_as_far_apart_as_by_skrub(self) -> None:
        rng = np.random.default_rng(0)
        texts = np.unique([" ".join(f"wo{i}rd" for i in rng.zipf(1.3, 8) % 400) for _ in range(120)]).astype(object)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # skrub says that so many directions are all
            theirs = skrub.StringEncoder(118, random_state=0).fit_transform(pd.Series(texts, name="t"))
        ours = TextParts(118).fit(texts).transform(texts)
        found, expected = pdist(ours), pdist(theirs.to_numpy())
        np.testing.assert_allclose(found / found.mean(), expected / expected.mean(), rtol=1e-3)

    def test_n_grams_are_one_entry_of_a_file(self) -> None:
        rng = np.random.default_rng(0)
        texts = [" ".join(f"w{i}" for i in rng.zipf(1.3, 30) % 4000) for _ in range(500)]
        parts = TextParts(5).fit(texts)
        assert len(parts.idf_) > 1000
        with ZipFile(io.BytesIO(skops.io.dumps(parts))) as archive:
            assert len(archive.namelist()) < 20

    def test_directions_weigh_as_columns_of_0_and_1(self) -> None:
        texts = tickets(200)["ticket"].to_numpy()
        parts = TextParts(10).fit(texts)
        found = parts.transform(texts)
        assert found.var(axis=0).sum() == pytest.approx(1.0)
        assert found.mean(axis=0) == pytest.approx(np.zeros(10), abs=1e-6)
        assert len(parts.get_feature_names_out(["t"])) == 10
        assert np.isfinite(parts.transform(np.array([np.nan, "unheard of"], dtype=object))).all()

    @given(st.lists(st.sampled_from(["Oslo East", "Oslo West", "Rome", "Bonn", ""]), min_size=8, max_size=60))
    @settings(max_examples=30, deadline=None)
    def test_a_text_weighs_as_much_as_its_rows(self, cells: list[str]) -> None:
        texts = np.array(["Oslo", "Rome", "Turin", *cells], dtype=object)
        twice = TextParts(10).fit(np.concatenate([texts, texts]))
        once = TextParts(10).fit(texts)
        np.testing.assert_allclose(pdist(once.transform(texts)), pdist(twice.transform(texts)), atol=1e-4)
        shuffled = np.random.default_rng(len(cells)).permutation(len(texts))
        np.testing.assert_allclose(once.transform(texts[shuffled]), once.transform(texts)[shuffled])


class TestManyCategories:
    """More categories than can be told apart one by one from a few labels."""

    @staticmethod
    def frame(n: int, seed: int) -> pd.DataFrame:
        rng = np.random.default_rng(seed)
        kinds = rng.integers(2, size=n)
        breeds = [f"{'Terrier' if kind else 'Shorthair'} {'ABCDEFGHIJ'[rng.integers(10)]}{'uvwxyz'[rng.integers(6)]}n"
                  for kind in kinds]  # fmt: skip
        return pd.DataFrame({"breed": breeds, "age": rng.normal(size=n), "kind": np.array(["cat", "dog"])[kinds]})

    def test_names_tell_classes_apart_that_no_label_has_shown(self, tmp_path: Path) -> None:
        frame, new = self.frame(600, 0), self.frame(300, 1)
        labels = frame["kind"].where(np.arange(600) < 20)
        frame.assign(kind=labels).to_csv(tmp_path / "t.csv", index=False)
        pool = clean(read_labeled_table(tmp_path / "t.csv", "kind"))
        assert pool.columns.categories == ["breed"]
        assert pool.columns.many_categories(pool.values) == ["breed"]
        (note,) = (note for note in pool.notes if note.code is Code.MANY_CATEGORIES)
        assert note.parameters == {"counts": {"breed": frame["breed"].nunique()}, "most": 30}
        clf = LogisticRegression(C=100).fit(pool.rows[pool.labeled], pool.targets)
        stored = ModelFile(Pipeline([*pool.cleaner.steps, ("classify", clf)]), "kind", pool.classes,
                           pool.columns.stored())  # fmt: skip
        save_model(tmp_path / "m.skops", stored)
        loaded = load_model(tmp_path / "m.skops")
        new.loc[:9, "breed"] = [f"Terrier of breed {at}" for at in range(10)]  # names that the pool never held
        expected = np.where(new["breed"].str.contains("Terrier"), "dog", "cat")
        answers = loaded.pipeline.predict(loaded.columns.read(new))
        assert np.mean(answers == expected) > 0.95
        assert (answers[:10] == "dog").all()

    def test_few_categories_keep_a_column_each(self, tmp_path: Path) -> None:
        frame = pd.DataFrame({"x": [f"name {at % 30}" for at in range(90)], "y": ["a", "b", None] * 30})
        frame.to_csv(tmp_path / "t.csv", index=False)
        pool = clean(read_labeled_table(tmp_path / "t.csv", "y"))
        assert pool.rows.shape == (90, 30)
        assert Code.MANY_CATEGORIES not in [note.code for note in pool.notes]
        assert pool.cleaner.transform(pd.DataFrame({"x": ["another"]})).tolist() == [[0.0] * 30]


class TestScaling:
    def test_the_scalers_are_ordinary_transformers(self) -> None:
        check_estimator(TailScaler())

    @settings(max_examples=40, deadline=None)
    @given(st.integers(0, 10**6), st.sampled_from(["normal", "lognormal", "cauchy", "rare", "spike"]))
    def test_no_value_sets_the_scale_alone(self, seed: int, kind: str) -> None:
        rng = np.random.default_rng(seed)
        column = {
            "normal": lambda: rng.normal(size=1000),
            "lognormal": lambda: rng.lognormal(sigma=3, size=1000),
            "cauchy": lambda: rng.standard_cauchy(1000),
            "rare": lambda: rng.poisson(0.01, 1000) * rng.lognormal(sigma=2, size=1000),
            "spike": lambda: np.where(rng.random(1000) < 0.5, 0.0, rng.lognormal(sigma=4, size=1000)),
        }[kind]()
        scaler = TailScaler().fit(column[:, None])
        found = scaler.transform(column[:, None])[:, 0]
        assert np.abs(found).max() <= FARTHEST + 1e-9
        assert found.std() <= 1 + 1e-9
        order = np.argsort(column, kind="stable")
        assert (np.diff(found[order]) >= -1e-12).all()  # the order of values is kept

    def test_ordinary_columns_are_standardised(self) -> None:
        rows = np.random.default_rng(0).gamma(2.0, size=(100, 3))
        scaler = TailScaler().fit(rows)
        assert scaler.rules_ == ["plain"] * 3
        assert scaler.transform(rows) == pytest.approx(StandardScaler().fit_transform(rows))


class TestLabels:
    def test_numbers_sort_as_numbers(self, tmp_path: Path) -> None:
        assert in_order(["10", "9", "2.5"]) == ["2.5", "9", "10"]
        assert in_order(["10", "9", "b"]) == ["10", "9", "b"]
        assert as_targets(["10", "9"]).tolist() == [10, 9]
        path = tmp_path / "t.csv"
        path.write_text("x,y\n1,10\n2,9\n3,1\n4,\n", encoding="utf-8")
        assert read_labeled_table(path, "y").classes == ["1", "9", "10"]

    def test_many_numbers_are_a_quantity_whatever_their_share(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        pd.DataFrame({"x": range(1000), "y": [i % 25 for i in range(1000)]}).to_csv(path, index=False)
        with pytest.raises(TableError, match=r"25 different numbers in 1000 cells.*three classes"):
            read_labeled_table(path, "y")

    def test_a_near_name_is_suggested(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        path.write_text("x,Survived\n1,a\n2,b\n", encoding="utf-8")
        with pytest.raises(TableError, match=re.escape("did you mean 'Survived'?")):
            read_labeled_table(path, "survive")


class TestLargeNumbers:
    """Identifiers beyond 2^53 are fewer in floating point than as they are written."""

    @pytest.mark.parametrize("as_texts", [False, True])
    @pytest.mark.parametrize("start", [2**54, 2**63])
    def test_an_identifier_names_the_rows(self, start: int, as_texts: bool) -> None:
        ids = np.arange(60, dtype=np.uint64) + np.uint64(start)
        frame = pd.DataFrame({"id": ids.astype(str).astype(object) if as_texts else ids, "x": np.arange(60.0) % 7})
        found = sort_columns(frame)
        assert found.left_out["id"].code is Code.NAMES_ROWS
        assert found.left_out["id"].parameters == {"n_texts": 60, "n_rows": 60}

    def test_large_measurements_stay_numbers(self) -> None:
        moments = 1_600_000_000_000_000_000 + 10**6 * np.random.default_rng(0).integers(0, 10**9, 60)
        frame = pd.DataFrame({"nanoseconds": moments, "x": np.arange(60.0) % 7})
        assert sort_columns(frame).numbers == ["nanoseconds", "x"]

    def test_names_of_customers_are_categories(self) -> None:
        names = (2**60 + np.arange(60) % 5).astype(np.int64)
        assert sort_columns(pd.DataFrame({"customer": names, "x": np.arange(60.0) % 7})).categories == ["customer"]


def test_a_model_of_many_columns_stores_few_arrays(tmp_path: Path) -> None:
    """Each column of numbers had an empty array of its own, and 20,000 columns took 8 s to store."""
    scaler = TailScaler().fit(np.random.default_rng(0).normal(size=(30, 200)))
    skops.io.dump(scaler, tmp_path / "scaler.skops")
    with ZipFile(tmp_path / "scaler.skops") as archive:
        assert len(archive.namelist()) < 20
    again = skops.io.load(tmp_path / "scaler.skops", trusted=["surefoot.pool.table.cleaning.TailScaler"])
    rows = np.random.default_rng(1).normal(size=(5, 200))
    np.testing.assert_array_equal(again.transform(rows), scaler.transform(rows))
