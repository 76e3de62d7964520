"""First rates by HadarE's formula, for policies that are to decide before anything was measured.

    throughput = PMI * batch size * PCIe scaling / (model weight * dataset size)

The paper (equation 10) gives neither its constants nor the exact form of PMI, the ratio of what a
GPU computes to its memory "in a square root fashion". They are ours here. For one job only PMI and
PCIe differ between types; the rest compares jobs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import isqrt
from statistics import fmean
from typing import TypeVar

from eva_master.model.catalog import FASTEST_PCIE, SLOWEST_PCIE, Gpu
from eva_master.model.job import DatasetSize, ModelSize, Training
from eva_wire.values.bounds import LARGEST_BATCH
from eva_wire.values.ids import MILLION

_WEIGHTS = {
    ModelSize.SMALL: 1,
    ModelSize.MODEST: 2,
    ModelSize.HIGH: 4,
    ModelSize.EXTRA_HIGH: 8,
}
_SIZES = {DatasetSize.S: 1, DatasetSize.M: 2, DatasetSize.L: 4, DatasetSize.XL: 8}
_PCIE_PPM = {3: 1_000_000, 4: 1_190_000, 5: 1_410_000, 6: 1_680_000}
"""By generation: each has twice the bandwidth of the one before; its fourth root counts."""


def performance_memory_index_ppm(gpu: Gpu) -> int:
    """PMI: the square root of the operations a second for each byte of memory, in millionths."""
    return isqrt(gpu.gflops * MILLION * MILLION // (1_000 * max(1, gpu.memory_gib)))


def first_rate_ppm(gpu: Gpu, training: Training) -> int:
    """The throughput of a job on one GPU by the formula, in millionths of a unit of its own.

    Args:
        gpu: On what. A generation of PCIe that is not known counts as the nearest one.
        training: Of what.

    Returns:
        At least 1.
    """
    pcie = _PCIE_PPM[min(FASTEST_PCIE, max(SLOWEST_PCIE, gpu.pcie))]
    batch = min(LARGEST_BATCH, max(1, training.batch_size))
    weight = _WEIGHTS[training.model] * _SIZES[training.dataset]
    return max(1, performance_memory_index_ppm(gpu) * batch * pcie // (MILLION * weight))


_Place = TypeVar("_Place", bound=Hashable)


def expected_rates(
    known: Mapping[_Place, float], gpus: Mapping[_Place, Gpu | None], training: Training
) -> dict[_Place, float]:
    """Rates of a job on some GPUs, of which only a part was measured.

    Without figures of its GPUs, a place gets the mean of the measured rates.

    Args:
        known: Measured rates, above 0.
        gpus: All places in question, with their GPUs.
        training: Size of the training.

    Returns:
        By place, in the unit of `known`; if that is empty, in the formula's own unit, or 1 where
        the formula does not apply.
    """
    firsts = {
        place: first_rate_ppm(gpu, training) for place, gpu in gpus.items() if gpu is not None
    }
    if not known and len(firsts) == len(gpus):
        return {place: first / MILLION for place, first in firsts.items()}
    usual = fmean(known.values()) if known else 1.0
    units = [rate / firsts[place] for place, rate in known.items() if place in firsts]
    unit = fmean(units) if units else None
    return {
        place: known.get(place)
        or (usual if unit is None or place not in firsts else unit * firsts[place])
        for place in gpus
    }
