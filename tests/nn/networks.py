"""Small problems for networks, and the training that several processes share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from surefoot.dual.models import DualPoint
from surefoot.nn import DualLoss
from surefoot.problem.sets import build_decision_set


def moons(n: int = 20, M: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two moons: labeled rows and labels, then unlabeled rows and their hidden labels."""
    X, y = make_moons(n + M, noise=0.1, random_state=0)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X[:n], y[:n], X[n:], y[n:]


def two_layers(seed: int = 0, d: int = 2, K: int = 2, width: int = 32) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(d, width), nn.ReLU(), nn.Linear(width, K))


class Robust(nn.Module):
    """A network and its dual variables as one module, which DistributedDataParallel needs."""

    def __init__(self, network: nn.Module, loss: DualLoss) -> None:
        super().__init__()
        self.network, self.loss = network, loss

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.loss(rows, self.network(rows))


def small_robust() -> tuple[Robust, torch.Tensor]:
    """A network on 40 rows and the rows; doubles, so that only the order of additions differs between processes."""
    X, y, U, _ = moons(8, 32)
    ds = build_decision_set(X, y, 2, X_unlabeled=U, radius=0.9, label_prior=[[0.4, 0.6], [0.4, 0.6]])
    rng = np.random.default_rng(0)
    point = DualPoint(np.zeros((0, 0)), 1.0, rng.normal(size=2), rng.normal(size=8))
    loss = DualLoss(ds, X[ds.anchor_rows]).set_duals_from(point)
    return Robust(two_layers(width=8), loss).double(), torch.as_tensor(np.vstack([X, U]))


def train_together(rank: int, world: int, store: str, out: str, steps: int = 30) -> None:
    """Full batches of 40 rows, a share for each process; the first one saves its parameters."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    try:
        robust, rows = small_robust()
        shared = DistributedDataParallel(robust)
        run(shared, robust.loss, rows[rank::world], steps)
        if rank == 0:
            torch.save(robust.state_dict(), Path(out))
    finally:
        torch.distributed.destroy_process_group()


def run(module: Any, loss: DualLoss, rows: torch.Tensor, steps: int) -> None:
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        module(rows).backward()
        optimizer.step()
        loss.project_()
