"""Write the tables of docs/cost.md from the results of the benchmarks.

    python benchmarks/cost_tables.py            # writes the tables into the page
    python benchmarks/cost_tables.py --check    # only reports whether the page is up to date

Each table is between `<!-- table: NAME -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable
from pathlib import Path

from common import with_tables
from defaults import summary
from scaling import exponent

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "cost.md"
ORDER = ["2 threads", "2 Dask workers", "cuda"]

Line = dict[str, str]


def read(name: str) -> tuple[dict[str, str], list[Line]]:
    """The configuration that heads a file of results, if any, and its lines."""
    text = (HERE / name).read_text(encoding="utf-8").splitlines()
    notes = [line[2:].partition(": ") for line in text if line.startswith("# ")]
    return {key: value for key, _, value in notes}, list(csv.DictReader(t for t in text if not t.startswith("# ")))


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def number(text: str, digits: int = 3) -> str:
    """A number with the given number of significant digits, without an exponent from 1e-3 to 1e6. A dash for none."""
    if not text:
        return "–"
    value = float(text)
    shown = f"{value:.{digits}g}"
    return f"{value:,.0f}" if value >= 1000 else shown


def megabytes(text: str) -> str:
    """Bytes as whole megabytes."""
    return f"{int(text) / 1e6:.0f}"


def measured(config: dict[str, str]) -> str:
    """Where and when the lines were measured. Empty if their file does not contain it."""
    if not config:
        return ""
    threads = config["OPENBLAS_NUM_THREADS"]
    blas = "one BLAS thread" if threads == "1" else f"OPENBLAS_NUM_THREADS {threads}"
    packages = ", ".join(f"{name} {config[name]}" for name in ("numpy", "scipy", "scikit-learn", "numba", "POT"))
    return (
        f"\nMeasured with surefoot {config['surefoot']} at {config['commit']}, {config['date'][:10]}, "
        f"{config['cores']} cores of an {config['cpu']}, {blas}, Python {config['python']}, {packages}.\n"
    )


def beside_references(file: str) -> str:
    """Seconds of surefoot and of a reference in the same run."""
    config, lines = read(file)
    rows = [
        [
            line["work"],
            number(line["ours_seconds"]),
            line["reference"] or "–",
            number(line["reference_seconds"]),
            number(line["ratio"]),
            f"{float(line['gap']):.1e}" if line["gap"] else "–",
            line["note"],
        ]
        for line in lines
        if line["ours_seconds"]
    ]
    header = ["work", "surefoot, s", "reference", "reference, s", "ratio", "gap", "note"]
    return table(header, rows) + measured(config)


def memory() -> str:
    """Peak memory of a fit, compared with the N×n distances."""
    config, lines = read("results.csv")
    rows = [
        [line["work"], megabytes(line["ours_bytes"]), megabytes(line["reference_bytes"]), number(line["ratio"], 2)]
        for line in lines
        if line.get("ours_bytes")
    ]
    return table(["work", "surefoot, MB", "the N×n distances, MB", "ratio"], rows) + measured(config)


def scaling_lines() -> list[Line]:
    """The lines of the sweeps over N and n, in order."""
    lines = read("results-scaling.csv")[1]
    return sorted(lines, key=lambda line: (line["sweep"], ORDER.index(line["by"]), int(line["N"]), int(line["n"])))


def scaling() -> str:
    """Seconds and peak memory of both sweeps, one column for each kind of device."""
    found = {(line["sweep"], int(line["N"]), int(line["n"]), line["by"]): line for line in scaling_lines()}
    rows = []
    for sweep, N, n in dict.fromkeys(key[:3] for key in sorted(found)):
        lines = [found.get((sweep, N, n, by)) for by in ORDER]
        cells = [f"{number(s['seconds'])} s, {float(s['peak_MB']):,.0f} MB" if s else "–" for s in lines]
        rows.append([f"{N:,}", f"{n:,}", *cells])
    return table(["N", "n", *ORDER], rows) + measured(read("results-scaling.csv")[0])


def exponents() -> str:
    """Fitted exponents of time and memory."""
    rows = []
    for by in ORDER:
        cells = []
        for sweep, least in (("N", 1e5), ("n", 100)):
            large = [s for s in scaling_lines() if s["sweep"] == sweep and s["by"] == by and float(s[sweep]) >= least]
            cells += [f"{exponent(large, sweep, what):.2f}" for what in ("seconds", "peak_MB")]
        rows.append([by, *cells])
    header = ["", "seconds ∝ Nᵃ, N ≥ 10⁵", "memory ∝ Nᵃ, N ≥ 10⁵", "seconds ∝ nᵃ, n ≥ 100", "memory ∝ nᵃ, n ≥ 100"]
    return table(header, rows)


def peers() -> str:
    """Learning compared with a general conic solver, at sizes that it can solve."""
    config, lines = read("results-peers.csv")
    rows = [
        [f"learn, N={line['N']}, n={line['n']}", line["ours_seconds"], line["cvxpy_clarabel_seconds"], line["ratio"]]
        for line in lines
    ]
    return table(["work", "surefoot, s", "cvxpy + Clarabel, s", "ratio"], rows) + measured(config)


def gpu() -> str:
    """Fits and passes on a GPU."""
    config, lines = read("results-gpu.csv")
    rows = [[s["work"], s["device"], s["seconds"], s["gap"] or "–", s["note"] or "–"] for s in lines]
    return table(["work", "device", "seconds", "gap", "note"], rows) + measured(config)


TABLES: dict[str, Callable[[], str]] = {
    "learning": lambda: beside_references("results.csv"),
    "memory": memory,
    "certify": lambda: beside_references("results-certify.csv"),
    "active": lambda: beside_references("results-active.csv"),
    "peers": peers,
    "scaling": scaling,
    "exponents": exponents,
    "gpu": gpu,
    "defaults": lambda: summary(read("results-defaults.csv")[1]),
}


def make_table(name: str) -> str:
    """The table of that name."""
    return TABLES[name]().strip("\n")


def main() -> int:
    """Write or check the page. The exit status is 1 if a check fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing, only report differences")
    check = parser.parse_args().check
    text = PAGE.read_text(encoding="utf-8")
    made = with_tables(text, make_table)
    if not check:
        PAGE.write_text(made, encoding="utf-8")
        return 0
    if made != text:
        print(f"{PAGE}: its tables do not match the results. Run python benchmarks/cost_tables.py")
    return int(made != text)


if __name__ == "__main__":
    sys.exit(main())
