"""Notes on what needs attention, each with its sentence and advice. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from eva_client.cli.views.words import count, money, price
from eva_master.adapters.notices.receivers import ReceiverStatus
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server.shown.costs import budget_notes
from eva_master.model.arithmetic.calendar import month_of
from eva_master.model.feed import FeedEvent, FeedKind
from eva_master.model.planning.suspension import Suspender
from eva_master.ports.reading import Pause, ReadModel
from eva_wire.values.durations import span
from eva_wire.values.ids import InstanceId, JobId, Millis
from eva_wire.values.states import InstanceState, JobState

MOST_NOTES = 20
_RECENT_MS = 86_400_000
"""Age of events that still need attention."""
_MOST_NAMED = 3
_ENDS_WITH_MONTH = "Jobs go on with the next month, or a higher limit in the master's settings."
_ALL_PERCENT = 100


def of_master(pause: Pause | None, planning: str, clock: str, now: Millis) -> Iterator[pb.Note]:
    """Pause of the control loop, rounds that take long, and a clock that was set."""
    if pause is not None:
        yield pb.Note(
            level="bad",
            sentence=f"The master has stood still for {span(now - pause.since_ms)}, and tasks run "
            f"on: {pause.reason}.",
            advice=_sentence(pause.hint),
        )
    if planning:
        yield pb.Note(
            level="warn",
            sentence=_sentence(planning),
            advice="Tasks that run go on meanwhile; the next plan places those that wait.",
            command="eva explain",
        )
    if clock:
        yield pb.Note(level="warn", sentence=_sentence(clock))


def of_cloud(model: ReadModel, now: Millis) -> Iterator[pb.Note]:
    """Trouble with the cloud, and offerings that it refuses at present."""
    trouble = model.trouble
    if trouble.since_ms is not None:
        since = span(now - trouble.since_ms)
        yield pb.Note(
            level="bad",
            sentence=f"The cloud has not done what it was asked for {since}: {trouble.reason}.",
            advice="Eva goes on trying. Look at credentials, quotas and the master's network.",
        )
    if names := refused_types(model, now):
        yield pb.Note(
            level="warn",
            sentence=f"The cloud refuses to launch {_some(names)} at present.",
            advice="Eva buys other types meanwhile and tries again. A higher quota helps.",
            command="eva events",
        )


def refused_types(model: ReadModel, now: Millis) -> list[str]:
    """Types of instances of which the cloud launches none at present, in one zone at least."""
    refused = (offering.type.name for offering in model.catalog if not offering.available(now))
    return list(dict.fromkeys(refused))


def silent(model: ReadModel) -> list[InstanceId]:
    """Instances that are paid for and of whose agents nothing is heard."""
    return [
        name
        for name, instance in model.live.items()
        if instance.state is InstanceState.READY and not model.is_connected(name)
    ]


def of_receivers(receivers: Iterable[ReceiverStatus]) -> Iterator[pb.Note]:
    """Receivers of notices that take none, or were not sent some."""
    for status in receivers:
        if status.attention:
            yield pb.Note(
                level="warn",
                sentence=_sentence(status.attention),
                advice="Notices wait for a day. An operator can try the receiver.",
                command=f"eva notify test {status.name}",
            )


def of_agents(model: ReadModel) -> Iterator[pb.Note]:
    """Notes on instances of whose agents nothing is heard."""
    names = silent(model)
    for name in names[:_MOST_NAMED]:
        yield pb.Note(
            level="bad",
            kind="instance",
            subject=name,
            sentence="Its agent is not connected.",
            advice="Once it is given up, its tasks run elsewhere. Look at the machine's own log.",
            command=f"eva explain {name}",
        )
    if (more := len(names) - _MOST_NAMED) > 0:
        yield pb.Note(
            level="bad", sentence=f"Agents of {count(more, 'more instance')} are not connected."
        )


def of_partitions(partitions: Iterable[pb.Partition]) -> Iterator[pb.Note]:
    """Budgets of partitions that are nearly spent."""
    for part in partitions:
        name = f"partition {part.name}" if part.name else "the cluster"
        if part.HasField("budget_micro_usd_per_month"):
            spent, most = part.month_micro_usd, part.budget_micro_usd_per_month
            yield from budget_notes(name, (spent, most), "budget of this month", money)
        if part.HasField("budget_micro_usd_per_hour"):
            spent, most = part.price_micro_usd_per_hour, part.budget_micro_usd_per_hour
            yield from budget_notes(name, (spent, most), "budget per hour", price)


def of_caps(model: ReadModel, now: Millis) -> Iterator[pb.Note]:
    """Jobs that have spent all or most of their `max_cost`, and owners at their limit or near."""
    owners: dict[str, str] = {}
    for job in model.active.values():
        suspension = job.suspension
        if suspension is not None and suspension.by is Suspender.MONTH:
            owners.setdefault(job.spec.owner, suspension.reason)
            continue
        capped = suspension is not None and suspension.by is Suspender.COST
        if capped or job.cap_told:
            reason = suspension.words if capped and suspension else "most of its max_cost is spent"
            then = "It goes on with a higher one." if capped else "A higher one lets it run on."
            yield pb.Note(
                level="bad" if capped else "warn",
                kind="job",
                subject=job.id,
                sentence=_sentence(reason),
                advice=then,
                command=f"eva resume {job.id} --max-cost AMOUNT",
            )
    for owner, reason in owners.items():
        yield _of_owner(owner, "bad", reason, _ENDS_WITH_MONTH)
    for party, level in model.month_levels.items():
        scope, _, name = party.partition("/")
        if scope != "owner" or name in owners or level.month_ms != month_of(now)[0]:
            continue
        most = f"{money(level.most)} is spent, limits.max_cost of this month"
        if level.percent < _ALL_PERCENT:
            advice = "At the limit the jobs are suspended. The master's settings raise it."
            yield _of_owner(name, "warn", f"{level.percent} % or more of {most}", advice)
        else:
            yield _of_owner(name, "bad", f"all of {most}", _ENDS_WITH_MONTH)


def _of_owner(owner: str, level: str, words: str, advice: str) -> pb.Note:
    return pb.Note(
        level=level,
        kind="money",
        subject=f"owner {owner}",
        sentence=_sentence(words),
        advice=advice,
        command="eva cost --by owner",
    )


_ADVICE = {
    FeedKind.FAILED: ("bad", "Its log says why.", "eva logs {job}"),
    FeedKind.REVOKED: ("warn", "Its tasks go on elsewhere, from their checkpoints.", ""),
}
"""Level, advice and command of the kinds of events that need attention."""


def of_events(events: Iterable[FeedEvent], model: ReadModel, now: Millis) -> Iterator[pb.Note]:
    """Events of the last day that need attention, the newest of each job and instance.

    A state that lasts, such as lateness or a cap that is reached, is no event: other notes have it.
    """
    subjects = set[str]()
    for event in sorted(events, key=lambda event: -event.number):
        subject = event.job or event.instance
        recent = now - event.at_ms < _RECENT_MS
        if event.kind not in _ADVICE or subject in subjects or not recent:
            continue
        subjects.add(subject)
        if _is_over(event, model):
            continue
        level, advice, command = _ADVICE[event.kind]
        yield pb.Note(
            level=level,
            kind="job" if event.job else "instance",
            subject=subject,
            sentence=_sentence(event.text),
            advice=advice,
            command=command.format(job=event.job),
            at_ms=event.at_ms,
        )


def few(notes: Iterable[pb.Note]) -> list[pb.Note]:
    """The first notes, as many as an answer has."""
    return list(islice(notes, MOST_NOTES))


def _is_over(event: FeedEvent, model: ReadModel) -> bool:
    """Whether a job has succeeded or been cancelled since, or an instance is gone."""
    if not event.job:
        return event.instance not in model.live
    job = model.jobs.get(JobId(event.job))
    return job is not None and job.state in (JobState.SUCCEEDED, JobState.CANCELLED)


def _some(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more types" if more > 0 else "")


def _sentence(words: str) -> str:
    """Words as a sentence."""
    return f"{words[:1].upper()}{words[1:].rstrip('.')}." if words else ""
