"""First rates by HadarE's formula, for policies that are to decide before anything was measured.

    throughput = PMI * batch size * PCIe scaling / (model weight * dataset size)

The paper (equation 10) gives neither its constants nor the exact form of PMI, the ratio of what a
GPU computes to its memory "in a square root fashion". They are ours here. For one job only PMI and
PCIe differ between types; the rest compares jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import isqrt

from eva_master.model.ids import MILLION


class ModelSize(StrEnum):
    """How complex a model is."""

    SMALL = "small"
    MODEST = "modest"
    HIGH = "high"
    EXTRA_HIGH = "extra high"


class DatasetSize(StrEnum):
    """How large a dataset is."""

    S = "S"
    M = "M"
    L = "L"
    XL = "XL"


_WEIGHTS = {
    ModelSize.SMALL: 1,
    ModelSize.MODEST: 2,
    ModelSize.HIGH: 4,
    ModelSize.EXTRA_HIGH: 8,
}
_SIZES = {DatasetSize.S: 1, DatasetSize.M: 2, DatasetSize.L: 4, DatasetSize.XL: 8}
_PCIE_PPM = {3: 1_000_000, 4: 1_190_000, 5: 1_410_000, 6: 1_680_000}
"""By generation: each has twice the bandwidth of the one before; its fourth root counts."""
SLOWEST_PCIE, FASTEST_PCIE = min(_PCIE_PPM), max(_PCIE_PPM)
USUAL_PCIE = 3
LARGEST_BATCH = 1_000_000


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU by its data sheet.

    Attributes:
        gflops: Peak of dense half-precision operations, with tensor cores where there are any, in
            thousand millions a second; in single precision where it has no other.
        memory_gib: Its memory.
        pcie: The generation of the PCIe bus that it hangs on.
    """

    gflops: int
    memory_gib: int
    pcie: int = USUAL_PCIE


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained.

    Attributes:
        batch_size: Examples in a mini-batch.
        model: How complex the model is.
        dataset: How large the dataset is.
    """

    batch_size: int = 1
    model: ModelSize = ModelSize.SMALL
    dataset: DatasetSize = DatasetSize.S


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
