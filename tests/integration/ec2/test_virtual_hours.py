"""Launches over minutes and hours, on a virtual clock: EC2 throttles, or fails a type for ever."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from eva_master.adapters.ec2 import Ec2Cloud, Ec2Settings, client, cloud
from eva_master.adapters.store import SqlJournal
from eva_master.adapters.store.launches import LaunchTable
from eva_master.model.actions import LaunchInstance
from eva_master.model.events import CloudTrouble, Event, InstanceUp, LaunchFailed
from eva_wire.values.ids import InstanceId, Millis
from tests.fakes.aws.account import OFFERING
from tests.fakes.aws.service import REGION
from tests.fakes.rpc.mailbox import Mailbox

LAUNCHES = 200
LOOK_S = 5.0
"""Between two listings, as in the settings."""


class VirtualClock:
    """Jumps to the end of each wait; waits that begin together end together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._s = 1_000_000.0

    def monotonic(self) -> float:
        return self._s

    def now(self) -> Millis:
        return Millis(round(self._s * 1000))

    def advance(self, seconds: float) -> None:
        until = self._s + seconds
        with self._lock:
            self._s = max(self._s, until)

    def event(self) -> threading.Event:
        """An event for which nobody waits in real time."""
        event = threading.Event()

        def wait(seconds: float | None = None) -> bool:
            self.advance(seconds or 0.0)
            return event.is_set()

        event.wait = wait  # type: ignore[method-assign]
        return event


class ThrottlingEc2:
    """EC2 and SSM as a client of boto3 shows them, whose launches draw on a token bucket.

    The bucket of RunInstances has 5 tokens and gets 2 a second, all callers of an account together
    (https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html). Others take half.
    """

    def __init__(self, clock: VirtualClock, records: LaunchTable) -> None:
        self.calls: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.made: dict[str, dict[str, Any]] = {}
        self.broken_type = ""
        self._clock = clock
        self._records = records
        self._lock = threading.Lock()
        self._tokens, self._filled_s = 5.0, clock.monotonic()

    def __getattr__(self, name: str) -> Any:
        def call(**request: Any) -> Any:
            with self._lock:
                self.calls[name] += 1
                return getattr(self, f"_{name}")(**request)

        return call

    def _refuse(self, code: str, status: int) -> None:
        self.refused[code] += 1
        response: Any = {
            "Error": {"Code": code},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }
        raise ClientError(response, "RunInstances")

    def _run_instances(self, **request: Any) -> Any:
        tags = {tag["Key"]: tag["Value"] for tag in request["TagSpecifications"][0]["Tags"]}
        attempt = int(tags["eva:attempt"])
        written = self._records.remembered(InstanceId(tags["eva:instance"]), attempt)
        assert written == request, "the journal has the call, with its token, before it is made"
        now_s = self._clock.monotonic()
        self._tokens = min(5.0, self._tokens + (now_s - self._filled_s))
        self._filled_s = now_s
        if self._tokens < 1:
            self._refuse("RequestLimitExceeded", 503)
        self._tokens -= 1
        if request["InstanceType"] == self.broken_type:
            self._refuse("InternalError", 500)
        made = self.made.setdefault(
            request["ClientToken"],
            {
                "InstanceId": f"i-{len(self.made):017x}",
                "State": {"Name": "running"},
                "LaunchTime": datetime.fromtimestamp(now_s, UTC),
                "Tags": request["TagSpecifications"][0]["Tags"],
                "request": request,
            },
        )
        assert made["request"] == request
        return {"Instances": [made]}

    def _describe_instances(self, **_: Any) -> Any:
        self._clock.advance(LOOK_S)
        return {"Reservations": [{"Instances": list(self.made.values())}]}

    def _create_tags(self, **request: Any) -> Any:
        for made in self.made.values():
            if made["InstanceId"] in request["Resources"]:
                made["Tags"] = [*made["Tags"], *request["Tags"]]
        return {}

    def _describe_images(self, **_: Any) -> Any:
        return {"Images": [{"RootDeviceName": "/dev/xvda"}]}


class World:
    """A cloud in virtual time, with its records in a journal's database."""

    def __init__(self, home: Path, clock: VirtualClock) -> None:
        self.clock = clock
        self._journal = SqlJournal.open(f"sqlite:///{home}/journal.db")
        self.records = LaunchTable(self._journal.engine)
        self.ec2 = ThrottlingEc2(self.clock, self.records)
        self.inbox = Mailbox()
        settings = Ec2Settings("c", REGION, {"x86_64-gpu": "ami-12345678"}, poll_s=0.001)
        self.cloud = Ec2Cloud(
            self.inbox,
            self.clock,
            settings,
            user_data=lambda action: f"#!/bin/sh\n# {action.instance}\n",
            launch_records=self.records,
            client_factory=lambda *_: self.ec2,
        )

    def news(self) -> Event:
        """The next event that is about an instance."""
        while isinstance(event := self.inbox.next(), CloudTrouble):
            pass
        return event

    def close(self) -> None:
        self.cloud.close()
        self._journal.close()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    clock = VirtualClock()
    monkeypatch.setattr(client, "time", clock)
    virtual = SimpleNamespace(Event=clock.event, Thread=threading.Thread)
    monkeypatch.setattr(cloud, "threading", virtual)
    world = World(tmp_path, clock)
    yield world
    world.close()


def test_two_hundred_launches_of_a_round_are_all_made_though_ec2_throttles(world: World) -> None:
    names = [InstanceId(f"i{number:05}") for number in range(LAUNCHES)]
    began_s = world.clock.monotonic()
    for name in names:
        world.cloud.execute(LaunchInstance(name, OFFERING, 1))
    events = [world.news() for _ in names]
    assert {type(event) for event in events} == {InstanceUp}
    assert sorted(event.instance for event in events if isinstance(event, InstanceUp)) == names
    assert len(world.ec2.made) == LAUNCHES
    calls, refused = world.ec2.calls, world.ec2.refused["RequestLimitExceeded"]
    # Without slowing down, half of its calls and more would be in vain.
    assert 0 < refused < LAUNCHES / 4
    assert calls["run_instances"] == LAUNCHES + refused
    # The share of the account's rate is one launch a second.
    took_s = world.clock.monotonic() - began_s
    assert took_s >= LAUNCHES - 5
    assert calls["describe_instances"] <= took_s / LOOK_S + 1
    assert calls["create_tags"] <= calls["describe_instances"]
    # Launches that are listed are not repeated.
    assert not [name for name in names if world.records.remembered(name, 1)]


def test_a_type_that_ec2_fails_for_ever_is_given_up_and_others_go_on(world: World) -> None:
    world.ec2.broken_type = OFFERING.type.name
    other = replace(OFFERING, type=replace(OFFERING.type, name="p3.2xlarge"))
    began_ms = world.clock.now()
    world.cloud.execute(LaunchInstance(InstanceId("i1"), OFFERING, 1))
    world.cloud.execute(LaunchInstance(InstanceId("i2"), other, 1))
    up = world.news()
    assert isinstance(up, InstanceUp)
    assert up.instance == "i2"
    failed = world.news()
    assert isinstance(failed, LaunchFailed)
    assert failed.reason.startswith("EC2 failed for ten minutes: InternalError")
    # The last of the growing pauses takes five minutes.
    assert 10 <= (world.clock.now() - began_ms) / 60_000 <= 20
    assert world.ec2.refused["InternalError"] <= 60
    assert len(world.ec2.made) == 1
