"""Data sheets of GPUs.

One figure is kept: the memory bandwidth. Of what data sheets state it tells best how much faster
jobs are on one GPU than on another: see docs/design/learning.md.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

from pydantic import Field
from pydantic_core import PydanticCustomError

from eva_master.model.catalog import FASTEST_PCIE, SLOWEST_PCIE, Gpu

GPUS = {
    "K80": 240,
    "M60": 160,
    "P100": 732,
    "V100": 900,
    "T4": 320,
    "T4g": 320,
    "A10G": 600,
    "L4": 300,
    "L40S": 864,
    "A100": 1_555,
    "A100-80GB": 2_039,
    "H100": 3_350,
    "H200": 4_800,
    "B200": 8_000,
}
"""Memory bandwidth of one GPU in GB/s, by name. A card of the K80 or M60 has two GPUs, which count
one by one."""
SHEETS = {
    "K80": Gpu(4_370, 12),
    "M60": Gpu(4_800, 8),
    "P100": Gpu(18_700, 16),
    "V100": Gpu(125_000, 16),
    "T4": Gpu(65_000, 16),
    "T4g": Gpu(65_000, 16),
    "A10G": Gpu(70_000, 24, pcie=4),
    "L4": Gpu(121_000, 24, pcie=4),
    "L40S": Gpu(362_000, 48, pcie=4),
    "A100": Gpu(312_000, 40, pcie=4),
    "A100-80GB": Gpu(312_000, 80, pcie=4),
    "H100": Gpu(989_000, 80, pcie=5),
    "H200": Gpu(989_000, 141, pcie=5),
    "B200": Gpu(2_250_000, 192, pcie=5),
}
"""Inputs of HadarE's formula, for one GPU each."""
Pcie = Annotated[int, Field(ge=SLOWEST_PCIE, le=FASTEST_PCIE, strict=True)]
"""A generation of the PCIe bus."""
_BANDWIDTH = re.compile(r"([1-9][0-9]{0,5})GB/s")


def parse_gpu(text: object) -> int:
    """Read what GPUs a type has: a name, or a bandwidth such as ``900GB/s``.

    Returns:
        Memory bandwidth in GB/s.

    Raises:
        ValueError: The text is neither a name nor a bandwidth.
    """
    if isinstance(text, str):
        if text in GPUS:
            return GPUS[text]
        if match := _BANDWIDTH.fullmatch(text):
            return int(match[1])
    raise PydanticCustomError(
        "gpu",
        "{message}",
        {
            "message": f"{text!r} is no GPU that is known",
            "hint": f"write its memory bandwidth, such as 900GB/s, or one of: {', '.join(GPUS)}",
        },
    )


def sheet(bandwidth: int, pcie: int | None) -> Gpu | None:
    """Inputs of HadarE's formula for a GPU whose bandwidth `parse_gpu` has read.

    Args:
        bandwidth: As read; those of all GPUs that are known by name differ, but for those whose
            sheets are the same.
        pcie: The generation of its PCIe bus; without it there is nothing to ask for.

    Returns:
        `None` if no GPU is known that has it.
    """
    name = next((name for name, gpu_bandwidth in GPUS.items() if gpu_bandwidth == bandwidth), None)
    return None if pcie is None or name is None else replace(SHEETS[name], pcie=pcie)
