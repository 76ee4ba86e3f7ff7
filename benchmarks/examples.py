"""Processor time of each example of the gallery. CONTRIBUTING.md allows 20 seconds.

OPENBLAS_NUM_THREADS=1 python benchmarks/examples.py [plot_11]
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def processor_seconds(path: Path) -> float:
    """Processor time of a process that runs the example, including threads."""
    before = os.times()
    subprocess.run(
        [sys.executable, str(path)], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "MPLBACKEND": "agg"}
    )
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    for path in sorted((Path(__file__).parents[1] / "examples").glob(f"{''.join(sys.argv[1:]) or 'plot_'}*.py")):
        print(f"{path.stem:40} {processor_seconds(path):6.1f} s", flush=True)


if __name__ == "__main__":
    main()
