"""The cost of a deployed cluster while no job runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eva_master.adapters.ec2 import Ec2Settings
from eva_master.adapters.ec2.offerings import ADDRESS_HOUR, GIB_MONTH, list_prices
from eva_master.model.catalog import HOURS_A_MONTH
from eva_wire.values.errors import CloudError

_ROOT_GIB = 16
_KNOWN = {"t3.small": 20_800}
"""Micro-dollars per hour in us-east-1, should the price list not answer."""
_FIRST_GB_A_MONTH = 23_000
_SNAPSHOT_GB_A_MONTH = 50_000
"""Standard snapshots store what has changed, in us-east-1 (aws.amazon.com/ebs/pricing)."""


@dataclass(frozen=True, slots=True)
class StandingCost:
    """Costs in micro-dollars a month, without tax.

    Attributes:
        lines: Name and cost of each part; `None` if unknown.
        source: Source of the prices.
    """

    lines: tuple[tuple[str, int | None], ...]
    source: str

    @property
    def total(self) -> int | None:
        """All together; `None` if a part is not known."""
        amounts = [amount for _, amount in self.lines if amount is not None]
        return sum(amounts) if len(amounts) == len(self.lines) else None


def standing_cost(parameters: Mapping[str, str], region: str, endpoint: str = "") -> StandingCost:
    """The cost of a stack with these parameters.

    Args:
        parameters: Of the template, those with defaults included.
        region: Where it is.
        endpoint: URL of AWS's API, empty for AWS's own.
    """
    machine, more = parameters["MasterType"], ""
    if parameters.get("MasterCredits") == "unlimited":  # Each vCPU for 5 cents an hour.
        more = " (more if it computes long above its baseline)"
    disks = _ROOT_GIB + int(parameters["StateVolumeGiB"])
    try:
        hour, gib_listed = list_prices(Ec2Settings("", region, endpoint=endpoint), machine)
        gib = gib_listed or GIB_MONTH
        source = f"list prices of {region}"
    except CloudError:
        hour, gib = _KNOWN.get(machine), GIB_MONTH
        source = "list prices of us-east-1; AWS does not tell those of " + region
    lines = [
        (f"the master, a {machine}{more}", None if hour is None else hour * HOURS_A_MONTH),
        (f"its disks, {disks} GiB of gp3", disks * gib),
    ]
    if not parameters.get("VpcId") or parameters.get("PublicMaster") == "true":
        lines.append(("its public address", ADDRESS_HOUR * HOURS_A_MONTH))
    if parameters.get("DailySnapshots") == "true":
        lines.append(("daily snapshots of its state, the first GB", _SNAPSHOT_GB_A_MONTH))
    lines.append(("files, the first GB", _FIRST_GB_A_MONTH))
    return StandingCost(tuple(lines), source)
