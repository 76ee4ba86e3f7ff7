"""Model files with flipped bytes, cut short, or forged with right checksums: `predict` refuses them, or answers.

Never a crash of the process, never code of the file, never a fault of surefoot: exit code 0, or 2 with a sentence. One
child process predicts with many files; if it dies, the file it was at is known.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import skops.io
from sklearn.compose import make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import surefoot
from generators import make_pool
from surefoot.cli import run

# Predicts with each file named on standard input; a line for each: its exit code and what was said.
PREDICT = """
import contextlib, io, json, resource, signal, sys, warnings
warnings.simplefilter("ignore")
from surefoot.cli import run
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
for line in sys.stdin:
    said = io.StringIO()
    print(json.dumps(line.strip()), end=" ", flush=True)
    signal.alarm(60)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(["predict", line.strip(), "pool.csv", "--json"])
    signal.alarm(0)
    print(json.dumps([code, said.getvalue()]), flush=True)
"""
NUMBERS = [0, 1, -1, 2, 7, 127, 255, 2**31 - 1, -(2**31), 2**40, 2**62, 1e308, float("nan")]
NAMES = ["posix.system", "os.remove", "builtins.eval", "sklearn.tree._tree.Tree", "numpy.ndarray", "builtins.dict"]


def make_models(folder: Path) -> list[Path]:
    """Our own model, others that are taken without trust, and one that is not."""
    frame = make_pool().fillna({"income": 2.0})
    frame["since"] = np.arange(len(frame)).astype("datetime64[D]").astype(str)
    frame["paid"] = [f"{k % 37},{k % 7}5" for k in range(len(frame))]
    frame.to_csv(folder / "pool.csv", index=False)
    fit = ["fit", str(folder / "pool.csv"), "--label", "churn", "--radius", "5", "--no-report"]
    assert run([*fit, "--out", str(folder / "own")]) == 0
    known = frame.dropna()
    columns = make_column_transformer(
        (OneHotEncoder(max_categories=2, sparse_output=False), ["plan"]), ("passthrough", ["age", "income"])
    )
    paths = [folder / "own"]
    for clf in (
        LogisticRegression(),
        GaussianNB(),
        MLPClassifier(4, max_iter=20, random_state=0),
        VotingClassifier([("a", LogisticRegression()), ("b", LinearDiscriminantAnalysis())]),
        RandomForestClassifier(2, max_depth=3, random_state=0),
    ):
        paths.append(folder / f"{len(paths)}-{type(clf).__name__}")
        skops.io.dump(make_pipeline(columns, clf).fit(known[["age", "income", "plan"]], known["churn"]), paths[-1])
    return paths


def damaged(rng: Random, content: bytes) -> bytes:
    """Bytes flipped, cut off or doubled, whatever they mean."""
    kind = rng.randrange(3)
    if kind == 0:
        return content[: rng.randrange(len(content))]
    changed = bytearray(content)
    if kind == 1:
        start = rng.randrange(len(content))
        changed[start:start] = content[start : start + rng.randrange(1, 500)]
    for _ in range(rng.randrange(1, 20)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def forged(rng: Random, content: bytes) -> bytes:
    """The archive written anew with other arrays or another description: nothing but what it holds gives it away."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    arrays = [name for name in members if name.endswith(".npy")]
    if rng.random() < 0.5:
        for name in rng.sample(arrays, min(3, len(arrays))):
            members[name] = forged_array(rng, members[name])
    else:
        schema = json.loads(members["schema.json"])
        for _ in range(rng.randrange(1, 4)):
            forge_description(rng, schema, arrays)
        members["schema.json"] = json.dumps(schema).encode()
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return written.getvalue()


def forged_array(rng: Random, content: bytes) -> bytes:
    """Another value in some field of an array, another shape, or other bytes."""
    array = np.load(io.BytesIO(content))
    flat = array.reshape(-1).copy()
    kind = rng.randrange(4)
    if kind == 0:
        array = flat[: rng.randrange(len(flat) + 1)] if rng.random() < 0.5 else np.concatenate([flat] * 3)
    elif kind == 1 and flat.size:
        raw = bytearray(flat.tobytes())
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        array = np.frombuffer(bytes(raw), dtype=flat.dtype).reshape(array.shape)
    elif flat.size:
        fields = flat[rng.choice(flat.dtype.names)] if flat.dtype.names else flat
        if fields.dtype.kind in "iuf":
            with np.errstate(all="ignore"):
                value = np.asarray(rng.choice(NUMBERS[:-2] if fields.dtype.kind != "f" else NUMBERS))
                fields[rng.randrange(len(fields)) if kind == 2 else slice(None)] = value.astype(fields.dtype)
        array = flat.reshape(array.shape)
    written = io.BytesIO()
    np.save(written, array, allow_pickle=False)
    return written.getvalue()


def forge_description(rng: Random, schema: dict[str, Any], arrays: list[str]) -> None:
    """Change one place of the description: a number, a name, a file, or a part that goes missing or elsewhere."""
    nodes, waiting = [], [schema]
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        inner = node.values() if isinstance(node, dict) else node
        waiting += [value for value in inner if isinstance(value, dict | list)]
    node = rng.choice([one for one in nodes if isinstance(one, dict) and one])
    key = rng.choice(sorted(node))
    kind = rng.randrange(5)
    if kind == 0:
        node.pop(key)
    elif kind == 1:
        node[key] = (
            deepcopy(rng.choice(nodes)) if rng.random() < 0.5 else rng.choice([None, [], {}, "x", *NUMBERS[:-1]])
        )
    elif kind == 2 and "__class__" in node:
        node["__module__"], _, node["__class__"] = rng.choice(NAMES).rpartition(".")
    elif kind == 3 and node.get("is_json"):
        node["content"] = json.dumps(rng.choice([None, "x", [1], {}, *NUMBERS[:-2]]))
    elif "file" in node:
        node["file"] = rng.choice(arrays)


def predicted(folder: Path, files: list[Path]) -> list[tuple[str, int, str]]:
    """What a child process says of each file; it must live to the last one."""
    environment = {**os.environ, "PYTHONPATH": str(Path(surefoot.__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PREDICT],
        input="".join(f"{file.name}\n" for file in files),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1"},
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"the process died with {done.returncode} at {lines[-1:]}: {done.stderr[-2000:]}"
    decoder, found = json.JSONDecoder(), []
    for line in lines:
        name, end = decoder.raw_decode(line)
        code, said = json.loads(line[end:])
        found.append((name, code, said))
    assert len(found) == len(files)
    return found


@pytest.mark.parametrize("n_files", [25, pytest.param(6000, marks=pytest.mark.slow)])
def test_predict_survives_any_file(tmp_path: Path, n_files: int) -> None:
    rng = Random(n_files)
    models = make_models(tmp_path)
    files = []
    for number in range(n_files):
        source = models[number % len(models)]
        change = damaged if rng.random() < 0.25 else forged
        files.append(tmp_path / f"{number}-{change.__name__}-{source.name}")
        files[-1].write_bytes(change(rng, source.read_bytes()))
    before = sorted(tmp_path.iterdir())
    results = predicted(tmp_path, [*models, *files])
    assert [code for _, code, _ in results[: len(models)]] == [0] * (len(models) - 1) + [2]
    assert "sklearn.tree._tree.Tree" in results[len(models) - 1][2]
    for name, code, said in results:
        assert code in {0, 2}, f"{name}: exit code {code}: {said}"
        answer = json.loads(said)
        assert code == 0 or len(answer["error"]) > 40, f"{name}: {said}"
    assert sum(code == 2 for _, code, _ in results) > n_files / 3
    assert sorted(tmp_path.iterdir()) == before
