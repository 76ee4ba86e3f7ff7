"""The hot kernel in torch: the sums of `soft_rows`, on any device, in float64 or float32.

Sums over rows are accumulated in float64. See `soft_rows` for the quantities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# The products of this many rows are summed together in float64.
_GROUP = 2048


@dataclass(frozen=True)
class SoftRows:
    """A dual point and a smoothing on a device: alpha, beta (n,), kappa (K, C), and the columns of each class.

    response : a `dual.models.Response` with tensors instead of arrays, or None for given losses.
    """

    alpha: float
    tau: float
    beta: Tensor
    kappa: Tensor
    columns: tuple[tuple[int, int], ...]
    response: Any = None

    @classmethod
    def from_decision_set(
        cls, ds: Any, point: Any, tau: float, device: str, dtype: torch.dtype, response: Any = None
    ) -> SoftRows:
        beta = torch.as_tensor(point.beta, dtype=dtype, device=device)
        kappa = torch.as_tensor(ds.present_label_cost, dtype=dtype, device=device)
        if response is not None:
            tables = (torch.as_tensor(part, dtype=dtype, device=device) for part in response[1:])
            response = response._make([response.share, *tables])
        return cls(point.alpha, tau, beta, kappa, ds.class_columns, response)


def class_moments(D: Tensor, beta: Tensor, alpha: float, tau: float) -> tuple[Tensor, ...]:
    """Return unnormalised weights (B, n_c) of one class, and per row the log-sum, 1/sum, E d, E d², and entropy."""
    v = alpha * D + beta
    low = v.amin(dim=1)
    excess = (v - low[:, None]) / tau
    weights = torch.exp(-excess)
    total = weights.sum(dim=1)
    first = (weights * D).sum(dim=1) / total
    second = (weights * D * D).sum(dim=1) / total
    entropy = (weights * excess).sum(dim=1) / total + torch.log(total)
    return weights, low - tau * torch.log(total), 1.0 / total, first, second, entropy


def soft_moments(at: SoftRows, D: Tensor, gain: Tensor) -> dict[str, Any]:
    """Return per row phi (B,), q (B, K), pc (B, C), cost moments, entropy, s (B, K, C), and anchor weights (B, n)."""
    by_class = [class_moments(D[:, lo:hi], at.beta[lo:hi], at.alpha, at.tau) for lo, hi in at.columns]
    S, inverse, T1, T2, entropy = (torch.stack([part[i] for part in by_class], dim=1) for i in range(1, 6))
    cov = None
    if at.response is not None:
        cheapest = at.tau * torch.logsumexp((-at.alpha * at.kappa - S[:, None, :]) / at.tau, dim=2)
        losses, cov = _respond(at, gain + cheapest)
        gain = gain + losses
    value = gain[:, :, None] - at.alpha * at.kappa - S[:, None, :]
    flat = value.flatten(1) / at.tau
    log_total = torch.logsumexp(flat, dim=1)
    p = torch.exp(flat - log_total[:, None]).view_as(value)
    q, pc = p.sum(dim=2), p.sum(dim=1)
    cost = T1[:, None, :] + at.kappa
    by_label = (p * cost).sum(dim=2)
    mean = by_label.sum(dim=1)
    second = (p * (T2[:, None, :] + at.kappa * (2.0 * T1[:, None, :] + at.kappa))).sum(dim=(1, 2))
    plan_entropy = (p * entropy[:, None, :]).sum(dim=(1, 2)) + torch.special.entr(p).sum(dim=(1, 2))
    some = pc > 1e-30
    kbar = torch.where(some, (p * at.kappa).sum(dim=1) / pc.clamp(min=1e-30) - mean[:, None], 0.0)
    s = torch.where(some[:, None, :], p / pc.clamp(min=1e-30)[:, None, :] - q[:, :, None], 0.0)
    for c in range(len(by_class)):
        by_class[c][0].mul_((pc[:, c] * inverse[:, c])[:, None])
    label_cost, variance, pairs = by_label - mean[:, None] * q, second - mean * mean, None
    if cov is not None:
        per = torch.where(q > 1e-30, 1.0 / q.clamp(min=1e-30), 0.0)
        moved, moved_cost = (cov * per[:, None, :]) @ s, torch.einsum("bkl,bl->bk", cov, per * label_cost)
        less = per * (label_cost - moved_cost)
        variance = variance - (less * label_cost).sum(dim=1)
        kbar = kbar - (less[:, :, None] * s).sum(dim=1)
        pairs = 1.0 + torch.einsum("bk,bkc,bke->bce", per, s, s - moved)
        label_cost, s = moved_cost, moved
    return {
        "phi": at.tau * log_total,
        "q": q,
        "mean": mean,
        "variance": variance,
        "entropy": plan_entropy,
        "label_cost": label_cost,
        "kbar": kbar,
        "s": s,
        "pairs": pairs,
        "cov": cov,
        "weights": torch.hstack([part[0] for part in by_class]) if len(by_class) > 1 else by_class[0][0],
    }


def _respond(at: SoftRows, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return losses (B, K) of the best response to prices a (B, K), and cov (B, K, K), as in `soft_rows.respond`."""
    if len(at.response.labels) == 0:
        q = torch.softmax(at.response.share * a, dim=1)
        cov = torch.diag_embed(q) - q[:, :, None] * q[:, None, :]
        return -torch.log_softmax(at.response.share * a, dim=1), (1.0 - at.response.share) * cov
    value = (a @ at.response.labels.T + at.response.values) / at.tau
    share = torch.softmax(value, dim=1)
    q = share @ at.response.labels
    off = at.response.labels[None, :, :] - q[:, None, :]
    cov = (share[:, :, None] * off).transpose(1, 2) @ off
    best = torch.logsumexp(value, dim=1, keepdim=True)
    return at.tau * (best + torch.log(q.clamp(min=1e-30))) - a, cov


def add_row_sums(
    sums: dict[str, Tensor],
    at: SoftRows,
    D: Tensor,
    m: Tensor,
    gain: Tensor,
    X: Tensor | None,
    losses: Tensor,
    *,
    second_order: bool,
) -> None:
    """Add a chunk of rows to the sums of `dual.RowSums`. D sets the precision. Everything else is float64."""
    moments = soft_moments(at, D, gain.to(D.dtype))
    a, s = moments["weights"], moments["s"]
    dtype = D.dtype
    small = m.to(dtype)
    q, label_cost = moments["q"].double(), moments["label_cost"].double()
    sums["small"] += torch.stack([m @ moments[name].double() for name in ("phi", "mean", "variance", "entropy")])
    sums["label"] += m @ q
    sums["label_cost"] += m @ label_cost
    if moments["cov"] is None:
        sums["label_label"] -= (m[:, None] * q).T @ q
    else:
        sums["label_label"] += torch.einsum("b,bkl->kl", m, moments["cov"].double()) - torch.diag(m @ q)
    sums["beta"] += (small @ a).double()
    for c, (lo, hi) in enumerate(at.columns):
        part = a[:, lo:hi]
        weighted = torch.stack([small * moments["kbar"][:, c], *(small * s[:, k, c] for k in range(s.shape[1]))])
        found = (weighted @ part).double()
        sums["alpha_beta"][lo:hi] += found[0]
        sums["label_beta"][:, lo:hi] += found[1:]
        sums["alpha_beta"][lo:hi] += (small @ (part * D[:, lo:hi])).double()
    if X is not None:
        add_theta_sums(sums, X, m, q, torch.exp(-losses), label_cost, at.tau, second_order=second_order)
        if second_order:
            narrow = X.to(dtype)
            for k in range(sums["theta_beta"].shape[0]):
                for c, (lo, hi) in enumerate(at.columns):
                    rows = narrow * (small * s[:, k + 1, c])[:, None]
                    sums["theta_beta"][k, lo:hi] += (a[:, lo:hi].T @ rows).double()
    if second_order and moments["pairs"] is not None:
        for c, (lo, hi) in enumerate(at.columns):
            for e, (start, stop) in enumerate(at.columns):
                weighted = a[:, start:stop] * (small * moments["pairs"][:, c, e])[:, None]
                sums["beta_beta"][lo:hi, start:stop] += (a[:, lo:hi].T @ weighted).double()
    elif second_order:
        a.mul_(small.sqrt()[:, None])
        sums["beta_beta"] += (a.T @ a).double()


def add_theta_sums(
    sums: dict[str, Tensor],
    X: Tensor,
    m: Tensor,
    q: Tensor,
    p: Tensor,
    label_cost: Tensor,
    tau: float,
    *,
    second_order: bool,
) -> None:
    """Add the sums that depend on θ but not on β. q, p and label_cost are (B, K)."""
    K = q.shape[1]
    sums["theta"] += tall_product((m[:, None] * (p - q))[:, 1:], X)
    if not second_order:
        return
    sums["theta_alpha"] += tall_product(m[:, None] * label_cost[:, 1:], X)
    for k in range(1, K):
        cov = -q * q[:, k : k + 1]
        cov[:, k] += q[:, k]
        sums["theta_label"][k - 1] += tall_product(m[:, None] * cov, X)
        for other in range(k, K):
            curvature = p[:, k] * (float(k == other) - p[:, other])
            weight = m * (cov[:, other] / tau + curvature)
            sums["theta_theta"][k - 1, other - 1] += tall_product(X, X * weight[:, None])


def tall_product(left: Tensor, right: Tensor) -> Tensor:
    """Return leftᵀ · right of tall matrices (N, a), (N, b), by groups of rows. One product would use a GPU poorly."""
    N, groups = len(left), len(left) // _GROUP
    if groups < 2 or not left.is_cuda:
        return left.T @ right
    cut = groups * _GROUP
    parts = left[:cut].reshape(groups, _GROUP, -1).transpose(1, 2) @ right[:cut].reshape(groups, _GROUP, -1)
    whole = parts.sum(dim=0)
    return whole if cut == N else whole + left[cut:].T @ right[cut:]
