"""Settings of the Owl policy."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.option_types import Seconds, Share, Throughput


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        round_gap_s: From one round to the next, `None` for as often as the control loop likes.
        profile: How fast workloads run beside one another, as it was measured beforehand: a
            workload, the one beside it, and its normalised throughput in millionths. A workload
            such as ``resnet18[3]`` that is not in it counts as its base, ``resnet18``. Empty:
            what the cluster has seen of pairs so far.
        least_throughput_ppm: A pair of which one runs slower than this is no pair.
        migrate: Whether tasks that run alone are moved in order to be paired.
        explained: Give reasons with every plan; they decide nothing.
    """

    round_gap_s: Seconds | None = 300
    profile: tuple[tuple[str, str, Throughput], ...] = ()
    least_throughput_ppm: Share = 900_000
    migrate: bool = True
    explained: bool = True
