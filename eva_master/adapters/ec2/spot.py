"""Follows the prices of spot instances."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from datetime import datetime
from decimal import ROUND_UP, Decimal
from typing import Any

import structlog

from eva_master.adapters.ec2.client import Aws
from eva_master.model.catalog import Catalog, Purchase
from eva_master.model.events import Quoted
from eva_wire.values.errors import CloudError
from eva_wire.values.ids import MILLION, Price

_log = structlog.get_logger(__name__)

Market = Mapping[tuple[str, str], Price]
"""Spot price by type and zone, in micro-dollars per hour."""


def micro_dollars(text: str) -> Price:
    """Read a price in dollars per hour, however many digits it has; rounded up."""
    return Price(int((Decimal(text) * MILLION).to_integral_value(ROUND_UP)))


def market(aws: Aws, types: list[str]) -> Market:
    """The present spot prices of Linux instances of some types.

    Raises:
        CloudError: EC2 does not answer.
    """
    request: dict[str, Any] = {
        "InstanceTypes": types,
        "ProductDescriptions": ["Linux/UNIX"],
        # Asked for the present moment, EC2 returns the last price changes.
        "StartTime": aws.time.now(),
        "MaxResults": 1000,
    }
    newest: dict[tuple[str, str], tuple[datetime, Price]] = {}
    for page in aws.pages("ec2", "describe_spot_price_history", request):
        for entry in page["SpotPriceHistory"]:
            key = entry["InstanceType"], entry["AvailabilityZone"]
            since = entry["Timestamp"]
            if key not in newest or newest[key][0] < since:
                newest[key] = since, micro_dollars(entry["SpotPrice"])
    return {key: price for key, (_, price) in newest.items()}


class SpotPrices:
    """Polls the spot prices. One thread uses it; each poll runs in a thread of its own.

    Args:
        aws: Makes the calls.
        catalog: Returns the catalog, whose spot offerings follow the market.
        period_s: Seconds between two polls; 0 for never.
    """

    def __init__(self, aws: Aws, catalog: Callable[[], Catalog], period_s: float) -> None:
        self._aws = aws
        self._catalog = catalog
        self._period_s = period_s
        self._due = time.monotonic()
        self._looking = threading.Lock()

    def refresh(self, pool: Executor, post: Callable[[Quoted], None]) -> None:
        """Start a poll if one is due; new prices are posted."""
        now = time.monotonic()
        if self._period_s and now >= self._due and self._looking.acquire(blocking=False):
            self._due = now + self._period_s
            pool.submit(self._look, post)

    def _look(self, post: Callable[[Quoted], None]) -> None:
        try:
            spot = [each for each in self._catalog() if each.purchase is Purchase.SPOT]
            types = sorted({offering.type.name for offering in spot})
            if not types:
                return
            prices = market(self._aws, types)
            post(
                Quoted(
                    tuple(
                        (offering.id, price)
                        for offering in spot
                        if (price := prices.get((offering.type.name, offering.zone))) is not None
                    )
                )
            )
        except CloudError as error:
            _log.warning("spot prices cannot be updated", error=error.message)
        finally:
            self._looking.release()
