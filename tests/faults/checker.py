"""Checks after an episode, by the words of clients and the own files of tasks alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.e2e.accounts import charged
from tests.e2e.cluster import Cluster, Line

ROUNDED_MICRO_USD = 1
"""Of each job's cost, and of what idle instances cost."""


def task_faults(
    lines: Sequence[Line], over_ms: int | None, others: Iterable[Line] = ()
) -> Iterator[str]:
    """Faults of one task.

    Steps may be done twice, but only those since a checkpoint that an earlier attempt has made.

    Args:
        lines: What its program has written down, of all attempts.
        over_ms: When a client first saw that it had succeeded; `None` if none did.
        others: Those of the other members of its gang: a member that has stored nothing begins
            from what another one has.
    """
    attempts = [line.attempt for line in lines]
    if any(line.event == "overlap" for line in lines) or attempts != sorted(attempts):
        yield "ran twice at a time"
    saved = {0, *(line.step for line in others if line.event == "checkpoint")}
    pids = dict[int, set[int]]()
    step = 0
    for line in lines:
        pids.setdefault(line.attempt, set()).add(line.pid)
        if line.event == "start":
            if line.step not in saved:
                yield f"attempt {line.attempt} began at step {line.step}, which nobody has stored"
            if over_ms is not None and line.at_ms > over_ms:
                yield f"attempt {line.attempt} began after a client was told of the end"
            step = line.step
        elif line.event == "step":
            if line.step != step + 1:
                yield f"step {line.step} came after {step}"
            step = line.step
        elif line.event == "checkpoint":
            saved.add(line.step)
    yield from (f"attempt {it} ran twice" for it, known in pids.items() if len(known) > 1)
    if not lines or lines[-1].event != "end":
        yield "its last attempt came to no end"


def chain_faults(before: Sequence[Line], after: Sequence[Line]) -> Iterator[str]:
    """Whether a job ran before the one that it comes after was done."""
    if before and after and after[0].at_ms < before[-1].at_ms:
        yield "began before its predecessor had ended"


def fork_faults(cluster: Cluster, job: str, total: int) -> Iterator[str]:
    """Whether users see all steps of a forked job done once, and none more."""
    seen = {task.steps for task in cluster.job(job).tasks if not task.replica}
    if seen != {total}:
        yield f"shows steps {seen} of {total}"


def book_faults(cluster: Cluster, owned: Sequence[str]) -> Iterator[str]:
    """Whether the bill is the cloud's, instance by instance, and the sum of its parts.

    Args:
        cluster: All of whose instances are gone.
        owned: Names of owned nodes, which cost nothing here.
    """
    charges: Mapping[str, int] = charged(cluster)
    bill = cluster.client.cost(newest=1000)
    bought = [it for it in bill.instances if it.id not in owned]
    told = {it.id: it.price_micro_usd_per_hour * it.billed_ms for it in bought}
    if told != charges:
        yield f"the bill says {told}, and the cloud {dict(charges)}"
    parts = sum(job.cost_micro_usd for job in bill.jobs) + bill.idle_micro_usd
    if abs(parts - bill.cost_micro_usd) > ROUNDED_MICRO_USD * (len(bill.jobs) + 1):
        yield f"parts come to {parts}, and the bill to {bill.cost_micro_usd} micro-dollars"
