"""Shows what jobs are worth and on what terms they borrow, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from eva_client.cli.views import shapes
from eva_client.cli.views.words import count, money, plain, price
from eva_wire.values.durations import span

if TYPE_CHECKING:
    from eva_wire.rpc.messages import Borrowing, JobWorth

_MOST_LENDERS = 8
_THOUSAND = 1_000


def borrowing(message: Borrowing) -> Iterator[str]:
    """From whom a job borrows, how many GPUs, and for how much per hour."""
    owed = price(message.micro_usd_per_hour)
    yield f"  it borrows {count(message.gpus, 'GPU')} for {owed}:"
    for lender in message.lenders[:_MOST_LENDERS]:
        gpus = ""
        if lender.HasField("gpus_thousandths"):
            noun = "GPU" if lender.gpus_thousandths == _THOUSAND else "GPUs"
            gpus = f" for {lender.gpus_thousandths / _THOUSAND:g} {noun}"
        yield f"    {plain(lender.tenant)} gets {price(lender.micro_usd_per_hour)}{gpus}"
    if len(message.lenders) > _MOST_LENDERS:
        yield f"    ... and {len(message.lenders) - _MOST_LENDERS:,} more; --json has them all"


def borrowing_shape(message: Borrowing) -> dict[str, Any]:
    """The terms on which a job has room of others."""
    return {
        "gpus": message.gpus,
        **shapes.hourly("pays", message.micro_usd_per_hour),
        "lenders": [
            {
                "tenant": lender.tenant,
                "gpus": lender.gpus_thousandths / _THOUSAND
                if lender.HasField("gpus_thousandths")
                else None,
                **shapes.hourly("gets", lender.micro_usd_per_hour),
            }
            for lender in message.lenders
        ],
    }


def worth(message: JobWorth) -> str:
    """The worth of a job when it is done, in a sentence."""
    if message.HasField("done_micro_usd"):
        words = f"{money(message.done_micro_usd)} if it is done in {span(message.length_ms)}"
    else:
        words = f"{money(message.at_once_micro_usd)} if it were done at once"
    lost = message.loss_micro_usd_per_hour
    return f"worth: {words}" + (f"; waiting loses {price(lost)}" if lost else "")
