"""The fused kernels of a GPU compute what the form of torch computes, on the device.

Without a CUDA device they run by Triton's interpreter where TRITON_INTERPRET=1 is set and Triton is installed.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

import surefoot as sf
from generators import BlockPool
from refusals import warns
from surefoot.dual.row_sums import RowSums
from surefoot.kernels import torch_arrays, torch_rows
from surefoot.kernels.torch_arrays import TorchArrays
from surefoot.kernels.torch_rows import SoftRows

CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if find_spec("triton") is None or not (CUDA or INTERPRETED):
    pytest.skip("needs Triton, and a CUDA device or TRITON_INTERPRET=1", allow_module_level=True)

from surefoot.kernels import torch_fused as fused_rows  # noqa: E402 (needs Triton)

PRODUCTS = ("beta_beta", "theta_beta")
DEVICE = "cpu" if INTERPRETED else "cuda"
MADE: dict[str, Any] = {"dtype": torch.float64, "device": DEVICE}
# rows, classes' anchors, labels, smoothing: tiles that are full and that are not, one class, one label, many
CASES = [
    (37, (20, 30), 2, 0.1),
    (600, (10, 1, 30), 3, 1e-2),
    (300, (150, 137), 2, 1e-3),
    (90, (23,), 1, 0.1),
    (300, (40, 20), 5, 1.0),
]


class Rows:
    """Random rows at distances from anchors, and a dual point at a smoothing."""

    def __init__(self, case: tuple[int, tuple[int, ...], int, float]):
        B, sizes, K, tau = case
        stops = np.cumsum(sizes).tolist()
        n, C = stops[-1], len(sizes)
        draw = torch.Generator(device=DEVICE).manual_seed(B)
        uniform = lambda *shape: torch.rand(shape, generator=draw, **MADE)  # noqa: E731
        self.D, self.m, self.X = uniform(B, n), uniform(B) / B, uniform(B, 3) - 0.5
        self.m[:3] = 0.0
        self.losses = -torch.log_softmax(2.0 * uniform(B, K), dim=1)
        columns = tuple(zip([0, *stops[:-1]], stops, strict=True))
        self.point = SoftRows(3.0, tau, 0.3 * uniform(n), uniform(K, C), columns)
        self.shape = (K, n, (K - 1, 3) if K > 1 else (0, 0))

    def sums(self, add: Any, at: Any, D: torch.Tensor, second_order: bool) -> dict[str, torch.Tensor]:
        K, n, theta = self.shape
        found = {
            name: torch.zeros(v.shape, **MADE) for name, v in vars(RowSums.zeros(K, n, theta, second_order)).items()
        }
        X = self.X if K > 1 else None
        add(found, at, D, self.m, self.losses - 0.1, X, self.losses, second_order=second_order)
        if second_order:
            found["beta_beta"] = found["beta_beta"].tril()
        return found


@pytest.fixture(params=CASES, ids=str)
def rows(request: pytest.FixtureRequest) -> Rows:
    return Rows(request.param)


@pytest.mark.parametrize("second_order", [False, True])
def test_sums_of_the_solver(rows: Rows, second_order: bool) -> None:
    theirs = rows.sums(torch_rows.add_row_sums, rows.point, rows.D, second_order)
    ours = rows.sums(fused_rows.add_row_sums, fused_rows.FusedRows.from_rows(rows.point), rows.D, second_order)
    assert list(ours) == list(RowSums.__dataclass_fields__)
    for name, found in ours.items():
        rtol = atol = 1e-12
        if name in PRODUCTS and found.numel():  # of weights with about 22 bits
            rtol, atol = 0.0, 1e-6 * theirs["beta"].max().item()
        torch.testing.assert_close(found, theirs[name], rtol=rtol, atol=atol, msg=lambda text, at=name: f"{at}: {text}")


def test_sums_in_float32(rows: Rows) -> None:
    at = rows.point
    narrow = SoftRows(at.alpha, at.tau, at.beta.float(), at.kappa.float(), at.columns)
    theirs = rows.sums(torch_rows.add_row_sums, at, rows.D, True)
    ours = rows.sums(fused_rows.add_row_sums, fused_rows.FusedRows.from_rows(narrow), rows.D.float(), True)
    for name, found in ours.items():  # an exponent of size 1/τ has lost its last digits
        torch.testing.assert_close(found, theirs[name], rtol=1e-4, atol=2e-7 / at.tau)


def test_values_per_class(rows: Rows) -> None:
    at = rows.point
    price, D = at.alpha * rows.D + at.beta, rows.D
    plan = torch.rand((3, D.shape[1]), **MADE)
    least = fused_rows.class_least(D, at.alpha, at.beta, at.columns)
    totals = fused_rows.class_totals(D, at.alpha, at.beta, at.tau, at.columns)
    again, *repaired = fused_rows.class_repaired(D, at.alpha, at.beta, at.tau, plan, at.columns)
    for c, (lo, hi) in enumerate(at.columns):
        share, d, (keep, within, across) = torch.softmax(-price[:, lo:hi] / at.tau, dim=1), D[:, lo:hi], plan[:, lo:hi]
        wanted = [(share * keep).sum(1), (share * keep * d).sum(1), d @ within, d @ across]
        torch.testing.assert_close(least[:, c], price[:, lo:hi].amin(dim=1), rtol=0.0, atol=1e-14)
        torch.testing.assert_close(
            totals[:, c], torch.logsumexp(-price[:, lo:hi] / at.tau, dim=1), rtol=1e-12, atol=0.0
        )
        torch.testing.assert_close(again[:, c], totals[:, c], rtol=1e-14, atol=0.0)
        for found, value in zip(repaired, wanted, strict=True):
            torch.testing.assert_close(found[:, c], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("how", "scipy_name"), [("euclidean",) * 2, ("manhattan", "cityblock"), ("chebyshev",) * 2])
def test_distances(how: str, scipy_name: str) -> None:
    rng = np.random.default_rng(0)
    rows, anchors = rng.normal(size=(130, 7)), rng.normal(size=(70, 7))
    rows[5], rows[6] = anchors[3], anchors[4] + 1e-9  # equal, and near
    columns = [torch.as_tensor(np.ascontiguousarray(one.T), device=DEVICE) for one in (rows, anchors)]
    out = torch.full((130, 70), torch.nan, **MADE)
    fused_rows.distances(*columns, how, out)
    np.testing.assert_allclose(out.cpu().numpy(), cdist(rows, anchors, scipy_name), rtol=1e-12)
    assert out[5, 3] == 0.0
    narrow = torch.full((100, 70), torch.nan, dtype=torch.float32, device=DEVICE)
    fused_rows.distances(columns[0].float()[:, 20:120], columns[1].float(), how, narrow)
    np.testing.assert_allclose(narrow.cpu().numpy(), cdist(rows[20:120], anchors, scipy_name), rtol=1e-5)


@pytest.mark.skipif(not CUDA, reason="no CUDA device")
@pytest.mark.parametrize("memory", [1 << 30, 1 << 16, 0])
@pytest.mark.parametrize("K", [2, 3])
def test_fits_with_and_without_fused_kernels(K: int, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all distances kept, with some, and with none."""
    pool, how = BlockPool.draw(K, M=1500), sf.Compute("cuda", "float64", memory=memory)
    ours = pool.fit(pool.U, how, radius=0.4).certificate_
    monkeypatch.setattr(TorchArrays, "fused", staticmethod(lambda _distances: None))
    theirs = pool.fit(pool.U, how, radius=0.4).certificate_
    # the Hessians differ by 1e-7, and so do the points at which the searches end
    assert ours.risk == pytest.approx(theirs.risk, abs=1e-7)
    assert ours.lower == pytest.approx(theirs.lower, abs=1e-7)
    assert ours.minimal_radius == pytest.approx(theirs.minimal_radius, rel=1e-8)


@pytest.mark.skipif(not CUDA, reason="no CUDA device")
def test_without_a_compiler_torch_goes_on_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_parts: Any) -> None:
        raise RuntimeError("Failed to find C compiler")

    device = torch.device("cuda:0")
    monkeypatch.setattr(fused_rows, "distances", fails)
    with warns("no_compiler"):
        assert torch_arrays.fused_rows.__wrapped__(device) is None
    monkeypatch.undo()
    assert torch_arrays.fused_rows.__wrapped__(device) is fused_rows
