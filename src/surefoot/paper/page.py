"""The tables of docs/reproduction/README.md, from the summaries beside it, and these summaries from runs.

    python -m surefoot.paper.page docs/reproduction [OUT …]

copies the tables and figures of the output folders OUT (of `surefoot reproduce`) there, and writes the tables of the
page anew, between its marks `<!-- name -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from surefoot._files import whole_file, write_bytes
from surefoot.paper.samples import titles

_MARKED = re.compile(r"(<!-- (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def refreshed(page: str, folder: Path) -> str:
    """The page with every marked table written anew from the CSV files of a folder."""

    def table(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in TABLES:
            raise ValueError(f"a mark must name one of {', '.join(TABLES)}; got {name!r}. Correct the page.")
        try:
            text = TABLES[name](folder)
        except FileNotFoundError as error:
            text = f"Not run yet: {Path(error.filename).name} is missing.\n"
        return f"{found[1]}\n{text}\n{found[3]}"

    return _MARKED.sub(table, page)


def publish(folder: Path, runs: Iterable[Path]) -> None:
    """Copy tables and PNG figures of output folders, and note what each run was, in `runs.csv`."""
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    noted = folder / "runs.csv"
    earlier = pd.read_csv(noted).to_dict("records") if noted.exists() else []
    table = {row["study"]: row | {"device": row.get("device", "cpu")} for row in earlier}
    for out in runs:
        for path in sorted([*out.glob("*.csv"), *out.glob("*.png")]):
            shutil.copyfile(path, folder / path.name)
        config = json.loads((out / "config.json").read_text(encoding="utf-8"))
        table[config["study"]] = _noted(config, out / "records.jsonl")
    with whole_file(noted) as part:
        pd.DataFrame([table[study] for study in sorted(table)]).to_csv(part, index=False, lineterminator="\n")


def _noted(config: dict[str, Any], records: Path) -> dict[str, Any]:
    from surefoot.paper.runner import Records

    done = Records(records).read().values()
    return {
        "study": config["study"],
        "datasets": len(config["settings"]["datasets"]),
        "trials": config["settings"]["trials"],
        "seed": config["settings"]["seed"],
        "tasks": len(done),
        "device": config["settings"].get("device", "cpu"),
        "cpu_minutes": round(sum(record.cpu_seconds for record in done) / 60.0, 1),
        "surefoot": config["runs"][-1]["surefoot"],
    }


def _read(folder: Path, name: str) -> Any:
    import pandas as pd

    table = pd.read_csv(folder / f"{name}.csv", keep_default_na=False, dtype=str)
    if "dataset" in table:
        leaky = table["dataset"] == "bank-leaky"
        table["dataset"] = titles(table["dataset"])
        table.loc[leaky, "dataset"] = "Bank, with the label"
    return table


def _markdown(table: Any, heads: dict[str, str]) -> str:
    """The columns `heads` of a table under other names."""
    lines = ["| " + " | ".join(heads.values()) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(str(row[column]) for column in heads) + " |" for row in table.to_dict("records")]
    return "\n".join(lines) + "\n"


def _plain(name: str, heads: dict[str, str], **formats: Callable[[str], str]) -> Callable[[Path], str]:
    """A table of the page: columns of a CSV file, some in another format."""

    def write(folder: Path) -> str:
        table = _read(folder, name)
        for column, change in formats.items():
            table[column] = [change(value) if value != "" else "none" for value in table[column]]
        return _markdown(table, heads)

    return write


def _claims(name: str) -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        table = _read(folder, f"{name}-claims")
        table["fails_on"] = [", ".join(titles(text.split())) for text in table["fails_on"]]
        table["holds"] = table["holds"] + " of " + table["of"]
        return _markdown(table, {"claim": "claim", "holds": "datasets on which it holds", "fails_on": "fails on"})

    return write


def _images(name: str) -> Callable[[Path], str]:
    """Return the figure, and below it the figure of the appendix, if any."""

    def write(folder: Path) -> str:
        if not (folder / f"{name}.png").exists():
            raise FileNotFoundError(2, "no such figure", f"{name}.png")
        text = f"Figure {name.removeprefix('figure')}"
        shown = [f"![{text}]({name}.png)"]
        if (folder / f"{name}-appendix.png").exists():
            shown.append(f"![{text}, the datasets of the appendix]({name}-appendix.png)")
        return "\n".join(shown) + "\n"

    return write


def _bounds_by_size(folder: Path) -> str:
    """Medians of the certified likelihood of figure 5 at each N_l: ball / strong / weak."""
    table = _read(folder, "figure5-6")
    table["value"] = [_number(value) for value in table["bound"]]
    lines = []
    for dataset, part in table.groupby("dataset", sort=False):
        line = {"dataset": dataset}
        for n, cell in part.groupby("n_labeled", sort=False):
            by = dict(zip(cell["method"], cell["value"], strict=True))
            line[n] = " / ".join(by[method] for method in ("ball", "strong", "weak"))
        lines.append(line)
    import pandas as pd

    return _markdown(pd.DataFrame(lines), {key: f"N_l = {key}" if key != "dataset" else key for key in lines[0]})


def _number(text: str) -> str:
    return f"{float(text):.3f}"


def _short(text: str) -> str:
    return f"{float(text):.2g}"


def _percent(text: str) -> str:
    return f"{100.0 * float(text):.3g} %"


_PEAKS = {
    "dataset": "dataset",
    "distance": "distance to P",
    "peak_share": "ε of the peak, of the distance to P",
    "peak_likelihood": "likelihood there",
    "likelihood_at_smallest": "likelihood at 0.01 %",
    "likelihood_at_distance": "likelihood at 100 %",
    "confidence_at_distance": "largest confidence at 100 %",
    "gone_from": "below 0.505 from",
    "constant_from": "constant from",
}
_PEAK_FORMATS: dict[str, Callable[[str], str]] = {
    "distance": _number,
    "peak_share": _percent,
    "peak_likelihood": _number,
    "likelihood_at_smallest": _number,
    "likelihood_at_distance": _number,
    "confidence_at_distance": _number,
    "gone_from": _percent,
    "constant_from": _percent,
}
TABLES: dict[str, Callable[[Path], str]] = {
    "runs": _plain(
        "runs",
        {
            "study": "study",
            "datasets": "datasets",
            "trials": "trials",
            "seed": "seed",
            "device": "device",
            "cpu_minutes": "processor time, minutes",
        },
    ),
    "table2": _plain(
        "table2",
        {
            "dataset": "dataset",
            "features": "features",
            "paper_features": "paper",
            "examples": "examples",
            "paper_examples": "paper",
            "percent_positive": "% positive",
            "paper_percent": "paper",
            "equal": "equal",
            "note": "note",
        },
    ),
    "figure1-peaks": _plain("figure1-peaks", _PEAKS, **_PEAK_FORMATS),
    "figure2-peaks": _plain("figure2-peaks", _PEAKS, **_PEAK_FORMATS),
    "figure4-drops": _plain(
        "figure4-drops",
        {
            "dataset": "dataset",
            "likelihood_at_smallest": "likelihood at Δ = 0.0001",
            "best_likelihood": "best likelihood",
            "best_excess": "at Δ",
            "flat_to": "within 0.01 up to Δ",
            "confidence_at_smallest": "median confidence at Δ = 0.0001",
            "confident_to": "0.7 or more up to Δ",
            "constant_from": "constant from Δ",
            "likelihood_when_constant": "likelihood then",
        },
        likelihood_at_smallest=_number,
        best_likelihood=_number,
        best_excess=_short,
        flat_to=_short,
        confidence_at_smallest=_number,
        confident_to=_short,
        constant_from=_short,
        likelihood_when_constant=_number,
    ),
    "figure5-bounds": _bounds_by_size,
    "figure5-guarantee": _plain(
        "figure5-guarantee",
        {"method": "method", "fits": "fits", "bound_holds": "bound holds on P", "largest_gap": "largest gap"},
        largest_gap=_short,
    ),
}
TABLES |= {f"figure{i}-claims": _claims(f"figure{i}") for i in range(1, 7)}
TABLES |= {f"figure{i}": _images(f"figure{i}") for i in range(1, 7)}


def write_page(arguments: list[str]) -> None:
    """Publish, then write the page anew."""
    folder = Path(arguments[0])
    publish(folder, [Path(out) for out in arguments[1:]])
    page = folder / "README.md"
    write_bytes(page, refreshed(page.read_text(encoding="utf-8"), folder).encode())


if __name__ == "__main__":
    write_page(sys.argv[1:])
