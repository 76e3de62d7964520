"""EC2 as a cloud: one thread decides, a few carry out launches.

All state belongs to the watch thread. Actions and results of launches reach it through one queue.
After each batch of them it lists the instances, and every answer is based on that listing, never on
what the master believes.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import structlog

from eva_master.adapters.catalog.asking import answer
from eva_master.adapters.ec2.availability import AvailabilityBook
from eva_master.adapters.ec2.client import THREADS, Aws, ClientFactory, Ec2Client, boto_client
from eva_master.adapters.ec2.faults import (
    FREE_PLAN_TYPES,
    AlreadyTerminated,
    ForbiddenType,
    FreePlan,
    NoSpotRole,
    ServerFault,
    retry_after_ms,
    worth_repeating,
)
from eva_master.adapters.ec2.launching.images import MachineImages
from eva_master.adapters.ec2.launching.launch_executor import Launched, LaunchExecutor
from eva_master.adapters.ec2.quotas import also_over
from eva_master.adapters.ec2.settings import Ec2Settings
from eva_master.adapters.ec2.sightings import GONE_TAG, UP_TAG, Sighting, by_instance
from eva_master.adapters.ec2.spot import SpotPrices
from eva_master.adapters.ec2.trouble import Troubles
from eva_master.adapters.ec2.watch import Call, Life
from eva_master.model.actions import (
    CloudAction,
    LaunchInstance,
    ListCatalog,
    SyncCloud,
    TerminateInstance,
)
from eva_master.model.catalog import Catalog, Offering, Purchase
from eva_master.model.events import CloudListed
from eva_master.ports import Clock, Inbox
from eva_master.ports.launch_records import LaunchRecords
from eva_wire.values.errors import CloudDenied, CloudError, QuotaExceeded, StorageError
from eva_wire.values.ids import InstanceId, Millis

_LONGEST_PAUSE_S = 60.0
"""Pause after a failed listing, in seconds."""

_LOOK, _LAUNCH = "look", "launch"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _EndAll:
    """Request to terminate all instances; `done` is set when none is left."""

    done: threading.Event


@dataclass(frozen=True, slots=True)
class _Close:
    """Request to stop the thread."""


_Request = CloudAction | Launched | _EndAll | _Close


class Ec2Cloud:
    """Implements `eva_master.ports.Cloud` with EC2.

    Instances outlive this object and the master. Their tags hold what must be remembered.

    Args:
        inbox: Where answers are posted.
        clock: The loop's time, for what EC2 does not date.
        settings: The account's settings.
        user_data: Creates the user data of a launch.
        launch_records: Where launches are recorded before EC2 is called.
        catalog: The offerings, for quotas and spot prices.
        ask: Asks EC2 what it sells, until the event is set; `None` if the catalog is to stay.
        client_factory: Creates boto3 clients.
        settle_s: Seconds after which an instance that should exist but is not listed counts as
            gone, since EC2's listings lag behind.
        threads: Concurrent launches.
        allowance: Rate of calls as a share of that in `limits`.
    """

    def __init__(
        self,
        inbox: Inbox,
        clock: Clock,
        settings: Ec2Settings,
        *,
        user_data: Callable[[LaunchInstance], str],
        launch_records: LaunchRecords,
        catalog: Catalog = (),
        ask: Callable[[threading.Event], Catalog] | None = None,
        client_factory: ClientFactory = boto_client,
        settle_s: float = 60.0,
        threads: int = THREADS,
        allowance: float = 1.0,
    ) -> None:
        self._inbox = inbox
        self._clock = clock
        self._settings, self._settle_ms = settings, round(settle_s * 1000)
        self._catalog = catalog
        self._ask = ask
        self._launch_records = launch_records
        self._closing = threading.Event()
        aws = Aws(settings, self._closing, client_factory, clock, allowance)
        self._time = aws.time
        self._client = Ec2Client(aws, settings)
        images = MachineImages(settings.images, aws.call, time.monotonic)
        self._launcher = LaunchExecutor(
            aws,
            settings,
            self._launch_records,
            images=images,
            user_data=user_data,
            catalog=lambda: self._catalog,
        )
        self._prices = SpotPrices(aws, lambda: self._catalog, settings.spot_prices_s)
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self._lives: dict[InstanceId, Life] = {}
        self._stock = AvailabilityBook()
        self._immortal: set[str] = set()
        self._listing_owed = False
        self._ending: list[threading.Event] = []
        self._failures = 0
        self._troubles = Troubles()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="ec2-launch")
        self._thread = threading.Thread(target=self._run, name="ec2-watch", daemon=True)
        self._thread.start()

    def execute(self, action: CloudAction) -> None:
        """See `eva_master.ports.Cloud.execute`."""
        self._requests.put(action)

    def terminate_all(self, within_ms: int | None = None) -> None:  # noqa: ARG002
        """Terminate every instance of the cluster, and wait until none is left.

        Args:
            within_ms: Ignored: EC2 itself limits how long an instance takes to shut down.
        """
        done = threading.Event()
        self._requests.put(_EndAll(done))
        done.wait()

    def hurry(self) -> None:
        """Do nothing: EC2 switches instances off in its own time."""

    def close(self) -> None:
        """Stop the threads after their present calls. Instances keep running."""
        self._closing.set()
        self._requests.put(_Close())
        self._thread.join()
        self._pool.shutdown(cancel_futures=True)

    # -- the watch thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.is_set():
            requests = self._take()
            began = self._clock.now()
            self._failures += 1
            try:
                for request in requests:
                    self._handle(request)
                if self._closing.is_set():
                    return
                self._look()
                self._failures = 0
                self._troubles.over(_LOOK)
            except CloudError as error:
                # Nothing is lost: pending steps are taken after the next listing.
                log = _log.critical if isinstance(error, CloudDenied) else _log.warning
                log("EC2 failed", error=error.message, hint=error.hint)
                self._troubles.failed(_LOOK, error, began)
            except StorageError as error:
                _log.warning("EC2: the watch waits for the journal", error=error.message)
            except Exception:
                _log.exception("EC2: the watch failed")
            if (news := self._troubles.news()) is not None:
                self._inbox.post(news)

    def _take(self) -> list[_Request]:
        """Wait for requests until the next listing is due; returns them all."""
        poll_s = self._settings.poll_s
        if self._failures:
            # Requests are no reason to call an unresponsive EC2 sooner.
            longest_s = max(poll_s, _LONGEST_PAUSE_S)
            pause_s = min(poll_s * 2 ** min(self._failures - 1, 10), longest_s)
            self._closing.wait(pause_s)
            poll_s = 0
        requests: list[_Request] = []
        try:
            requests.append(self._requests.get(timeout=poll_s))
            while True:
                requests.append(self._requests.get_nowait())
        except queue.Empty:
            return requests

    def _handle(self, request: _Request) -> None:
        match request:
            case LaunchInstance(instance):
                self._life(instance).launch(request)
            case TerminateInstance(instance):
                self._life(instance).terminate()
            case SyncCloud():
                self._listing_owed = True
            case ListCatalog() if self._ask is not None:
                self._pool.submit(self._list_catalog, self._ask)
            case Launched(action, None):
                self._stock.sold(action.offering.id)
                self._life(action.instance).launched()
            case Launched(action, AlreadyTerminated() as error):
                _log.warning("launched and terminated already", instance=action.instance)
                self._stock.unclear(action.offering.id)
                self._life(action.instance).terminated(error.message)
            case Launched(action, ServerFault() as error) if self._life(action.instance).hopeless(
                self._clock.now()
            ):
                self._refused(action, error)
            case Launched(action, CloudError() as error) if worth_repeating(error):
                _log.warning("launch unsettled", instance=action.instance, error=error.message)
                self._stock.unclear(action.offering.id)
                self._life(action.instance).unclear(self._clock.now())
                self._troubles.failed(_LAUNCH, error, self._clock.now())
            case Launched(action, CloudError() as error):
                self._refused(action, error)
            case _EndAll(done):
                self._ending.append(done)
            case _Close():
                pass

    def _life(self, instance: InstanceId) -> Life:
        return self._lives.setdefault(instance, Life(instance))

    def _refused(self, action: LaunchInstance, error: CloudError) -> None:
        log = _log.critical if isinstance(error, CloudDenied) else _log.warning
        log("launch refused", instance=action.instance, error=error.message, hint=error.hint)
        offering = action.offering
        pause_ms = retry_after_ms(error, offering.purchase)
        retry_at = self._stock.refused(offering.id, pause_ms, self._clock.now())
        also = tuple(
            other.id
            for other in self._catalog
            if other.id != offering.id and _also_refused(offering, other, error)
        )
        refused = {offering.id, *also}
        pending_same_offering = [
            life
            for life in self._lives.values()
            if life.waiting is not None and life.waiting.offering.id in refused
        ]
        for life in (self._life(action.instance), *pending_same_offering):
            failed = life.refused(error, retry_at)
            if failed is not None:
                self._inbox.post(replace(failed, also=also))
        self._forget([action.instance, *(life.instance for life in pending_same_offering)])

    def _list_catalog(self, ask: Callable[[threading.Event], Catalog]) -> None:
        answered = answer(lambda: ask(self._closing))
        if answered.catalog is not None:
            self._catalog = answered.catalog
        self._inbox.post(answered)

    def _forget(self, instances: list[InstanceId]) -> None:
        """Remove the records of launches that will not be repeated."""
        try:
            self._launch_records.forget(instances)
        except StorageError as error:
            _log.warning("records of launches cannot be removed", error=error.message)

    def _look(self) -> None:
        """List the instances, post answers, and make the calls that are due."""
        sightings, surplus = by_instance(self._client.instances())
        now = self._clock.now()
        sightings = self._record(sightings, now)
        self._lives = {
            name: life
            for name, life in self._lives.items()
            if name in sightings or not life.forgettable(now)
        }
        terminating = [extra.ec2_id for extra in surplus if extra.state != "shutting-down"]
        if terminating:
            _log.error("launched twice; the later ones are terminated", instances=terminating)
        for life in self._lives.values():
            if self._ending:
                life.terminating = True
            seen = sightings.get(life.instance)
            step = life.look(seen, now, self._settle_ms)
            if step is Call.LAUNCH and life.wanted is not None:
                self._launch(life, life.wanted)
            elif step is Call.TERMINATE and seen is not None:
                terminating.append(seen.ec2_id)
            elif step is not None and not isinstance(step, Call):
                self._inbox.post(step)
        if not any(life.unsettled for life in self._lives.values()):
            self._troubles.over(_LAUNCH)
        if self._listing_owed:
            self._listing_owed = False
            self._inbox.post(_listing(sightings.values()))
        self._terminate(terminating)
        self._prices.refresh(self._pool, self._inbox.post)
        self._end(sightings)

    def _terminate(self, terminating: list[str]) -> None:
        for ec2_id, error in self._client.terminate(terminating).items():
            if ec2_id not in self._immortal:
                self._immortal.add(ec2_id)
                _log.critical("EC2 does not terminate an instance", ec2_id=ec2_id, error=f"{error}")

    def _launch(self, life: Life, action: LaunchInstance) -> None:
        if self._stock.admit(action.offering.id):
            life.begin()
            self._pool.submit(lambda: self._requests.put(self._launcher.launch(action)))

    def _end(self, found: Mapping[InstanceId, Sighting]) -> None:
        """Tell those who wait for the end of all instances that none is left."""
        under_way = any(life.launching or life.unsettled for life in self._lives.values())
        if self._ending and not under_way and all(seen.terminated for seen in found.values()):
            for done in self._ending:
                done.set()
            self._ending = []

    def _record(self, found: dict[InstanceId, Sighting], now: Millis) -> dict[InstanceId, Sighting]:
        """Tag instances with times that EC2 forgets, before events are posted."""
        found = dict(found)
        if first := [name for name in found if not self._life(name).listed]:
            self._forget(first)
            for name in first:
                self._life(name).listed = True
        up = [
            replace(sighting, was_up=True)
            for sighting in found.values()
            if sighting.running and not sighting.was_up
        ]
        if up:
            self._client.tag([seen.ec2_id for seen in up], UP_TAG, str(self._time.cloud_ms(now)))
            found.update((seen.instance, seen) for seen in up)
        ended = [
            replace(seen, ended_ms=now)
            for seen in found.values()
            if seen.terminated and seen.ended_ms is None and self._life(seen.instance).end is None
        ]
        if ended:
            at_ms = self._time.cloud_ms(now)
            self._client.tag([seen.ec2_id for seen in ended], GONE_TAG, str(at_ms))
            found.update((seen.instance, seen) for seen in ended)
        return found


def _also_refused(offering: Offering, other: Offering, error: CloudError) -> bool:
    """Whether another offering would be refused for the same reason."""
    match error:
        case QuotaExceeded():
            return also_over(offering, other)
        case CloudDenied():
            return True
        case FreePlan():
            return other.type.name not in FREE_PLAN_TYPES
        case NoSpotRole():
            return other.purchase is Purchase.SPOT
        case ForbiddenType():
            return other.type.name == offering.type.name
    return False


def _listing(found: Iterable[Sighting]) -> CloudListed:
    return CloudListed(
        tuple(
            (seen.instance, seen.up_ms)
            for seen in sorted(found, key=lambda seen: seen.instance)
            if seen.running and seen.up_ms is not None
        )
    )
