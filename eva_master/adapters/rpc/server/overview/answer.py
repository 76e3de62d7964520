"""The answer about the cluster at a glance, and the tasks on its instances."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.adapters.notices.receivers import ReceiverStatus
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server import views
from eva_master.adapters.rpc.server.overview import attention
from eva_master.adapters.rpc.server.overview.samples import Samples
from eva_master.adapters.rpc.server.parts import messages as partition_messages
from eva_master.adapters.rpc.server.shown.costs import bill
from eva_master.adapters.rpc.server.shown.installed import NOTES
from eva_master.adapters.rpc.server.watching.feed import message_of
from eva_master.model.feed import FeedEvent
from eva_master.model.records import Instance, TaskRun
from eva_master.model.resources import NOTHING
from eva_master.ports.reading import Archive, FeedPage, Pause, ReadModel
from eva_wire.values.ids import InstanceId, Millis
from eva_wire.values.users import UserToken

MOST_PLACED = 300
"""Instances up to which tasks are told of."""
_EVENTS = 12
_EVENTS_READ = 200
"""Newest events that are looked through for what needs attention."""


@dataclass(frozen=True, slots=True)
class Glance:
    """Sources of the answer.

    Attributes:
        pause: Why the control loop stands still.
        state: The cluster without instances.
        receivers: How receivers of notices fare.
    """

    archive: Archive
    samples: Samples
    pause: Pause | None
    state: pb.ClusterState
    receivers: tuple[ReceiverStatus, ...] = ()


def overview(model: ReadModel, glance: Glance, who: UserToken, now: Millis) -> pb.OverviewResponse:
    """Prices over time, what needs attention and the newest events; takes time."""
    events = list(glance.archive.events(FeedPage(most=_EVENTS_READ, newest=True)))
    return pb.OverviewResponse(
        state=glance.state,
        bill=bill(model, now),
        prices=glance.samples.prices(),
        notes=_notes(model, glance, who, events, now),
        events=map(message_of, sorted(events, key=_number)[-_EVENTS:]),
        instances=len(model.live),
    )


def _number(event: FeedEvent) -> int:
    return event.number


def _notes(
    model: ReadModel, glance: Glance, who: UserToken, events: list[FeedEvent], now: Millis
) -> list[pb.Note]:
    state = glance.state
    return attention.few(
        (
            *attention.of_master(glance.pause, state.planning, state.clock, now),
            *attention.of_cloud(model, now),
            *attention.of_agents(model),
            *attention.of_receivers(glance.receivers),
            *attention.of_partitions(partition_messages.response(model, who, now).partitions),
            *(note for notes in NOTES for note in notes(model, now)),
            *attention.of_caps(model, now),
            *attention.of_events(events, model, now),
        )
    )


def placed(model: ReadModel, name: InstanceId) -> list[pb.PlacedTask]:
    """The tasks that take room on an instance."""
    instance = model.instances.get(name)
    if instance is None:
        return []
    return [_placed(model, instance, run) for run in model.occupants(name)]


def _placed(model: ReadModel, instance: Instance, run: TaskRun) -> pb.PlacedTask:
    job = model.jobs[run.job]
    share = instance.demand_of(job.spec.tasks[run.index]) or NOTHING
    part = job.spec.name_of(run.index) if job.spec.size > 1 else ""
    moves = run.target is not None and run.target != instance.id
    return pb.PlacedTask(
        task=run.id,
        name=job.spec.name,
        part=part or (run.id.rpartition("/")[2] if job.spec.size > 1 or run.extra else ""),
        state=run.state.value,
        target=(run.target or "") if moves else "",
        share=views.resources(share),
        normalised=model.normalised(run) or 0.0,
        since_ms=run.since_ms,
    )
