"""Demands and durations of jobs, read from a list or drawn at random."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from eva_lab.traces.workloads import MeasuredWorkload, measured_bases
from eva_master.model.catalog import Catalog, base_family
from eva_master.model.resources import Resources
from eva_wire.values.errors import InvalidTrace
from eva_wire.values.ids import MILLION, Family, Workload

_GPUS = (2, 4, 8)
_GPU_PARTS = (0.5, 0.4, 0.1)
_GANGS = (2, 4)


class Draw(IntEnum):
    """The quantities drawn at random, each with its own generator, so that they are independent."""

    ARRIVALS = 1
    DURATIONS = 2
    WORKLOADS = 3
    GPUS = 4
    GANGS = 5
    SHAPES = 6
    SPEEDS = 7
    BLOCKS = 8
    GROUPS = 9
    RUNS = 10
    WIDTHS = 11
    TASKS = 12


def generator(seed: int, draw: Draw) -> np.random.Generator:
    """The random generator of one quantity of a trace."""
    return np.random.default_rng([seed, draw])


@dataclass(frozen=True, slots=True)
class Shape:
    """The demand and duration of a job.

    Attributes:
        demand: Demand of its task, on any family.
        duration_ms: How long it runs alone.
    """

    demand: Resources
    duration_ms: int


def arrivals(seed: int, count: int, gap_ms: int) -> list[int]:
    """Times of a Poisson process, in ms; `gap_ms` is the mean time between two."""
    gaps = generator(seed, Draw.ARRIVALS).exponential(gap_ms, count)
    return [round(at) for at in np.cumsum(gaps).tolist()]


def gavel_durations(seed: int, count: int) -> list[int]:
    """Durations as in Gavel's evaluation, in ms.

    10^x minutes, x uniform in [1.5, 3] with 80 %, in [3, 4] with 20 %.
    """
    rng = generator(seed, Draw.DURATIONS)
    long = rng.random(count) < 0.2
    exponents = np.where(long, rng.uniform(3, 4, count), rng.uniform(1.5, 3, count))
    return [round(60_000 * minutes) for minutes in np.power(10.0, exponents).tolist()]


def short_durations(seed: int, count: int) -> list[int]:
    """Durations with the quantiles that the Eva paper's Table 9 has for Alibaba, in ms.

    Half below 0.2 h, 80 % below 1 h, 95 % below 5.2 h, and a tail that makes the mean about 9 h;
    between these points the logarithm is uniform.
    """
    shares = (0.0, 0.5, 0.8, 0.95, 1.0)
    hours = (0.01, 0.2, 1.0, 5.2, 870.0)
    places = generator(seed, Draw.DURATIONS).random(count)
    logarithms = np.interp(places, shares, [math.log(hour) for hour in hours])
    return [round(3_600_000 * hour) for hour in np.exp(logarithms).tolist()]


def uniform_durations(seed: int, count: int, shortest_ms: int, longest_ms: int) -> list[int]:
    """Durations that are equally likely between two, in ms."""
    drawn = generator(seed, Draw.DURATIONS).uniform(shortest_ms, longest_ms, count)
    return [round(duration) for duration in drawn.tolist()]


def log_durations(seed: int, count: int, shortest_ms: int, longest_ms: int) -> list[int]:
    """Durations whose logarithm is equally likely between two, in ms; both must be positive."""
    low, high = math.log(shortest_ms), math.log(longest_ms)
    drawn = np.exp(generator(seed, Draw.DURATIONS).uniform(low, high, count))
    return [round(duration) for duration in drawn.tolist()]


def assigned(
    seed: int, demands: Sequence[Resources]
) -> dict[Resources, tuple[Workload, MeasuredWorkload]]:
    """Give each distinct demand a workload at random, and a class of its own in that workload.

    Classes are numbered in order of appearance: ``gcn[0]``, ``gcn[1]``.
    """
    rng = generator(seed, Draw.WORKLOADS)
    bases = list(measured_bases().items())
    numbers: Counter[str] = Counter()
    workloads: dict[Resources, tuple[Workload, MeasuredWorkload]] = {}
    for demand in dict.fromkeys(demands):
        base, measured = bases[int(rng.integers(len(bases)))]
        workloads[demand] = Workload(f"{base}[{numbers[base]}]"), measured
        numbers[base] += 1
    return workloads


@dataclass(frozen=True, slots=True)
class FamilySpeeds:
    """Demands and speeds of tasks of one class on the families of a catalog.

    Attributes:
        demands: Demands on families where the tasks would not run otherwise.
        speeds: See `TraceTask.speed_by_family`.
    """

    demands: tuple[tuple[Family, Resources], ...] = ()
    speeds: tuple[tuple[Family, int], ...] = ()


def family_speeds(
    seed: int, demands: Sequence[Resources], share: float, catalog: Catalog
) -> dict[Resources, FamilySpeeds]:
    """Let a share of the classes run faster on some families than on others.

    A class without GPUs runs at full speed on one family and at 0.2 to 1 of it on the others. One
    with GPUs also runs without, on twice the CPU time and at 0.005 to 0.5 of the speed, which saves
    money for some classes and not for others. Logarithms of speeds are uniform.

    Args:
        seed: Of the trace.
        demands: Of the jobs; equal ones are one class.
        share: Of the classes.
        catalog: Catalog that has the families.
    """
    rng = generator(seed, Draw.SPEEDS)
    families = sorted({base_family(offering.type.family) for offering in catalog})
    gpus = {
        base_family(offering.type.family) for offering in catalog if offering.type.capacity.gpus
    }
    speeds_of: dict[Resources, FamilySpeeds] = {}
    for demand in dict.fromkeys(demands):
        drawn = np.exp(rng.uniform(math.log(0.2), 0, len(families))).tolist()
        fastest, chosen = int(rng.integers(len(families))), rng.random() < share
        factor = math.exp(rng.uniform(math.log(0.005), math.log(0.5)))
        if not chosen:
            speeds_of[demand] = FamilySpeeds()
        elif demand.gpus:
            without = Resources(0, 2 * demand.milli_cpus, demand.memory_mib)
            slow = [family for family in families if family not in gpus]
            speed = round(factor * MILLION)
            speeds_of[demand] = FamilySpeeds(
                tuple((family, without) for family in slow),
                tuple((family, speed) for family in slow),
            )
        else:
            speeds = [1.0 if n == fastest else speed for n, speed in enumerate(drawn)]
            speeds_of[demand] = FamilySpeeds(
                speeds=tuple(
                    (family, round(speed * MILLION))
                    for family, speed in zip(families, speeds, strict=True)
                )
            )
    return speeds_of


def with_gpus(
    seed: int, shapes: Sequence[Shape], share: float, pool: Sequence[Shape]
) -> list[Shape]:
    """Change how many jobs need several GPUs. Jobs without GPUs are not changed.

    Args:
        seed: Of the trace.
        shapes: The jobs.
        share: Of all jobs, those with 2, 4 or 8 GPUs, in the ratio 5:4:1.
        pool: Where demands with these numbers of GPUs are drawn from.

    Raises:
        InvalidTrace: The pool has none for a number of GPUs, or so many jobs have no GPU.
    """
    choices = {
        gpus: [shape.demand for shape in pool if shape.demand.gpus == gpus] for gpus in (1, *_GPUS)
    }
    if lacking := [gpus for gpus, demands in choices.items() if not demands]:
        raise InvalidTrace(
            f"no job with {lacking[0]} GPUs to take for an example", hint="leave multi_gpu out"
        )
    rng = generator(seed, Draw.GPUS)
    movable = rng.permutation([n for n, shape in enumerate(shapes) if shape.demand.gpus])
    total = round(share * len(shapes))
    if total > len(movable):
        raise InvalidTrace(
            f"{len(movable) / len(shapes):.0%} of the jobs have GPUs, fewer than {share:.0%}",
            hint="set a smaller multi_gpu",
        )
    counts = [round(total * part) for part in _GPU_PARTS[1:]]
    wanted = np.repeat(_GPUS, [total - sum(counts), *counts]).tolist()
    changed = list(shapes)
    for place, gpus in zip(movable.tolist(), wanted, strict=False):
        changed[place] = _drawn(rng, changed[place], choices[gpus])
    for place in movable.tolist()[total:]:
        if changed[place].demand.gpus > 1:
            changed[place] = _drawn(rng, changed[place], choices[1])
    return changed


def gang_sizes(seed: int, count: int, share: float) -> list[int]:
    """Numbers of tasks per job: 1, except that a share of the jobs has 2 or 4, as many of each."""
    rng = generator(seed, Draw.GANGS)
    chosen = rng.permutation(count)[: round(share * count)].tolist()
    sizes = [1] * count
    for order, place in enumerate(chosen):
        sizes[place] = _GANGS[order % len(_GANGS)]
    return sizes


def production_shapes(seed: int, durations: Sequence[int]) -> list[Shape]:
    """Demands as in a GPU cluster, one per duration.

    13 % of the jobs have no GPU, 86 % have one, the rest 2, 4 or 8; beside each GPU a job asks for
    4 to 16 vCPUs and 1 to 4 GiB for each of these.
    """
    rng = generator(seed, Draw.SHAPES)
    shapes = []
    for gpus, duration_ms in zip(
        rng.choice(
            (0, 1, *_GPUS), len(durations), p=(0.134, 0.861, 0.0025, 0.002, 0.0005)
        ).tolist(),
        durations,
        strict=True,
    ):
        cpus = rng.choice((8, 12, 16, 20, 32) if not gpus else (4, 6, 8, 10, 12, 16))
        cpus = min(int(cpus), 8) * gpus if gpus > 1 else int(cpus)
        gib = cpus * int(rng.choice((1, 2, 4), p=(0.15, 0.35, 0.5)))
        shapes.append(Shape(Resources(gpus, cpus * 1_000, gib * 1_024), duration_ms))
    return shapes


def production_pool() -> list[Shape]:
    """Examples of jobs with each number of GPUs, for `with_gpus`."""
    return [
        Shape(Resources(gpus, 1_000 * gpus * cpus, 1_024 * gpus * cpus * gib), 0)
        for gpus in (1, *_GPUS)
        for cpus in (4, 6, 8)
        for gib in (2, 4)
    ]


def _drawn(rng: np.random.Generator, shape: Shape, demands: Sequence[Resources]) -> Shape:
    return replace(shape, demand=demands[int(rng.integers(len(demands)))])
