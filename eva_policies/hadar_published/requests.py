"""Jobs that ask for GPUs, and what ending them is worth (Hadar, equation (1))."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from eva_wire.values.ids import Family

_LEAST_S = 1.0
"""Nothing ends sooner after it came, so that no utility is without bounds."""


class Utility(StrEnum):
    """Utility of a job that ends `d` seconds after it came; each decreases with `d`.

    Attributes:
        THROUGHPUT: Its iterations / d, which the paper calls effective throughput.
        PROMPTNESS: 1 / d.
        GPU_TIME: Its GPU time on its fastest type / d: models of short iterations count no more
            than others.
        SLOWDOWN: Its duration on its fastest type / d.
    """

    THROUGHPUT = "throughput"
    PROMPTNESS = "promptness"
    GPU_TIME = "gpu-time"
    SLOWDOWN = "slowdown"


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """A job, or a task of an array, that gets all of its GPUs or none.

    Attributes:
        name: Unique name of the ask.
        tasks: Number of tasks that run at a time.
        size: Iterations of all its work.
        left: Remaining iterations.
        rates: Iterations per second of a task, above 0, by GPU type; types where it cannot run are
            left out.
        gpus: Number of GPUs of a type that a task takes, where it can run.
        waited_s: Seconds since it came.
    """

    name: str
    tasks: int
    size: float
    left: float
    rates: Mapping[Family, float]
    gpus: Mapping[Family, int]
    waited_s: float = 0.0

    def takes_s(self, rate: float) -> float:
        """Duration of all its work if each task does so many iterations per second."""
        return self.size / (rate * self.tasks)

    def ends_s(self, rate: float) -> float:
        """Time from its arrival to its end, at that pace from now on."""
        return self.waited_s + self.left / (rate * self.tasks)

    @property
    def fastest_s(self) -> float:
        """Duration of all its work on its fastest type."""
        return self.takes_s(max(self.rates.values()))


def weight(ask: GpuRequest, utility: Utility) -> float:
    """Numerator of a utility, whose denominator is the time from a job's arrival to its end."""
    match utility:
        case Utility.THROUGHPUT:
            return ask.size
        case Utility.PROMPTNESS:
            return 1.0
        case Utility.GPU_TIME:
            return ask.fastest_s * _gpus(ask)
        case Utility.SLOWDOWN:
            return ask.fastest_s


def worth(weight_of: float, after_s: float) -> float:
    """The utility of a job that ends so long after it came."""
    return weight_of / max(after_s, _LEAST_S)


def _gpus(ask: GpuRequest) -> int:
    """How many GPUs it takes where it is fastest."""
    family = max(sorted(ask.rates), key=lambda it: ask.rates[it])
    return ask.tasks * ask.gpus[family]
