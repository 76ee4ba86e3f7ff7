"""Linear programs of a search: the vertex that ends it for fixed losses, and the repair of adversaries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack, vstack

from surefoot._validation import FloatArray
from surefoot.dual.adversary import Adversary, LabelTable, allowance
from surefoot.dual.block import Block, DualProblem
from surefoot.dual.models import DualPoint
from surefoot.dual.objective import free_label_multipliers
from surefoot.dual.row_store import RowStore, table_of
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.search.best_bounds import BestBounds, JointState

# Linear programs over the triples (row, label, anchor) that may be used. They are exact, and cheap for few triples.

# A whole plan is stored if it has at most this many entries. Larger problems are left to the path.
MOST_ENTRIES = 400_000
_EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
# A second program solves for the residual of the first program, enlarged by this factor.
_ENLARGED, _SIDES = 1e7, (("A_ub", "b_ub"), ("A_eq", "b_eq"))
# The slack of a given number of triples is estimated from this many rows.
_SAMPLE = 400


@dataclass(frozen=True, eq=False)
class Triples:
    """Triples (row j, label k, anchor i) that a plan may use, and the decision set's constraints on the plan.

    row_weights : (N,) of all rows; largest_cost : the largest cost of any row and anchor.
    rows, labels, anchors, short, cost, loss : (T,) of each triple. `short` is the gap between the value of the triple
    and the best value of its row at a dual point; `cost` is the ground cost; `loss` is the loss of row and label.
    """

    decision_set: DecisionSet
    row_weights: FloatArray
    largest_cost: float
    rows: NDArray[np.intp]
    labels: NDArray[np.intp]
    anchors: NDArray[np.intp]
    short: FloatArray
    cost: FloatArray
    loss: FloatArray

    @classmethod
    def from_table(cls, ds: DecisionSet, row_weights: FloatArray, largest_cost: float, table: FloatArray) -> Triples:
        """Build triples from the table of `Block.near_triples`."""
        rows, labels, anchors = (table[:, column].astype(np.intp) for column in range(3))
        rest = (np.ascontiguousarray(table[:, column]) for column in (3, 4, 5))
        return cls(ds, row_weights, largest_cost, rows, labels, anchors, *rest)

    def with_columns(self, columns: Iterable[NDArray[Any]]) -> Triples:
        return Triples(self.decision_set, self.row_weights, self.largest_cost, *columns)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, kept: Any) -> Triples:
        return self.with_columns(column[kept] for column in self.columns)

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        return self.rows, self.labels, self.anchors, self.short, self.cost, self.loss

    def nearest(self, count: int) -> tuple[Triples, float]:
        """Return the `count` triples of smallest `short`, with ties, and their largest `short` (infinite if fewer)."""
        slack = float(np.partition(self.short, count - 1)[count - 1]) if count <= len(self) else np.inf
        return self[self.short <= slack], slack

    def sums_over(self, index: NDArray[np.intp], size: int) -> csr_array:
        return csr_array((np.ones(len(index)), (index, np.arange(len(index)))), shape=(size, len(index)))

    def constraints(self, radius: float) -> dict[str, Any]:
        """Return A_ub, b_ub (cost, upper and lower label bounds) and A_eq, b_eq (rows, anchors) for linprog."""
        ds = self.decision_set
        by_label = self.sums_over(self.labels, ds.n_classes)
        by_row = self.sums_over(self.rows, len(self.row_weights))
        by_anchor = self.sums_over(self.anchors, len(ds.anchor_weights))
        lo, hi = ds.intervals.T
        return {
            "A_ub": vstack([csr_array(self.cost[None, :]), by_label, -by_label]),
            "b_ub": np.concatenate([[radius], hi, -lo]),
            "A_eq": vstack([by_row, by_anchor]),
            "b_eq": np.concatenate([self.row_weights, ds.anchor_weights]),
        }

    def mass_of_single(self, single: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray, float]:
        """Return the mass on anchors (n,) and on labels (K,), and the cost, of the rows with only one triple."""
        ds, fixed = self.decision_set, self[single]
        mass = self.row_weights[fixed.rows]
        on_anchors = np.bincount(fixed.anchors, weights=mass, minlength=len(ds.anchor_weights))
        on_labels = np.bincount(fixed.labels, weights=mass, minlength=ds.n_classes)
        return cast("FloatArray", on_anchors), cast("FloatArray", on_labels), float(mass @ fixed.cost)

    def may_hold_a_plan(self) -> bool:
        """Return False if a row has no triple, or if rows with one triple exceed the mass of an anchor."""
        count = np.bincount(self.rows, minlength=len(self.row_weights))
        on_anchors = self.mass_of_single(count[self.rows] == 1)[0]
        return bool(count.min() > 0 and np.all(on_anchors <= self.decision_set.anchor_weights + 1e-12))

    def transport_cost(self, plan: FloatArray) -> float:
        """Compute the cost of a plan (T,) after correcting marginals that are exact only up to the solver tolerance.

        Each row is scaled to its weight. Mass that exceeds the weight of an anchor is moved at the largest cost.
        """
        ds, weights = self.decision_set, self.row_weights
        total = np.bincount(self.rows, weights=plan, minlength=len(weights))
        exact = plan * np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)[self.rows]
        on_anchors = np.bincount(self.anchors, weights=exact, minlength=len(ds.anchor_weights))
        missing = max(float(weights[total <= 0].sum()), 0.0)
        moved = float(np.maximum(on_anchors - ds.anchor_weights, 0.0).sum()) + missing
        return float(exact @ self.cost) + moved * self.largest_cost

    def adversary(self, plan: FloatArray) -> LabelTable:
        """Return the labels of a plan (T,) on the triples, and the cost."""
        K = self.decision_set.n_classes
        q = np.zeros((len(self.row_weights), K))
        np.add.at(q, (self.rows, self.labels), plan)
        total = q.sum(axis=1, keepdims=True)
        q = np.divide(q, total, out=np.full_like(q, 1.0 / K), where=total > 0)
        return LabelTable(q, self.transport_cost(plan))


def slack_of_nearest(sweep: RowStore, problem: DualProblem, point: DualPoint, counts: list[int]) -> list[float]:
    """Estimate the slack needed to obtain the given numbers of triples, from a sample of rows."""
    ds, N = problem.decision_set, sweep.n_rows
    sample = np.unique(np.linspace(0, N - 1, min(N, _SAMPLE)).astype(np.intp))
    gaps = sweep.gather(problem, Block.sampled_gaps, point, sample)
    total = N * ds.n_classes * len(ds.anchor_weights)
    return [float(slack) for slack in np.quantile(gaps, [min(1.0, count / total) for count in counts])]


def triples_near(sweep: RowStore, problem: DualProblem, point: DualPoint, most: int) -> Triples:
    """Return about `most` triples with the smallest gap to the best triple of their row."""
    slack = slack_of_nearest(sweep, problem, point, [int(1.1 * most)])[0]
    return _triples(sweep, problem, sweep.gather(problem, Block.near_triples, point, slack))


def triples_within(sweep: RowStore, problem: DualProblem, point: DualPoint, slack: float) -> Triples | None:
    """Return the triples within slack of the best triple of their row, or None if there are too many."""
    if sweep.n_rows > MOST_ENTRIES:
        return None
    found = sweep.gather(problem, Block.near_triples, point, slack)
    return _triples(sweep, problem, found) if len(found) <= MOST_ENTRIES else None


def cheapest_triples(sweep: RowStore, problem: DualProblem, prices: DualPoint, slack: float) -> Triples | None:
    """Return triples of reduced cost at most slack, which make up the cheapest plans, or None if there are too many."""
    if sweep.n_rows > MOST_ENTRIES:
        return None
    found = sweep.gather(problem, Block.cheapest_triples, prices, slack)
    return _triples(sweep, problem, found) if len(found) <= MOST_ENTRIES else None


def with_violated(
    sweep: RowStore, problem: DualProblem, triples: Triples, point: DualPoint, slack: float
) -> Triples | None:
    """Add the triples whose value at a dual point exceeds all known triples of their row by more than slack.

    At most the best triple of each row and label is added. Returns None if no triple is added.
    """
    price = point.lam[triples.labels] + point.alpha * triples.cost + point.beta[triples.anchors]
    kept = np.full(sweep.n_rows, -np.inf)
    np.maximum.at(kept, triples.rows, triples.loss - price)
    table = sweep.gather(problem, Block.better_triples, point, slack, kept)
    if len(table) == 0:
        return None
    more = Triples.from_table(triples.decision_set, triples.row_weights, triples.largest_cost, table)
    return triples.with_columns(np.concatenate(both) for both in zip(triples.columns, more.columns, strict=True))


def _triples(sweep: RowStore, problem: DualProblem, table: FloatArray) -> Triples:
    ds, weights = problem.decision_set, sweep.gather(problem, Block.row_weights)
    largest = sweep.total(problem, Block.largest_distance).largest[0] + float(ds.label_cost.max())
    return Triples.from_table(ds, weights, largest, table)


def solve_restricted(triples: Triples, priced: Triples | None = None) -> tuple[LabelTable, DualPoint] | None:
    """Maximise Σ π_jki ℓ_jk over plans π on the given triples (j, k, i), by HiGHS. Return a vertex and its multipliers.

    The program contains the exact constraints of the decision set, so the plan is feasible. The plan is optimal for the
    whole set if enough triples were kept. The dual value at the returned point (without θ) shows whether it is. Returns
    None if the kept triples admit no plan.
    priced : the same triples with other costs, and a decision set whose radius bounds the sum of these costs. The plan
    is then exact to the rounding of float64.
    """
    exactly, priced = priced is not None, triples if priced is None else priced
    ds = priced.decision_set
    N, K, n = len(triples.row_weights), ds.n_classes, len(ds.anchor_weights)
    if not triples.may_hold_a_plan():
        return None
    single = np.bincount(triples.rows, minlength=N)[triples.rows] == 1
    on_anchors, on_labels, spent = priced.mass_of_single(single)
    if single.all():
        return _only_plan(triples, on_labels, np.inf if exactly else ds.radius)
    room = ds.anchor_weights - on_anchors
    free = priced[~single]
    open_rows, position = np.unique(free.rows, return_inverse=True)
    # drop redundant constraints: rounding in them alone could make the program infeasible
    binding = free_label_multipliers(ds.intervals)
    by_label = free.sums_over(free.labels, K)[binding]
    lo, hi = (ds.intervals[binding] - on_labels[binding, None]).T
    exact = lo == hi
    on_rows = free.sums_over(position, len(open_rows))
    program = {
        "A_ub": vstack([csr_array(free.cost[None, :]), by_label[~exact], -by_label[~exact]]),
        "b_ub": N * np.concatenate([[ds.radius - spent], hi[~exact], -lo[~exact]]),
        "A_eq": vstack([by_label[exact], free.sums_over(free.anchors, n)[:-1], on_rows]),
        "b_eq": N * np.concatenate([hi[exact], np.maximum(room[:-1], 0.0), triples.row_weights[open_rows]]),
    }
    solved = linprog(-free.loss, **program, method="highs-ds", options=_EXACT)
    if solved.status != 0:
        return None
    plan = np.where(single, triples.row_weights[triples.rows], 0.0)
    x = np.maximum(solved.x, 0.0)
    plan[~single] = (_refined(free.loss, program, x) if exactly else x) / N
    price, equal = -solved.ineqlin.marginals, -solved.eqlin.marginals
    above, below = price[1 : 1 + (~exact).sum()], price[1 + (~exact).sum() :]
    lam = np.zeros(K)
    lam[binding[~exact]], lam[binding[exact]] = above - below, equal[: exact.sum()]
    beta = np.append(equal[exact.sum() : exact.sum() + n - 1], 0.0)
    return triples.adversary(plan), DualPoint(np.zeros((0, 0)), max(float(price[0]), 0.0), lam, beta)


def _refined(loss: FloatArray, program: dict[str, Any], x: FloatArray) -> FloatArray:
    """Refine a solution (T,) to the rounding of float64, by solving for its enlarged residual."""
    left = {right: _ENLARGED * (program[right] - program[matrix] @ x) for matrix, right in _SIDES}
    bounds = np.column_stack([-_ENLARGED * x, np.full(len(x), np.inf)])
    more = linprog(-loss, **program | left, bounds=bounds, method="highs-ds", options=_EXACT)
    return np.maximum(x + more.x / _ENLARGED, 0.0) if more.status == 0 else x


def _only_plan(triples: Triples, on_labels: FloatArray, radius: float) -> tuple[LabelTable, DualPoint] | None:
    """Return the only plan, with multipliers of zero, if each row has one triple and this plan is feasible.

    Zero multipliers price nothing, so missing triples become visible.
    """
    ds = triples.decision_set
    found = triples.adversary(triples.row_weights[triples.rows])
    lo, hi = ds.intervals.T
    if found.transport_cost > radius or np.any(on_labels < lo - 1e-12) or np.any(on_labels > hi + 1e-12):
        return None
    return found, DualPoint(np.zeros((0, 0)), 0.0, np.zeros(ds.n_classes), np.zeros(len(ds.anchor_weights)))


def nearest_feasible(triples: Triples, wanted: FloatArray, radius: float) -> LabelTable | None:
    """Find the plan within radius, on these triples, whose labels differ least, in mass, from `wanted` (N, K).

    Solves min Σ_jk |Σ_i π_jki − m_j q_jk| over plans. Returns None under the conditions of `solve_restricted`.
    """
    N, K, T = len(triples.row_weights), triples.decision_set.n_classes, len(triples)
    parts = triples.constraints(radius)
    # Σ_i π_jki + less_jk − more_jk = m_j q_jk
    by_pair = triples.sums_over(triples.rows * K + triples.labels, N * K)
    unit = eye_array(N * K, format="csr")
    empty = csr_array((parts["A_eq"].shape[0], 2 * N * K))
    empty_ub = csr_array((parts["A_ub"].shape[0], 2 * N * K))
    solved = linprog(
        np.concatenate([np.zeros(T), np.ones(2 * N * K)]),
        A_ub=hstack([parts["A_ub"], empty_ub]),
        b_ub=N * parts["b_ub"],
        A_eq=vstack([hstack([parts["A_eq"], empty]), hstack([by_pair, unit, -unit])]),
        b_eq=N * np.concatenate([parts["b_eq"], (triples.row_weights[:, None] * wanted).ravel()]),
        method="highs-ds",
        options=_EXACT,
    )
    return triples.adversary(np.maximum(solved.x[:T], 0.0) / N) if solved.status == 0 else None


# Triples beyond one per row in the two programs tried for fixed losses: share of N, minimum per anchor, maximum.
_VERTEX_SIZES = ((0.3, 10, 4000), (0.4, 20, 6000))
# At most this many programs run before the path continues. Each adds the triples missing in the program before.
_MOST_ADDITIONS, _MOST_ADDED = 6, 2000
# At the minimal radius, triples with reduced cost below about twice this share of the allowance are used.
_TIGHT = 0.2
# The allowance if the minimal radius is zero, as a share of distances and label costs.
_ROUNDING = 1e-12
# A program over at most this many triples takes about a second.
_FEW_TRIPLES = 20_000
# A program over more than this many rows takes longer than the path.
_MOST_ROWS = 1 << 21


def try_vertex(judge: BestBounds, path: JointState, tol: float) -> None:
    """Try a linear program for fixed losses, over the triples that may be used at this τ.

    Few triples make a small program. They must contain an optimal vertex, so their slack must be a few τ wide.
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


def vertex_at_minimal_radius(judge: BestBounds, path: JointState, tol: float) -> None:
    """Solve the program over the triples of the cheapest plans. At the minimal radius, every plan is a cheapest plan.

    The potentials (b, l) of the minimal radius identify these triples: their reduced cost d + κ + b + l − u is zero. A
    price α on the reduced cost, with α (b, l) added to the multipliers of the program, excludes all other triples. A
    little above the minimal radius, other triples are admitted up to the excess, if the problem is small.
    """
    member, model = judge.members[0], judge.model
    ds, minimal = member.decision_set, member.minimal
    tight = allowance(ds, minimal.value) or _ROUNDING * (float(ds.label_cost.max()) + ds.median_distance)
    if tight <= 0:
        return  # all costs are zero, so any plan is optimal
    steep = model.scale / (_TIGHT * tight)
    _vertex_beyond(judge, path, 0.0, 2.0 * _TIGHT * tight, (0.1 * steep, steep, 10.0 * steep))
    few = judge.sweep.n_rows * ds.n_classes * len(ds.anchor_weights) <= _FEW_TRIPLES
    if judge.gap > tol and few and minimal.excess(ds.radius) > 0:
        _vertex_beyond(judge, path, minimal.excess(ds.radius), np.inf, ())


def _vertex_beyond(judge: BestBounds, path: JointState, room: float, slack: float, alphas: tuple[float, ...]) -> None:
    """Solve the program over triples of reduced cost up to slack, with sum at most `room`, and price by `alphas`."""
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
    if room > 0:  # α also prices labels
        point = replace(point, lam=point.lam - point.alpha * prices.lam)
    elif len(rest) == 1:
        point = replace(point, lam=point.lam - point.lam[rest], beta=point.beta + point.lam[rest])
    for alpha in alphas or (point.alpha,):
        at = DualPoint(theta, alpha, point.lam + alpha * prices.lam, point.beta + alpha * prices.beta)
        where = replace(path, point=replace(path.point, parts=(at,)))
        judge.consider_points([at], [judge.risk_beyond(0, replace(point, alpha=alpha))], np.ones(1), where)
    judge.consider_mixture({0: (adversary, triples.row_weights @ adversary.label_proba)}, np.ones(1), theta)


def _cheapest_only(triples: Triples, prices: DualPoint) -> Triples:
    """Remove all costs. A label with a price is fixed at its largest, or smallest, allowed probability."""
    ds, rest = triples.decision_set, np.flatnonzero(prices.lam == 0)
    lo, hi = ds.intervals.T
    paid = np.where(prices.lam != 0, np.where(prices.lam > 0, hi, lo), [lo, hi]).T
    if len(rest) == 1:  # the rest determine this label, so it needs no multiplier
        paid[rest] = 1.0 - np.delete(paid[:, 0], rest).sum()
    return replace(triples, decision_set=replace(ds, intervals=paid, radius=1.0), cost=np.zeros(len(triples)))


def _beyond_cheapest(triples: Triples, prices: DualPoint, room: float) -> Triples:
    """Use only the cost beyond the cheapest plan: reduced costs, and label probabilities below the cheapest plan's."""
    ds = triples.decision_set
    cheapest = float(np.where(prices.lam > 0, ds.intervals[:, 1], ds.intervals[:, 0]) @ prices.lam)
    cost = triples.short - prices.lam[triples.labels]
    return replace(triples, decision_set=ds.with_radius(room - cheapest), cost=cost)


def vertices_within(judge: BestBounds, slack: float, tol: float) -> None:
    """Solve the program over all triples within slack at the best dual point, if there are not too many."""
    if judge.upper is None:
        return
    opened = DualProblem.from_decision_set(judge.members[0].opened, judge.model)
    triples = triples_within(judge.sweep, opened, judge.upper.points[0], slack)
    if triples is not None:
        _solve_with_additions(judge, opened, judge.upper.path, triples, tol)


def _solve_with_additions(
    judge: BestBounds, problem: DualProblem, path: JointState, triples: Triples, tol: float
) -> None:
    """Solve the program over these triples. Add the triples that its prices show to be missing, a few times."""
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
            return  # no triple is missing, or the prices are poor and improve at a smaller τ
        wanted = more


def repair_by_linear_program(judge: BestBounds, slack: float) -> None:
    """Make the labels of each soft plan feasible by the smallest possible change."""
    if judge.upper is None:
        return
    points, weights, path = list(judge.upper.points), judge.upper.weights, judge.upper.path
    repaired: dict[int, tuple[Adversary, FloatArray]] = {}
    for s, (one, shares) in judge.soft_adversaries(weights, points, path.tau).items():
        opened = DualProblem.from_decision_set(judge.members[s].opened, judge.problems[s].model)
        triples = triples_within(judge.sweep, opened, points[s], slack)
        found = None
        if triples is not None:
            wanted = table_of(judge.sweep, judge.problems[s], one)
            found = nearest_feasible(triples, wanted, opened.decision_set.radius)
        repaired[s] = (
            (one, shares) if found is None or triples is None else (found, triples.row_weights @ found.label_proba)
        )
    judge.consider_mixture(repaired, weights, points[0].theta)
