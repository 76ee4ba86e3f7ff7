"""A robust problem over blocks: from labeled rows and a source of others to a certified solution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from surefoot._errors import InfeasibleRadiusError
from surefoot._types import FloatArray
from surefoot.blocks.block import Coordinates, Header
from surefoot.blocks.minimal import Nearest, solve_nearest
from surefoot.blocks.search import BlockSearch, BlockSolution
from surefoot.blocks.sources import RowSource, StackedRows, sample_rows
from surefoot.blocks.sweep import Sweep, SweepMaker
from surefoot.costs import Precomputed
from surefoot.problem.rows import LabeledData
from surefoot.problem.sets import DecisionSet
from surefoot.solvers.newton import NewtonOptions, PathPoint
from surefoot.solvers.starts import cold_start, start_from_potentials

# Rows per anchor of the samples on which the path begins, the coarsest first, and the smoothing, in units of the loss,
# at which each hands over to the next.
_LEVELS = ((60, 2e-2), (1000, 4e-3))
_FEWEST_ROWS = 2000
# Potentials of a sample with m rows per anchor are off by about this share of a typical distance, over √m: the minimal
# radius of more rows goes on at such a smoothing.
_HANDOVER = 0.03
# A sample that has more than this share of the rows saves nothing.
_LARGEST_SHARE = 0.4


@dataclass(frozen=True, eq=False)
class BlockProblem:
    """Labeled rows, a source of unlabeled ones, and how to sweep over all of them.

    Attributes
    ----------
    data : labeled rows alone.
    decision_set : of the labeled rows alone: anchors, label intervals and costs.
    source : of the unlabeled rows; sweep : over all rows, the labeled ones first.
    samples : sweeps over random rows, the smallest first: the path begins there.
    """

    data: LabeledData
    decision_set: DecisionSet
    source: RowSource | None
    sweep: Sweep
    samples: tuple[tuple[Sweep, float], ...]
    options: NewtonOptions

    @cached_property
    def header(self) -> Header:
        """The problem without rows and without a model."""
        ds = self.decision_set
        if isinstance(self.data.metric, Precomputed) or ds.anchor_rows is None:
            raise ValueError("rows in blocks need a metric; got precomputed distances. Pass a metric or a function.")
        n = len(ds.anchor_weights)
        bare = replace(ds, distances=np.empty((0, n)), row_weights=np.empty(0))
        return Header(bare, self.data.rows[ds.anchor_rows], self.data.metric, None, np.empty(0))

    def nearest(self, tol: float) -> Nearest:
        """The minimal radius, its bounds within tol of each other, relative to it."""
        return self.nearest_by_level(tol)[-1]

    def nearest_by_level(self, tol: float) -> list[Nearest]:
        """The minimal radius of each sample, then of all rows."""
        found: list[Nearest] = []
        start, typical = None, None
        for sweep, _ in [*self.samples, (self.sweep, 0.0)]:
            level = solve_nearest(
                sweep,
                self.header,
                tol=tol if sweep is self.sweep else max(tol, 1e-3),
                start=start,
                typical_distance=typical,
                options=self.options,
            )
            typical = level.typical_distance
            off = _HANDOVER * typical * np.sqrt(len(self.decision_set.anchor_weights) / sweep.n_rows)
            start = replace(level.path, tau=max(level.path.tau, off))
            found.append(level)
        return found

    def learn(
        self,
        radius: float,
        levels: list[Nearest],
        model: tuple[Coordinates, FloatArray] | None,
        *,
        tol: float,
        scale: float = 1.0,
        on_round: Callable[[PathPoint], None] | None = None,
    ) -> BlockSolution:
        """Solve at a radius: a linear model in these coordinates, or with None the inner problem at fixed losses."""
        nearest = levels[-1]
        if radius < nearest.lower * (1.0 - 1e-9):
            raise InfeasibleRadiusError(radius, nearest.upper)
        if radius < nearest.upper:
            raise ValueError(
                f"radius={radius:.9g} lies between the two bounds of the minimal radius, {nearest.lower:.9g} and "
                f"{nearest.upper:.9g}: whether the set is empty is not known. Pass a radius above."
            )
        header = self.header
        if model is not None:
            header = replace(header, coordinates=model[0], penalty=model[1])
        path: PathPoint | None = None
        searches = []
        for (sweep, _), level in zip([*self.samples, (self.sweep, 0.0)], levels, strict=True):
            at = header.with_radius(radius - nearest.upper + level.upper)
            searches.append(BlockSearch(sweep, at, level, tol, scale, self.options, on_round))
        for search, (_, final) in zip(searches[:-1], self.samples, strict=True):
            path = search.descend(path or _quick(search), final * scale)
        whole = searches[-1]
        began_cold = path is None and nearest.upper <= 0
        found = whole.solve(path or _quick(whole))
        return found if found.gap <= tol or began_cold else whole.solve(_cold(whole))


def block_problem(
    data: LabeledData,
    decision_set: DecisionSet,
    rest: RowSource | None,
    *,
    options: NewtonOptions,
    make_sweep: SweepMaker,
) -> BlockProblem:
    """The problem of labeled rows and all others; `make_sweep` says who adds up over rows."""
    source = StackedRows(data.rows, rest)
    total = data.weights.sum() + source.n_rows - len(data.rows)
    samples: list[tuple[Sweep, float]] = []
    rng = np.random.default_rng(0)
    n = len(decision_set.anchor_weights)
    for per_anchor, tau in _LEVELS:
        size = max(per_anchor * n, _FEWEST_ROWS)
        if rest is not None and size <= _LARGEST_SHARE * source.n_rows:
            rows, _ = sample_rows(rest, size, rng)
            samples.append((make_sweep(StackedRows(rows, None), np.empty(0), 1.0 / size), tau))
    whole = make_sweep(source, data.weights / total, 1.0 / total)
    return BlockProblem(data, decision_set, rest, whole, tuple(samples), options)


def _quick(search: BlockSearch) -> PathPoint:
    """A start from the potentials of the minimal radius, where that is not zero."""
    nearest, header = search.nearest, search.header
    if nearest.upper <= 0:
        return _cold(search)
    return start_from_potentials(
        header.decision_set, header.model, nearest.plan.potentials, nearest.upper, search.scale
    )


def _cold(search: BlockSearch) -> PathPoint:
    header = search.header
    return cold_start(header.decision_set, header.model, search.scale, search.nearest.typical_distance or 1.0)
