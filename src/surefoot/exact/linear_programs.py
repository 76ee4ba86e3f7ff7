"""Linear programs of a search: the vertex that ends it where losses are fixed, and the repair of its adversaries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from surefoot._types import FloatArray
from surefoot.dual.adversary import Adversary, allowance
from surefoot.dual.block import RowlessProblem
from surefoot.dual.point import DualPoint
from surefoot.dual.sweep import table_of
from surefoot.exact.judge import JointState, Judge
from surefoot.solvers.vertex import (
    Triples,
    cheapest_triples,
    nearest_feasible,
    slack_of_nearest,
    solve_restricted,
    triples_near,
    triples_within,
    with_violated,
)

# Triples beyond one per row in the two linear programs tried at fixed losses: share of N, at least per anchor, at most.
_VERTEX_SIZES = ((0.3, 10, 4000), (0.4, 20, 6000))
# Programs over triples, each with those that the last one lacked, before the path goes on.
_MOST_ADDITIONS, _MOST_ADDED = 6, 2000
# At the minimal radius triples count whose reduced cost is below about twice this share of the allowance.
_TIGHT = 0.2
# The allowance where the minimal radius is zero, as a share of distances and label costs.
_ROUNDING = 1e-12
# A program over all triples takes a second where they are no more than this.
_FEW_TRIPLES = 20_000
# A program over more rows takes longer than the path.
_MOST_ROWS = 1 << 21


def try_vertex(judge: Judge, path: JointState, tol: float) -> None:
    """At fixed losses the problem is a linear program: try one over the triples that can matter at this τ.

    Few triples make a small program, but they must hold an optimal vertex: their slack is to be some τ wide.
    """
    sweep, problem, point = judge.sweep, judge.problems[0], path.point.parts[0]
    N, n = sweep.n_rows, len(problem.decision_set.anchor_weights)
    if N > _MOST_ROWS:
        return
    few, more = (N + int(np.clip(share * N, per_anchor * n, most)) for share, per_anchor, most in _VERTEX_SIZES)
    estimate = slack_of_nearest(sweep, problem, point, [few, more])
    if estimate[0] < 0.8 * path.tau and estimate[1] < 6.0 * path.tau:
        return
    near = triples_near(sweep, problem, point, more)
    for count, width in ((few, 1.0), (more, 8.0)):
        triples, slack = near.nearest(count)
        if slack >= width * path.tau and triples.may_hold_a_plan():
            _solve_with_additions(judge, problem, path, triples, tol)
            break


def vertex_at_minimal_radius(judge: Judge, path: JointState, tol: float) -> None:
    """At the minimal radius every plan is a cheapest one: the program over the triples that such plans are made of.

    These are known by the potentials of the minimal radius, (b, l): their reduced cost d + κ + b + l − u is zero. A
    price α on it, times which (b, l) are added to the multipliers of the program, keeps all others out. A little above
    the minimal radius others are let in, as far as there is room, if the problem is small.
    """
    member, model = judge.members[0], judge.model
    ds, minimal = member.decision_set, member.minimal
    tight = allowance(ds, minimal.value) or _ROUNDING * (float(ds.label_cost.max()) + ds.median_distance)
    if tight <= 0:
        return  # nothing costs anything: any plan will do
    steep = model.scale / (_TIGHT * tight)
    _vertex_beyond(judge, path, 0.0, 2.0 * _TIGHT * tight, (0.1 * steep, steep, 10.0 * steep))
    few = judge.sweep.n_rows * ds.n_classes * len(ds.anchor_weights) <= _FEW_TRIPLES
    if judge.gap > tol and few and minimal.excess(ds.radius) > 0:
        _vertex_beyond(judge, path, minimal.excess(ds.radius), np.inf, ())


def _vertex_beyond(judge: Judge, path: JointState, room: float, slack: float, alphas: tuple[float, ...]) -> None:
    """The program over triples of reduced cost up to slack, which may add up to the room; at its own α, or at these."""
    minimal, theta = judge.members[0].minimal, np.zeros(judge.model.shape)
    prices = DualPoint(theta, 1.0, minimal.label_potentials, minimal.anchor_potentials)
    triples = cheapest_triples(judge.sweep, judge.problems[0], prices, slack)
    if triples is None:
        return
    priced = _beyond_cheapest(triples, prices, room) if room > 0 else _cheapest_only(triples, prices)
    solved = solve_restricted(triples, priced)
    if solved is None:
        return
    adversary, point = solved
    rest = np.flatnonzero(prices.lam == 0)
    if room > 0:  # α prices labels as well
        point = replace(point, lam=point.lam - point.alpha * prices.lam)
    elif len(rest) == 1:
        point = replace(point, lam=point.lam - point.lam[rest], beta=point.beta + point.lam[rest])
    for alpha in alphas or (point.alpha,):
        at = DualPoint(theta, alpha, point.lam + alpha * prices.lam, point.beta + alpha * prices.beta)
        where = replace(path, point=replace(path.point, parts=(at,)))
        judge.consider_points([at], [judge.risk_beyond(0, replace(point, alpha=alpha))], np.ones(1), where)
    judge.consider_mixture({0: (adversary, triples.row_weights @ adversary.label_proba)}, np.ones(1), theta)


def _cheapest_only(triples: Triples, prices: DualPoint) -> Triples:
    """Nothing is priced; a label that has a price is given as often, or as seldom, as it may be."""
    ds, rest = triples.decision_set, np.flatnonzero(prices.lam == 0)
    lo, hi = ds.intervals.T
    paid = np.where(prices.lam != 0, np.where(prices.lam > 0, hi, lo), [lo, hi]).T
    if len(rest) == 1:  # the others leave this one no choice, and it needs no multiplier
        paid[rest] = 1.0 - np.delete(paid[:, 0], rest).sum()
    return replace(triples, decision_set=replace(ds, intervals=paid, radius=1.0), cost=np.zeros(len(triples)))


def _beyond_cheapest(triples: Triples, prices: DualPoint, room: float) -> Triples:
    """Priced by what plans cost beyond the cheapest: reduced costs, and labels given less often than is cheapest."""
    ds = triples.decision_set
    cheapest = float(np.where(prices.lam > 0, ds.intervals[:, 1], ds.intervals[:, 0]) @ prices.lam)
    cost = triples.short - prices.lam[triples.labels]
    return replace(triples, decision_set=ds.with_radius(room - cheapest), cost=cost)


def vertices_within(judge: Judge, slack: float, tol: float) -> None:
    """The program over all triples within slack at the best dual point so far, if they are not too many."""
    if judge.upper is None:
        return
    opened = RowlessProblem.of(judge.members[0].opened, judge.model)
    triples = triples_within(judge.sweep, opened, judge.upper.points[0], slack)
    if triples is not None:
        _solve_with_additions(judge, opened, judge.upper.path, triples, tol)


def _solve_with_additions(
    judge: Judge, problem: RowlessProblem, path: JointState, triples: Triples, tol: float
) -> None:
    """Solve the program over these triples; add those that its prices show to be missing, a few times."""
    theta, weights, wanted = path.point.theta, np.ones(1), triples
    for _ in range(_MOST_ADDITIONS):
        solved = solve_restricted(wanted)
        if solved is None:
            return
        adversary, point = solved[0], replace(solved[1], theta=theta)
        at = replace(path, point=replace(path.point, parts=(point,)))
        judge.consider_points([point], [judge.risk(0, point)], weights, at)
        shares = wanted.row_weights @ adversary.label_proba
        judge.consider_mixture({0: (adversary, shares)}, weights, theta)
        if judge.gap <= tol:
            return
        more = with_violated(judge.sweep, problem, wanted, point, 1e-9 * judge.model.scale)
        if more is None or len(more) - len(triples) > _MOST_ADDED:
            return  # nothing is missing, or the prices are far off: a smaller τ will know better
        wanted = more


def repair_by_linear_program(judge: Judge, slack: float) -> None:
    """Move the labels of each soft plan no further than it takes to be feasible."""
    if judge.upper is None:
        return
    points, weights, path = list(judge.upper.points), judge.upper.weights, judge.upper.path
    repaired: dict[int, tuple[Adversary, FloatArray]] = {}
    for s, (one, shares) in judge.soft_adversaries(weights, points, path.tau).items():
        opened = RowlessProblem.of(judge.members[s].opened, judge.model)
        triples = triples_within(judge.sweep, opened, points[s], slack)
        found = None
        if triples is not None:
            wanted = table_of(judge.sweep, judge.problems[s], one)
            found = nearest_feasible(triples, wanted, opened.decision_set.radius)
        repaired[s] = (
            (one, shares) if found is None or triples is None else (found, triples.row_weights @ found.label_proba)
        )
    judge.consider_mixture(repaired, weights, points[0].theta)
