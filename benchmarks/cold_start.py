"""Cold start: the time that `import surefoot` adds to scikit-learn, and the first fit with an empty kernel cache.

`python benchmarks/cold_start.py` prints both, each in fresh processes.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

_FIT = """
import time
start = time.perf_counter()
import surefoot as sf
from sklearn.datasets import load_breast_cancer
X, y = load_breast_cancer(return_X_y=True)
sf.RobustLogisticRegression(radius=2000.0).fit(X[:20], y[:20], X_unlabeled=X[20:])
print(time.perf_counter() - start)
"""
_IMPORT = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def seconds(code: str, cache: str) -> float:
    """The output of a fresh process whose compiled kernels are kept in the folder `cache`."""
    environment = os.environ | {"NUMBA_CACHE_DIR": cache}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(run.stdout)


def main() -> None:
    """Print the three figures."""
    with tempfile.TemporaryDirectory() as cache:
        plain = statistics.median(seconds(_IMPORT.format("sklearn.linear_model"), cache) for _ in range(5))
        ours = statistics.median(seconds(_IMPORT.format("sklearn.linear_model, surefoot"), cache) for _ in range(5))
        print(f"import surefoot adds {ours - plain:.2f} s to {plain:.2f} s of scikit-learn")
        print(f"first fit of all, imports and compilation included: {seconds(_FIT, cache):.1f} s")
        print(f"first fit of a later process: {seconds(_FIT, cache):.1f} s")


if __name__ == "__main__":
    main()
