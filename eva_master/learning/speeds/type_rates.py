"""How fast tasks are on types of GPUs where nobody measured them: inferred from all that was.

This is the one place that says so. The rate of a workload on a family is taken for the product of
what the workload is and what the family is, exp(a + b). Least squares of logarithms over all that
was measured give both, with each b drawn to what the data sheet says. One workload may be wrong, or
lie: its residuals count up to a bound, and no family is taken for more than twice or less than half
of what its data sheet says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from eva_master.model.arithmetic.fixed_point import exp_of_ppm, log_ppm
from eva_wire.values.ids import Family, Workload

Sheets = Mapping[Family, int]
"""Expected speed of a family's GPUs: by data sheets, their memory bandwidth in GB/s. Families
without GPUs, or without figures, are left out.
"""
Row = tuple[tuple[Workload, Family], int]
"""A measured rate, as in `StandaloneRates`; sorted by workload."""
_Ints = npt.NDArray[np.int64]

_PULL = 4
"""The data sheet counts as this many workloads that behave as it says."""
_BOUND_PPM = 300_000
"""A larger deviation of a workload counts as this much, a factor of 1.35."""
_MOST_PPM = 693_147
"""A family is at most twice and at least half as fast as its data sheet says."""
_STEP_PPM = 20_000
"""Inferred speeds have steps of 2 %, so that noise does not change the value of tasks."""
_SWEEPS = 64
_VERSIONS_KEPT = 4
"""More than one, since a user's question may be about another cluster than the plan's."""


@dataclass(frozen=True, slots=True)
class TypeSpeeds:
    """Expected speeds of families, in the unit of data sheets; only ratios matter.

    Attributes:
        on_sheets: Speeds by data sheets.
        inferred: Speeds fitted to measured workloads, drawn to the data sheets.
        single: The only workload with measurements. For itself it is no independent evidence, so
            its own speeds are those of the data sheets.
    """

    on_sheets: Sheets
    inferred: Sheets
    single: Workload | None = None

    def of(self, workload: Workload) -> Sheets:
        """Expected speeds of the families for a workload."""
        return self.on_sheets if workload == self.single else self.inferred


def type_speeds(on_sheets: Sheets, measured: Sequence[Row]) -> TypeSpeeds:
    """Fit the families' speeds to what was measured.

    Args:
        on_sheets: Speeds by data sheets. Nothing is inferred of families that they leave out.
        measured: Standalone rates, sorted by workload; those of 0 are unknown.

    Returns:
        The speeds by data sheets as long as no workload was measured on two of their families.
    """
    if not on_sheets:
        return TypeSpeeds(on_sheets, on_sheets)
    priors = {family: log_ppm(bandwidth) for family, bandwidth in on_sheets.items()}
    telling: list[list[tuple[Family, int]]] = []
    single: Workload | None = None
    for workload, rows in groupby(measured, key=_workload):
        deviations = [
            (family, log_ppm(rate) - priors[family])
            for (_, family), rate in rows
            if rate > 0 and family in priors
        ]
        if len(deviations) > 1:
            telling.append(deviations)
            single = workload
    if not telling:
        return TypeSpeeds(on_sheets, on_sheets)
    inferred = dict(on_sheets)
    for family, off in _fitted(telling).items():
        steps = (2 * off + _STEP_PPM) // (2 * _STEP_PPM)
        if steps:
            inferred[family] = max(1, exp_of_ppm(priors[family] + steps * _STEP_PPM))
    return TypeSpeeds(on_sheets, inferred, single if len(telling) == 1 else None)


def _fitted(telling: Sequence[Sequence[tuple[Family, int]]]) -> dict[Family, int]:
    """Deviations of families from their data sheets, in millionths of a logarithm.

    Workloads and families are fitted in turn. Residuals are cut, so the fit minimises Huber's loss
    plus the pull of the data sheets.

    Args:
        telling: Per workload, its deviation from the data sheet on each family, its own speed
            included.
    """
    families = sorted({family for rows in telling for family, _ in rows})
    numbers = {family: number for number, family in enumerate(families)}
    family_of = np.array([numbers[family] for rows in telling for family, _ in rows])
    off = np.array([value for rows in telling for _, value in rows], dtype=np.int64)
    sizes = np.array([len(rows) for rows in telling], dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    by_family = np.argsort(family_of, kind="stable")
    counts = np.bincount(family_of)
    family_starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    fitted = np.zeros(len(families), dtype=np.int64)
    for _ in range(_SWEEPS):
        by_entry = fitted[family_of]
        own = _rounded(np.add.reduceat(off - by_entry, starts), sizes)
        residuals = off - by_entry - np.repeat(own, sizes)
        cut = np.clip(residuals, -_BOUND_PPM, _BOUND_PPM)
        sums = np.add.reduceat(cut[by_family], family_starts)
        before = fitted
        fitted = _rounded(fitted * counts + sums, counts + _PULL)
        fitted = np.clip(fitted, -_MOST_PPM, _MOST_PPM)
        if np.array_equal(before, fitted):
            break
    return dict(zip(families, fitted.tolist(), strict=True))


def _rounded(numerators: _Ints, denominators: _Ints) -> _Ints:
    """Quotients to the nearest integer, alike on both sides of zero."""
    rounded: _Ints = (2 * np.abs(numerators) + denominators) // (2 * denominators)
    signed: _Ints = np.sign(numerators) * rounded
    return signed


class TypeSpeedsView:
    """Memory of the speeds inferred from the last versions of the measurements.

    A version is a tuple that is replaced when something is learned, and never changed. The speeds
    of a version are computed once.

    Args:
        on_sheets: Speeds by data sheets.
    """

    def __init__(self, on_sheets: Sheets) -> None:
        self._on_sheets = on_sheets
        self._last: tuple[tuple[tuple[Row, ...], TypeSpeeds], ...] = ()

    def of(self, measured: tuple[Row, ...]) -> TypeSpeeds:
        """Expected speeds of the families by a version of the measurements."""
        last = self._last
        for rows, speeds in last:
            if rows is measured:
                return speeds
        fresh = type_speeds(self._on_sheets, measured)
        # One assignment, so that threads may share this.
        self._last = ((measured, fresh), *last[: _VERSIONS_KEPT - 1])
        return fresh


def _workload(row: Row) -> Workload:
    return row[0][0]
