"""Jobs that ask for GPUs, and what ending them is worth (Hadar, equation (1))."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from eva_master.model.ids import Family

_LEAST_S = 1.0
"""Nothing ends sooner after it came, so that no utility is without bounds."""


class Utility(StrEnum):
    """What a job is worth that ends `d` seconds after it came, all of them falling with `d`.

    Attributes:
        THROUGHPUT: Its iterations / d, which the paper calls effective throughput.
        PROMPTNESS: 1 / d.
        GPU_TIME: The GPU time that it takes on its fastest type / d: models whose iterations are
            short count no more than others.
        SLOWDOWN: How long it takes on its fastest type / d.
    """

    THROUGHPUT = "throughput"
    PROMPTNESS = "promptness"
    GPU_TIME = "gpu-time"
    SLOWDOWN = "slowdown"


@dataclass(frozen=True, slots=True)
class Ask:
    """A job, or a task of an array, that gets all of its GPUs or none.

    Attributes:
        name: Of whoever asks; different ones differ.
        tasks: How many run at a time.
        size: Iterations that they do altogether.
        left: Those that are still to be done.
        rates: Iterations per second of a task, above 0, by the GPU type that it runs on; nothing
            where it cannot run.
        gpus: How many GPUs of a type a task takes, where it can run.
        waited_s: Since when it has been there.
    """

    name: str
    tasks: int
    size: float
    left: float
    rates: Mapping[Family, float]
    gpus: Mapping[Family, int]
    waited_s: float = 0.0

    def takes_s(self, rate: float) -> float:
        """How long all of it takes if each task does so many iterations per second."""
        return self.size / (rate * self.tasks)

    def ends_s(self, rate: float) -> float:
        """How long after it came it ends, if it goes at that pace from now on."""
        return self.waited_s + self.left / (rate * self.tasks)

    @property
    def fastest_s(self) -> float:
        """How long it takes on the type on which it is fastest."""
        return self.takes_s(max(self.rates.values()))


def weight(ask: Ask, utility: Utility) -> float:
    """What a utility is the quotient of, and the seconds from a job's arrival to its end."""
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


def _gpus(ask: Ask) -> int:
    """How many GPUs it takes where it is fastest."""
    family = max(sorted(ask.rates), key=lambda it: ask.rates[it])
    return ask.tasks * ask.gpus[family]
