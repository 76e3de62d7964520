"""Notes on a gang whose tasks are in several availability zones."""

from __future__ import annotations

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server.shown.part import Asked, Part
from eva_master.packing.zones import zones_of
from eva_master.ports.reading import JobRecord, ReadModel
from eva_wire.values.ids import MILLION
from eva_wire.values.states import TERMINAL_JOB


def explain(model: ReadModel, record: JobRecord) -> str:
    """Why a gang is in several zones, and the price of its traffic; empty if it is not.

    Args:
        model: The cluster.
        record: The gang, or any other job.
    """
    if not record.job.spec.has_mates:
        return ""
    places = {run.instance or run.target for run in record.runs}
    offerings = [model.live[name].offering for name in places if name and name in model.live]
    zones = sorted(zones_of(offerings))
    if len(zones) < 2:
        return ""
    why = "as `zones: any` allows"
    if not record.job.spec.spans_zones:
        why = "since no zone had enough for all of them"
    words = f"its tasks are in {len(zones)} zones ({', '.join(zones)}), {why}"
    price = max(offering.gb_between_zones for offering in offerings)
    each = f"; traffic between them costs ${price / MILLION:g} for each GB, each way"
    return words + (each if price else "")


def _explanation(asked: Asked) -> pb.Explanation | None:
    note = "" if asked.record.job.state in TERMINAL_JOB else explain(asked.model, asked.record)
    return pb.Explanation(notes=[note]) if note else None


PART = Part(explanation=_explanation)
