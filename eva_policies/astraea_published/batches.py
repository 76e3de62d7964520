"""Takes the calendar on from plan to plan: who joins which batch, and what its rounds decide."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.fleet.allotted import SizeRange
from eva_master.packing.fleet.capacity import Fleet
from eva_policies.astraea_published.calendar import Calendar
from eva_policies.astraea_published.clock import BatchRound, round_at
from eva_policies.astraea_published.config import Config
from eva_policies.astraea_published.memory import Entry, Memory
from eva_policies.astraea_published.requests import Bandwidth, Request
from eva_policies.astraea_published.requests_from_snapshot import (
    busy,
    quotas_of,
    request_of,
    servers_of,
    tenant_of,
    worth_at,
)
from eva_policies.astraea_published.rounds import Admitted, Ledger, scheduled
from eva_policies.astraea_published.schedules import best
from eva_policies.astraea_published.theta import LEAST, Full, density, rounds_of
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Family, Millis

_KNOWN = 10_000
"""Of so many contenders it is remembered how long they take alone."""


@dataclass(frozen=True, slots=True)
class Batches:
    """State of the batches at the time of a plan.

    Attributes:
        snapshot: The cluster.
        fleet: The fleet.
        claims: The contenders for it.
        config: Settings.
        known: Shortest times of contenders in an empty fleet, by their inputs; results are added.
            No plan depends on it.
    """

    snapshot: Snapshot
    fleet: Fleet
    claims: Sequence[SizeRange]
    config: Config
    known: dict[Hashable, int] = field(default_factory=dict)

    @property
    def slot_ms(self) -> int:
        """The length of a slot, in milliseconds."""
        return 1000 * self.config.slot_s

    def followed(self, memory: Memory) -> Memory:
        """The memory after the rounds that are due by now."""
        memory = replace(memory, entries=self._entries(memory))
        pending = self.pending(memory)
        if not pending:
            return memory.stopped()
        now = self.snapshot.now_ms
        if memory.epoch_ms is None or self._is_over(memory, pending):
            epoch = Millis(now // self.slot_ms * self.slot_ms)
            memory = memory.started(epoch, self._rounds(memory, pending))
        slot = self.slot(memory)
        current = round_at(slot, memory.rounds)
        if current is None or current.key <= memory.last:
            return memory
        return self._scheduled(memory, current, slot)

    def pending(self, memory: Memory) -> list[SizeRange]:
        """Contenders outside the calendar without a place, that may have one."""
        return [
            claim
            for claim in self.claims
            if claim.id not in memory.entries
            and not claim.now
            and not claim.one.between
            and not at_once(claim)
        ]

    def slot(self, memory: Memory) -> int:
        """The number of the slot that it is now."""
        assert memory.epoch_ms is not None
        return max(0, self.snapshot.now_ms - memory.epoch_ms) // self.slot_ms

    def next_ms(self, memory: Memory) -> Millis | None:
        """When a round begins or a job is due; `None` if neither is to come."""
        now, times = self.snapshot.now_ms, []
        if memory.epoch_ms is not None and self.pending(memory):
            slot = self.slot(memory)
            current = round_at(slot, memory.rounds)
            begins = memory.rounds if current is None else current.end
            times.append(memory.epoch_ms + begins * self.slot_ms)
        present: dict[str, SizeRange] = {claim.id: claim for claim in self.claims}
        for name, entry in memory.entries.items():
            if name in present and not present[name].now:
                times.append(
                    max(entry.start_ms, now + self.slot_ms if entry.start_ms <= now else 0)
                )
        return Millis(min(times)) if times else None

    def _entries(self, memory: Memory) -> dict[str, Entry]:
        """Entries of present jobs; a job that lost its place joins the next batch."""
        entries: dict[str, Entry] = {}
        for claim in self.claims:
            entry = memory.entries.get(claim.id)
            if entry is None:
                continue
            is_due = not entry.began and self.snapshot.now_ms < entry.end_ms
            if claim.now:
                entries[claim.id] = replace(entry, began=True)
            elif claim.one.between or is_due:
                entries[claim.id] = entry
        return entries

    def _is_over(self, memory: Memory, pending: Sequence[SizeRange]) -> bool:
        """Whether the clock is to begin anew: after the horizon, unless a job needs a longer round.

        Else that one would never be scheduled.
        """
        slot = self.slot(memory)
        current = round_at(slot, memory.rounds)
        if slot < self.config.horizon_slots or current is None or current.key <= memory.last:
            return False
        longest = max(map(self._shortest, pending))
        return current.slots >= 2 * longest

    def _shortest(self, claim: SizeRange) -> int:
        """Slots that a contender takes in an empty fleet; 0 if it finds no room even then."""
        contender, sizes = claim.one, self.fleet.machines
        machines = tuple((family, *sorted(counts.items())) for family, counts in sizes.items())
        rest_ms = tuple(sorted(contender.member_ms.items()))
        key = contender.id, claim.least, claim.most, rest_ms, machines, self.snapshot.tenants
        if key not in self.known:
            if len(self.known) >= _KNOWN:
                self.known.clear()
            self.known[key] = self._alone(claim)
        return self.known[key]

    def _alone(self, claim: SizeRange) -> int:
        request = request_of(claim, self.snapshot, self.fleet, 1, self.config)
        ledger = self._empty(1, LEAST)
        limits = ledger.lent() if self.config.share else ledger.limits(request.tenant)
        lengths = []
        for members in range(request.least, request.most + 1):
            # In an empty fleet all slots are alike.
            one_size = replace(request, least=members, most=members, lengths=_one_slot)
            schedule = best(one_size, ledger.calendars, limits, self._bandwidth, priced=False)
            if schedule is not None:
                apart = len(schedule.members) > 1
                lengths.append(request.lengths(schedule.family, members, apart))
        return min(lengths, default=0)

    @property
    def _bandwidth(self) -> Bandwidth:
        return Bandwidth(self.config.worker_mbps, self.config.ps_mbps)

    def _empty(self, slots: int, full: Full) -> Ledger:
        """A ledger of empty slots."""
        config, servers = self.config, servers_of(self.snapshot, self.fleet)
        calendars = {
            family: Calendar(machines, slots, config.ps_per_server, full)
            for family, machines in servers.items()
        }
        return Ledger(calendars, quotas_of(self.snapshot, servers, config.ps_per_server))

    def _rounds(self, memory: Memory, pending: Sequence[SizeRange]) -> int:
        if self.config.rounds:
            return self.config.rounds
        length = [self._shortest(claim) * self.slot_ms for claim in pending]
        worths = [worth_at(claim.one, ms) for claim, ms in zip(pending, length, strict=True)]
        return rounds_of(worths, self._full(memory.seen))

    def _full(self, told: Full) -> Full:
        """The prices when everything is in use."""
        config = self.config
        stated = [
            told_part if usd is None else round(usd * MILLION)
            for usd, told_part in (
                (config.full_gpu_usd, told.gpu),
                (config.full_ps_usd, told.ps),
            )
        ]
        return Full(*stated).times(config.theta_ppm)

    def _scheduled(self, memory: Memory, current: BatchRound, slot: int) -> Memory:
        """Schedule the jobs of a batch in one of its rounds."""
        if current.batch != memory.last[0]:
            memory = replace(memory, full=memory.seen)
        assert memory.epoch_ms is not None
        closed_ms = memory.epoch_ms + current.slots * self.slot_ms
        batch = [claim for claim in self.pending(memory) if claim.one.job.submitted_ms <= closed_ms]
        requests = {
            claim.id: replace(
                request_of(claim, self.snapshot, self.fleet, current.slots, self.config),
                shortest=self._shortest(claim),
            )
            for claim in batch
        }
        begins_ms = memory.epoch_ms + current.start * self.slot_ms
        first = slot - current.start
        ledger = self._ledger(memory, current, begins_ms)
        admitted = scheduled(
            ledger, [*requests.values()], self._bandwidth, first, share=self.config.share
        )
        entries = dict(memory.entries)
        for name, admission in sorted(admitted.items()):
            entries[name] = self._entry(admission, begins_ms)
        seen = memory.seen.raised(self._density(claim, requests[claim.id]) for claim in batch)
        return replace(memory, last=current.key, entries=entries, seen=seen)

    def _entry(self, admitted: Admitted, begins_ms: int) -> Entry:
        schedule, income = admitted.schedule, admitted.income
        start = begins_ms + schedule.start * self.slot_ms
        end = begins_ms + schedule.end * self.slot_ms
        entry = Entry(start, end, schedule.family, schedule.size)
        if income is None:
            return entry
        per_hour = tuple(
            (name, amount * MILLIS_PER_HOUR // (end - start)) for name, amount in income.earned
        )
        return replace(entry, gpus=income.gpus, earned=per_hour, lent=income.lent)

    def _density(self, claim: SizeRange, request: Request) -> Full:
        slots = max(1, request.shortest)
        gpus = max((need.gpus for need in request.need.values()), default=0) * request.most
        if not gpus:
            return LEAST
        return density(worth_at(claim.one, slots * self.slot_ms), gpus * slots, slots)

    def _ledger(self, memory: Memory, current: BatchRound, begins_ms: int) -> Ledger:
        """The use of the fleet in a round: by running jobs, until they are expected to be done."""
        ledger = self._empty(current.slots, self._full(memory.full))
        calendars = ledger.calendars
        numbers = {
            server.instance: (family, number)
            for family, calendar in calendars.items()
            for number, server in enumerate(calendar.servers)
            if server.instance is not None
        }
        for claim, family, use in busy(self.snapshot, self.claims):
            end = self._done_slot(claim, family, begins_ms, current.slots)
            gpus = 0
            for instance, amount in use.items():
                on, number = numbers[instance]
                calendars[on].take(number, 0, end, amount, 1)
                gpus += amount.gpus
            ledger.use(tenant_of(claim.one, self.snapshot), family, slice(0, end), gpus)
        waiting: dict[str, SizeRange] = {claim.id: claim for claim in self.claims if not claim.now}
        for name, entry in memory.entries.items():
            if name in waiting and entry.family in calendars:
                end = (entry.end_ms - begins_ms) // self.slot_ms
                _keep(calendars[Family(entry.family)], waiting[name], entry, end)
        return ledger

    def _done_slot(self, claim: SizeRange, family: Family, begins_ms: int, slots: int) -> int:
        rest_ms = claim.one.alone_ms.get(family, claim.one.left_ms)
        done_ms = self.snapshot.now_ms + rest_ms - begins_ms
        return max(1, min(slots, round(done_ms) // self.slot_ms + 1))


def _one_slot(_family: Family, _members: int, _apart: bool) -> int:
    return 1


def at_once(claim: SizeRange) -> bool:
    """Whether a contender needs no GPU: batches are about GPUs alone."""
    return not claim.gpus


def _keep(calendar: Calendar, claim: SizeRange, entry: Entry, end: int) -> None:
    """Keep room for a job that is due and has no place yet, since another takes longer."""
    need = claim.one.runs[0].task.demand_on(Family(entry.family))
    if need is None:
        return
    end, missing = max(1, min(calendar.slots, end)), entry.members
    for number, free in enumerate(calendar.room(need)[:, 0].tolist()):
        count = min(free, missing)
        if count:
            calendar.take(number, 0, end, need, count)
            missing -= count
