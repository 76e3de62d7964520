"""The running sums behind `PartitionTotals`, one document of the journal for each partition."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from eva_master.model.accounting.totals import PartitionTotals, Totals
from eva_master.model.arithmetic.calendar import month_of
from eva_master.model.changes import Documents, InstanceAccount
from eva_master.model.planning.plan import Json
from eva_master.model.records import Job
from eva_master.model.values import replace
from eva_wire.values.ids import Exact, Millis
from eva_wire.values.states import TERMINAL_JOB

_PREFIX = "partitions/"
"""Of the names of documents."""
_NONE = PartitionTotals()


class PartitionTally:
    """Sums over jobs and instance accounts of each partition; forgotten records stay counted.

    The sums outside all named partitions have no document: they are the rest of the whole. So the
    journal of a cluster that is not divided has no such document.

    Args:
        documents: Where documents are put whose sums have changed.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._sums: dict[str, PartitionTotals] = {}
        self._seen: Mapping[str, PartitionTotals] | None = None

    def of(self, partition: str) -> PartitionTotals:
        """The sums of one partition."""
        return self._sums.get(partition, _NONE)

    def job(self, old: Job | None, new: Job) -> None:
        """Follow the new record of a job: it may have arrived, ended or changed its partition."""
        before = None if old is None or old.state in TERMINAL_JOB else old.partition
        after = None if new.state in TERMINAL_JOB else new.partition
        if before == after:
            return
        for name, change in ((before, -1), (after, 1)):
            if name is not None:
                sums, tasks = self.of(name), change * new.spec.size
                self._put(name, replace(sums, jobs=sums.jobs + change, tasks=sums.tasks + tasks))

    def arrived(self, partition: str) -> None:
        """Count the arrival of a job, which policies can see from now on."""
        sums = self.of(partition)
        self._put(partition, replace(sums, arrivals=sums.arrivals + 1), lasts=True)

    def left(self, partition: str) -> None:
        """Count the end of a job, which policies could see so far."""
        sums = self.of(partition)
        self._put(partition, replace(sums, completions=sums.completions + 1), lasts=True)

    def account(self, partition: str, old: InstanceAccount | None, new: InstanceAccount) -> None:
        """Follow the new account of an instance of a partition."""
        sums = self.of(partition)
        charged = new.charged - (0 if old is None else old.charged)
        idle = new.idle - (0 if old is None else old.idle)
        if not partition:  # no budget here, and no document with a month
            changed = Exact(sums.charged + charged)
            self._put("", replace(sums, charged=changed, idle=Exact(sums.idle + idle)))
            return
        since = new.until_ms if old is None else old.until_ms
        month, recent = this_month(charged, since, new.until_ms)
        if month < sums.month_ms:
            month, recent = sums.month_ms, 0
        before = sums.month_charged if month == sums.month_ms else 0
        self._put(
            partition,
            replace(
                sums,
                charged=Exact(sums.charged + charged),
                idle=Exact(sums.idle + idle),
                month_ms=month,
                month_charged=Exact(before + recent),
            ),
            lasts=True,
        )

    def _put(self, partition: str, sums: PartitionTotals, *, lasts: bool = False) -> None:
        self._sums[partition] = sums
        self._seen = None
        if lasts and partition:
            self._documents[_PREFIX + partition] = partial(_document, sums)

    def totals(self) -> Mapping[str, PartitionTotals]:
        """The sums as they are now, by the partition's name on record."""
        if self._seen is None:
            self._seen = dict(self._sums)
        return self._seen

    def restore(self, documents: Mapping[str, Json], whole: Totals) -> None:
        """Restore the sums from the journal; present jobs and tasks are counted already.

        Args:
            documents: The documents of the journal.
            whole: The sums over all partitions.
        """
        sums_by_name = {
            name.removeprefix(_PREFIX): _read(document)
            for name, document in documents.items()
            if name.startswith(_PREFIX) and isinstance(document, dict)
        }
        named = list(sums_by_name.values())
        sums_by_name[""] = replace(
            _NONE,
            charged=Exact(whole.charged - sum(sums.charged for sums in named)),
            idle=Exact(whole.idle - sum(sums.idle for sums in named)),
        )
        present = self._sums
        for name in present:
            self._documents.pop(_PREFIX + name, None)
        self._sums = {
            name: replace(
                sums_by_name.get(name, _NONE),
                jobs=present.get(name, _NONE).jobs,
                tasks=present.get(name, _NONE).tasks,
            )
            for name in {**present, **sums_by_name}
        }
        self._seen = None


def this_month(charged: int, since: Millis, until: Millis) -> tuple[Millis, int]:
    """The calendar month in which a stretch of time ends, and what of a charge falls into it."""
    month, _ = month_of(until)
    return month, part_since(month, charged, since, until)


def part_since(month: Millis, charged: int, since: Millis, until: Millis) -> int:
    """The part of a charge for a stretch of time that falls into the month in which it ends."""
    if since >= month or until <= since:
        return charged
    return charged * (until - month) // (until - since)


def _document(sums: PartitionTotals) -> Json:
    """A partition's sums; exact amounts are decimal strings, as in the tables."""
    return {
        "charged": str(sums.charged),
        "idle": str(sums.idle),
        "arrivals": sums.arrivals,
        "completions": sums.completions,
        "month_ms": int(sums.month_ms),
        "month_charged": str(sums.month_charged),
    }


def _read(document: Mapping[str, Json]) -> PartitionTotals:
    def number(name: str) -> int:
        return int(str(document[name]))

    return PartitionTotals(
        charged=Exact(number("charged")),
        idle=Exact(number("idle")),
        arrivals=number("arrivals"),
        completions=number("completions"),
        month_ms=Millis(number("month_ms")),
        month_charged=Exact(number("month_charged")),
    )
