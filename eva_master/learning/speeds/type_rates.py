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
from eva_master.model.ids import Family, Workload

Sheets = Mapping[Family, int]
"""What is expected of the GPUs of a family: by data sheets their memory bandwidth in GB/s. Families
of which nothing is known, or that have no GPUs, are left out."""
Row = tuple[tuple[Workload, Family], int]
"""A measured rate, as in `StandaloneRates`; sorted by workload."""
_Ints = npt.NDArray[np.int64]

_PULL = 4
"""The data sheet counts as so many workloads that behave as it says."""
_BOUND_PPM = 300_000
"""A workload that is off by more, a factor of 1.35, counts as if it were off by this."""
_MOST_PPM = 693_147
"""A family is never more than twice as fast as its data sheet says, nor less than half as fast."""
_STEP_PPM = 20_000
"""What is inferred is told in steps of 2 %, so that noise values no task anew."""
_SWEEPS = 64
_VERSIONS_KEPT = 4
"""More than one: what a user asks about may be of another cluster than what is planned."""


@dataclass(frozen=True, slots=True)
class TypeSpeeds:
    """What is expected of the families, in the unit of data sheets; only ratios matter.

    Attributes:
        on_sheets: What data sheets say.
        inferred: What the workloads say that were measured, drawn to it.
        single: The only workload that says anything. To itself it says nothing new: of it the
            data sheets are asked.
    """

    on_sheets: Sheets
    inferred: Sheets
    single: Workload | None = None

    def of(self, workload: Workload) -> Sheets:
        """What is expected of the families for a workload."""
        return self.on_sheets if workload == self.single else self.inferred


def type_speeds(on_sheets: Sheets, measured: Sequence[Row]) -> TypeSpeeds:
    """Fit the families' speeds to what was measured.

    Args:
        on_sheets: What data sheets say. Nothing is inferred of families that they leave out.
        measured: Standalone rates, sorted by workload; those of 0 are unknown.

    Returns:
        What the data sheets say as long as no workload was measured on two of their families.
    """
    if not on_sheets:
        return TypeSpeeds(on_sheets, on_sheets)
    priors = {family: log_ppm(bandwidth) for family, bandwidth in on_sheets.items()}
    telling: list[list[tuple[Family, int]]] = []
    single: Workload | None = None
    for workload, rows in groupby(measured, key=_workload):
        found = [
            (family, log_ppm(rate) - priors[family])
            for (_, family), rate in rows
            if rate > 0 and family in priors
        ]
        if len(found) > 1:
            telling.append(found)
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
    """By how much families are off their data sheets, in millionths of a logarithm.

    Workloads and families are fitted in turn. Residuals are cut, so what is minimised is Huber's
    loss, and the pull of the data sheets.

    Args:
        telling: Per workload, by how much it was off the data sheets on each family, and by its
            own speed.
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
        known = fitted[family_of]
        own = _rounded(np.add.reduceat(off - known, starts), sizes)
        residuals = off - known - np.repeat(own, sizes)
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
    found: _Ints = (2 * np.abs(numerators) + denominators) // (2 * denominators)
    signed: _Ints = np.sign(numerators) * found
    return signed


class TypeSpeedsView:
    """Remembers what followed from the last versions of what was measured.

    A version is a tuple that is replaced when something is learned, and never changed. So nothing
    is worked out anew before that.

    Args:
        on_sheets: What data sheets say.
    """

    def __init__(self, on_sheets: Sheets) -> None:
        self._on_sheets = on_sheets
        self._last: tuple[tuple[tuple[Row, ...], TypeSpeeds], ...] = ()

    def of(self, measured: tuple[Row, ...]) -> TypeSpeeds:
        """What is expected of the families by a version."""
        last = self._last
        for rows, known in last:
            if rows is measured:
                return known
        found = type_speeds(self._on_sheets, measured)
        # One assignment, so that threads may share this.
        self._last = ((measured, found), *last[: _VERSIONS_KEPT - 1])
        return found


def _workload(row: Row) -> Workload:
    return row[0][0]
