"""Has the local cloud take spot instances back, as a market would."""

from __future__ import annotations

from pathlib import Path
from random import Random

from eva_master.adapters.local import processes
from eva_master.adapters.local.records import HostRecord, HostRecords
from eva_master.adapters.local.signals import TAKE_BACK
from eva_wire.values.errors import InvalidRequest, NotFound
from eva_wire.values.ids import InstanceId


def interrupt(root: Path, instance: InstanceId) -> None:
    """Take a spot instance back: its worker has notice, and its host ends.

    No master is asked, or has to run. To do it again changes nothing.

    Args:
        root: The local cloud's directory.
        instance: Which.

    Raises:
        NotFound: No such instance runs there.
        InvalidRequest: The instance is not a spot instance.
    """
    records = HostRecords(root).read()
    running = [
        record for record in records.values() if record.pid is not None and not record.closed
    ]
    record = next((candidate for candidate in running if candidate.instance == instance), None)
    if record is None:
        raise NotFound(f"no instance {instance} runs in {root}", hint=_choices(running))
    if not record.is_spot:
        raise InvalidRequest(
            f"{instance} was bought on demand, so the cloud never takes it back",
            hint=_choices(running),
        )
    assert record.pid is not None
    if record.birth is None or not processes.signal_to(record.pid, record.birth, TAKE_BACK):
        raise NotFound(f"{instance} has just ended", hint=_choices(running))


def drawn_life_ms(instance: InstanceId, mean_ms: int, seed: int) -> int:
    """How long a market that knows no history lets an instance live; the same for the same seed.

    Args:
        instance: Which.
        mean_ms: How long instances live on average.
        seed: Of the market.
    """
    dice = Random(f"{seed} {instance}")  # noqa: S311 - nothing secret
    return round(dice.expovariate(1 / mean_ms))


def _choices(running: list[HostRecord]) -> str:
    spot = ", ".join(sorted(record.instance for record in running if record.is_spot))
    if spot:
        return f"spot instances that run: {spot}"
    return "no spot instance runs; the setting local.spot has them sold"
