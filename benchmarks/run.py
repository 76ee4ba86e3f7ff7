"""Benchmark of training and the ball: `OPENBLAS_NUM_THREADS=1 python benchmarks/run.py [--quick] [--out FILE]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ball
import learning
from common import markdown_table, write_csv


def main() -> None:
    """Run, print a Markdown table, write CSV with the configuration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small problems: a smoke test of the benchmark itself")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results.csv"))
    arguments = parser.parse_args()
    rows = [*learning.rows(arguments.quick), *ball.rows(arguments.quick)]
    write_csv(arguments.out, rows)
    print(markdown_table(rows))


if __name__ == "__main__":
    main()
