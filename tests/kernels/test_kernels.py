"""Kernels are compiled where nothing can be written, too."""

from __future__ import annotations

import subprocess
import sys

_FIT = """
import warnings
from numba.core import caching

def refuse(self):
    raise OSError(30, "Read-only file system")

# neither the folder of the package nor that of the user can be written
caching._CacheLocator.ensure_cache_path = refuse
import surefoot as sf

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    clf = sf.RobustLogisticRegression(radius=0.5, label_prior=[0.5, 0.5])
    clf.fit([[0.0], [1.0]], [0, 1], X_unlabeled=[[0.1], [0.9], [1.1]])
assert clf.certificate_.gap <= 1e-4
said = [str(one.message) for one in caught if "NUMBA_CACHE_DIR" in str(one.message)]
assert len(said) == 1, said
"""


def test_a_fit_where_no_folder_can_be_written() -> None:
    subprocess.run([sys.executable, "-c", _FIT], check=True)
