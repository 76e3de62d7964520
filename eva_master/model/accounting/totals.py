"""Sums over everything that ever was, kept because nothing in memory remembers all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.model.ids import Exact
from eva_master.model.states import JobState, RunState


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums and counts over all records, those that left memory included.

    Attributes:
        charged: What is booked of all instances, open and closed.
        idle: The part of it that no task used.
        alone: What is booked of all jobs as the cost without packing.
        migrations: Times that task runs were stopped in order to run elsewhere.
        jobs: How many jobs are in each state; a state without jobs may be missing.
        runs: The same of task runs.
    """

    charged: Exact = Exact(0)
    idle: Exact = Exact(0)
    alone: Exact = Exact(0)
    migrations: int = 0
    jobs: Mapping[JobState, int] = field(default_factory=dict)
    runs: Mapping[RunState, int] = field(default_factory=dict)
