"""Try what was installed into a clean environment: import, fit, certify, and what an extra is for.

Usage: python scripts/check_installed.py EXTRA, where EXTRA is none, plots, cli, xlsx, card, serve, torch or dask.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

import surefoot as sf


def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ten labeled rows of two classes, and forty without labels."""
    rng = np.random.default_rng(0)
    y = np.arange(50) % 2
    X = rng.normal(size=(50, 2)) + 2.0 * y[:, None]
    return X[:10], y[:10], X[10:]


def plain() -> None:
    """What needs no extra."""
    X, y, U = rows()
    clf = sf.RobustLogisticRegression().fit(X, y, X_unlabeled=U)
    assert clf.certificate_.gap <= 1e-4
    assert 0 < sf.certify(clf, X, y, X_unlabeled=U, radius=5.0, loss="zero_one").risk <= 1 + 1e-6
    assert 0 < sf.error_bound(clf, X, y, X_unlabeled=U).value <= 1


def demonstration() -> None:
    """The demonstration, as it is called after `pip install`."""
    folder = Path(sys.prefix) / "tried"
    folder.mkdir(exist_ok=True)
    subprocess.run([Path(sys.prefix) / "bin" / "surefoot", "demo"], cwd=folder, check=True)
    assert (folder / "surefoot-demo.png").exists()


def picture() -> None:
    """A certificate as a picture."""
    X, y, U = rows()
    certificate = sf.RobustLogisticRegression().fit(X, y, X_unlabeled=U).certificate_
    assert certificate.plot().ax_.get_xlabel() == "expected log_loss"


def card() -> None:
    """The evidence of an audit as a CycloneDX document."""
    from surefoot.certificates.verify import read_evidence
    from surefoot.pool.evidence import bill_of_materials

    file = Path(sys.prefix) / "audit.json"
    sf.Audit(predictions=[0, 1, 1], random_state=0).save(file)
    assert bill_of_materials(read_evidence(file))["specVersion"] == "1.6"


def workbook() -> None:
    """A table in an Excel workbook."""
    from surefoot.pool.table import read_table

    file = Path(sys.prefix) / "table.xlsx"
    book = importlib.import_module("openpyxl").Workbook()
    for row in [("x", "y"), (1, "a"), (2, None)]:
        book.active.append(row)
    book.save(file)
    assert read_table(file)["y"].tolist() == ["a", None]


def page() -> None:
    """The labeling page: its command is there, and what it imports is installed."""
    subprocess.run([Path(sys.prefix) / "bin" / "surefoot", "serve", "--help"], check=True, capture_output=True)
    importlib.import_module("surefoot.serve.app")


def network() -> None:
    """A network, trained and certified."""
    import torch

    from surefoot.nn import RobustNetClassifier

    X, y, U = rows()
    net = RobustNetClassifier(torch.nn.Linear(2, 2), radius=5.0, max_epochs=1).fit(X, y, X_unlabeled=U)
    assert net.certificate_.gap <= 1e-4


def cluster() -> None:
    """Rows in a Dask array."""
    import dask.array as da

    X, y, U = rows()
    here = sf.RobustLogisticRegression(radius=5.0).fit(X, y, X_unlabeled=U).certificate_.risk
    there = sf.RobustLogisticRegression(radius=5.0).fit(X, y, X_unlabeled=da.from_array(U, chunks=(20, 2)))
    assert there.certificate_.risk == here


def main() -> None:
    """Try one extra."""
    extra = sys.argv[1]
    assert Path(sf.__file__).is_relative_to(sys.prefix), f"another surefoot was imported: {sf.__file__}"
    assert version("surefoot") == sf.__version__
    plain()
    own = {
        "plots": picture,
        "cli": demonstration,
        "xlsx": workbook,
        "card": card,
        "serve": page,
        "torch": network,
        "dask": cluster,
    }
    own.get(extra, plain)()
    print(f"surefoot {sf.__version__} with extra {extra} on Python {sys.version.split()[0]}: works")


if __name__ == "__main__":
    main()
