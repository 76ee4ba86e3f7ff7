"""From the archive, packed as UCI packs it, to the table: a download gives what the local files give."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot import datasets
from surefoot.datasets._catalogue import BANK, COVTYPE, DATASETS, ISOLET
from surefoot.datasets._download import Archive


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def answer(handler: Any, body: bytes) -> None:
    handler.head(Content_Length=len(body))
    handler.wfile.write(body)


def uci_layout(archive: Archive, contents: dict[str, bytes], compress_z: Callable[..., bytes]) -> bytes:
    """The zip as the UCI archive packs it."""
    if archive is BANK:
        other = zipped({"bank-additional/bank-additional-full.csv": b"other"})
        inner = zipped(contents)
        return zipped({"bank-additional.zip": other, "bank.zip": inner})
    if archive is COVTYPE:
        return zipped({f"{name}.gz": gzip.compress(c, 1) for name, c in contents.items()} | {"covtype.info": b""})
    if archive is ISOLET:
        return zipped({"Index": b""} | {f"{name}.Z": compress_z(c) for name, c in contents.items()})
    return zipped({"Index": b""} | contents)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name not in {"wine", "bank"}))
        for name in datasets.names(paper_only=True)
    ],
)
def test_from_the_archive_to_the_table(
    name: str,
    server: Any,
    tmp_path: Path,
    dataset_path: Callable[[str], Path],
    compress_z: Callable[..., bytes],
) -> None:
    archive = DATASETS[name].archive
    home = dataset_path(archive.folder).parent
    paths = [path for path in archive.find([home]) if path is not None]
    contents = {f.name: f.unpack(p.read_bytes(), p.as_posix()) for f, p in zip(archive.files, paths, strict=True)}
    packed = uci_layout(archive, contents, compress_z)
    server.behaviours = [lambda handler: answer(handler, packed)]
    # SUREFOOT_DATA would be searched before the server
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUREFOOT_DATA", "")
        patch.setenv("XDG_CACHE_HOME", str(tmp_path))
        downloaded = datasets.load(name, data_home=tmp_path / "new")
    local = datasets.load(name, data_home=home)
    assert len(server.requests) == 1
    assert server.requests[0].path == f"/static/public/{archive.number}/{archive.slug}.zip"
    assert np.array_equal(downloaded.data, local.data)
    assert np.array_equal(downloaded.target, local.target)
