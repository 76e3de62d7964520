"""EC2 as a cloud: one thread decides, a few carry out launches.

All state belongs to the watch thread. Actions and the results of launches reach it through one
queue; each batch of them is followed by a look at what exists, and every answer is read off that
look. So an action is never answered from what the master believes, whoever asks and however often.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import structlog

from eva_master.adapters.ec2.client import Ec2Client, boto_client
from eva_master.adapters.ec2.faults import worth_repeating
from eva_master.adapters.ec2.launch import launch_request
from eva_master.adapters.ec2.settings import Ec2Settings
from eva_master.adapters.ec2.sightings import GONE_TAG, UP_TAG, Sighting, by_instance
from eva_master.adapters.ec2.watch import Call, Life
from eva_master.model.actions import CloudAction, LaunchInstance, SyncCloud, TerminateInstance
from eva_master.model.errors import CloudDenied, CloudError
from eva_master.model.events import CloudListed
from eva_master.model.ids import InstanceId, Millis
from eva_master.ports import Clock, Inbox

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Launched:
    """How a call of RunInstances ended; without an error, there is an instance."""

    instance: InstanceId
    error: CloudError | None = None


@dataclass(frozen=True, slots=True)
class _Close:
    """Nothing more is to be done."""


_Note = CloudAction | _Launched | _Close


class Ec2Cloud:
    """Implements `eva_master.ports.Cloud` by EC2.

    Instances outlive this object and the master; what must be remembered of them is in their tags.

    Args:
        inbox: Where answers go.
        clock: Dates what EC2 does not.
        settings: The account's side.
        user_data: What the instance of a launch runs at boot; the same for the same launch.
        client_factory: Makes the client of boto3.
    """

    def __init__(
        self,
        inbox: Inbox,
        clock: Clock,
        settings: Ec2Settings,
        *,
        user_data: Callable[[LaunchInstance], str],
        client_factory: Callable[[Ec2Settings], Any] = boto_client,
    ) -> None:
        self._inbox = inbox
        self._clock = clock
        self._settings = settings
        self._user_data = user_data
        self._closing = threading.Event()
        self._client = Ec2Client(client_factory(settings), settings, self._closing)
        self._notes: queue.SimpleQueue[_Note] = queue.SimpleQueue()
        self._lives: dict[InstanceId, Life] = {}
        self._listing_owed = False
        self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="ec2-launch")
        self._thread = threading.Thread(target=self._run, name="ec2-watch", daemon=True)
        self._thread.start()

    def execute(self, action: CloudAction) -> None:
        """Begin to carry out an action; see `eva_master.ports.Cloud`."""
        self._notes.put(action)

    def close(self) -> None:
        """Stop the threads, once the calls under way are over; instances stay as they are."""
        self._closing.set()
        self._notes.put(_Close())
        self._thread.join()
        self._pool.shutdown(cancel_futures=True)

    # -- the watch thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.is_set():
            for note in self._take():
                self._heed(note)
            if self._closing.is_set():
                return
            try:
                self._look()
            except CloudDenied as error:
                _log.critical("EC2 denies access", error=error.message, hint=error.hint)
            except CloudError as error:
                # Nothing is lost: whatever was to be done is done after the next look.
                _log.warning("EC2 failed", error=error.message)
            except Exception:
                _log.exception("EC2: the watch failed")

    def _take(self) -> list[_Note]:
        """All that has come, at the latest when it is time to look again."""
        notes: list[_Note] = []
        try:
            notes.append(self._notes.get(timeout=self._settings.poll_s))
            while True:
                notes.append(self._notes.get_nowait())
        except queue.Empty:
            return notes

    def _heed(self, note: _Note) -> None:
        match note:
            case LaunchInstance(instance):
                self._life(instance).launch(note)
            case TerminateInstance(instance):
                self._life(instance).terminate()
            case SyncCloud():
                self._listing_owed = True
            case _Launched(instance, None):
                self._life(instance).launched(certain=True)
            case _Launched(instance, CloudError() as error) if worth_repeating(error):
                _log.warning("launch unsettled", instance=instance, error=error.message)
                self._life(instance).launched(certain=False)
            case _Launched(instance, CloudError() as error):
                self._refused(instance, error)
            case _Close():
                pass

    def _life(self, instance: InstanceId) -> Life:
        return self._lives.setdefault(instance, Life(instance))

    def _refused(self, instance: InstanceId, error: CloudError) -> None:
        log = _log.critical if isinstance(error, CloudDenied) else _log.warning
        log("launch refused", instance=instance, error=error.message, hint=error.hint)
        failed = self._life(instance).refused(error, self._clock.now())
        if failed is not None:
            self._inbox.post(failed)

    def _look(self) -> None:
        """See what exists, answer what was asked, and call for what is to be done."""
        found, surplus = by_instance(self._client.instances())
        now = self._clock.now()
        found = self._record(found, now)
        for instance in found:
            self._life(instance)
        doomed = [extra.ec2_id for extra in surplus if extra.state != "shutting-down"]
        if doomed:
            _log.error("launched twice; the later ones are terminated", instances=doomed)
        settle_ms = round(self._settings.settle_s * 1000)
        for life in self._lives.values():
            seen = found.get(life.instance)
            step = life.look(seen, now, settle_ms)
            if step is Call.LAUNCH and life.wanted is not None:
                self._pool.submit(self._launch, life.wanted)
            elif step is Call.TERMINATE and seen is not None:
                doomed.append(seen.ec2_id)
            elif step is not None and not isinstance(step, Call):
                self._inbox.post(step)
        if self._listing_owed:
            self._listing_owed = False
            self._inbox.post(_listing(found.values()))
        self._client.terminate(doomed)

    def _record(self, found: dict[InstanceId, Sighting], now: Millis) -> dict[InstanceId, Sighting]:
        """Tag the instances with the times that EC2 would forget, before anybody is told."""
        found = dict(found)
        up = [seen for seen in found.values() if seen.running and seen.marked_up_ms is None]
        up.sort(key=lambda seen: seen.launched_ms)
        for launched_ms, together in groupby(up, key=lambda seen: seen.launched_ms):
            marked = [replace(seen, marked_up_ms=launched_ms) for seen in together]
            self._client.tag([seen.ec2_id for seen in marked], UP_TAG, str(launched_ms))
            found.update((seen.instance, seen) for seen in marked)
        ended = [
            replace(seen, ended_ms=now)
            for seen in found.values()
            if seen.terminated and seen.ended_ms is None and self._life(seen.instance).end is None
        ]
        if ended:
            self._client.tag([seen.ec2_id for seen in ended], GONE_TAG, str(now))
            found.update((seen.instance, seen) for seen in ended)
        return found

    # -- a thread of the pool --------------------------------------------------------------------

    def _launch(self, action: LaunchInstance) -> None:
        try:
            request = launch_request(self._settings, action, self._user_data(action))
            ec2_id = self._client.run(request)
        except CloudError as error:
            self._notes.put(_Launched(action.instance, error))
        except Exception as error:
            _log.exception("EC2: a launch broke down", instance=action.instance)
            self._notes.put(_Launched(action.instance, CloudError(f"{error!r}")))
        else:
            _log.info("launched", instance=action.instance, ec2_id=ec2_id)
            self._notes.put(_Launched(action.instance))


def _listing(found: Iterable[Sighting]) -> CloudListed:
    return CloudListed(
        tuple(
            (seen.instance, seen.up_ms)
            for seen in sorted(found, key=lambda seen: seen.instance)
            if seen.running and seen.up_ms is not None
        )
    )
