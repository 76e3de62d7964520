"""What every cloud must do, whatever it is made of.

A cloud joins with a `Bench` of its own in `BENCHES`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import psutil
import pytest

from eva_lab.simulator.cluster.clock import Timeline, VirtualInbox
from eva_lab.simulator.cluster.cloud import Hosts, SimulatedCloud
from eva_master.adapters.bootstrap import Bootstrap
from eva_master.adapters.ec2 import Ec2Cloud, Ec2Settings
from eva_master.adapters.local import processes
from eva_master.adapters.local.cloud import LocalCloud, LocalCloudConfig
from eva_master.model.actions import CloudAction, LaunchInstance, SyncCloud, TerminateInstance
from eva_master.model.catalog import InstanceType, Offering, Purchase, spot_family
from eva_master.model.events import CloudListed, InstanceGone, InstanceUp
from eva_master.model.resources import Resources
from eva_wire.values.ids import Family, InstanceId, Millis, Price
from tests.fakes.aws.launches import ShortMemory
from tests.fakes.aws.service import IMAGE, REGION, shared
from tests.fakes.hosts import image
from tests.fakes.hosts.machine import machine_command
from tests.fakes.hosts.site import Site
from tests.fakes.rpc.mailbox import Mailbox, WallClock

NEVER_MS = 3_600_000
IDLE = (sys.executable, "-c", "import signal; signal.pause()")

OFFERING = Offering(
    InstanceType("c7i.2xlarge", Family("c7i"), Resources(0, 8_000, 16_384)), Price(357_000)
)
SPOT = replace(
    OFFERING,
    type=replace(OFFERING.type, family=spot_family(OFFERING.type.family)),
    price=Price(119_000),
    purchase=Purchase.SPOT,
)
ONE, TWO, THREE = (InstanceId(name) for name in ("i-1", "i-2", "i-3"))

AnyEvent = TypeVar("AnyEvent")


class Bench(Protocol):
    """A cloud under test, and the means to look at it and to break it from outside."""

    def execute(self, action: CloudAction) -> None:
        """Hand the cloud an action."""

    def event(self) -> Any:
        """The next event that the cloud posts, within a deadline."""

    def now(self) -> Millis:
        """The cloud's time."""

    def pause(self) -> None:
        """Let time pass, a millisecond at least."""

    def machines(self) -> int:
        """How many machines exist, not asking the cloud."""

    def strike(self, instance: InstanceId) -> None:
        """Have a machine die by itself."""

    def close(self) -> None:
        """Put everything away."""


class LocalBench:
    """The local cloud with workers that do nothing."""

    def __init__(
        self, root: Path, launch_delay_ms: int, worker_command: Sequence[str] = IDLE
    ) -> None:
        self._root = root
        mailbox, clock = Mailbox(), WallClock()
        self._cloud = LocalCloud(
            root,
            mailbox,
            clock,
            bootstrap=Bootstrap("127.0.0.1:1", "127.0.0.1:2", "", lambda *_: "token"),
            config=LocalCloudConfig(launch_delay_ms=launch_delay_ms),
            worker_command=worker_command,
        )
        self.execute = self._cloud.execute
        self.event = mailbox.next
        self.now = clock.now

    def pause(self) -> None:
        time.sleep(0.002)

    def machines(self) -> int:
        marks = {
            (process.info["environ"] or {}).get(processes.MARK, "")
            for process in psutil.process_iter(["environ", "status"])
            if process.info["status"] != psutil.STATUS_ZOMBIE
        }
        return sum(mark.endswith(f"@{self._root}") for mark in marks)

    def strike(self, instance: InstanceId) -> None:
        hosts = (
            process.pid
            for process in processes.marked(f"{instance}@{self._root}")
            if "eva_master.adapters.local.host" in process.cmdline()
        )
        os.kill(next(hosts), signal.SIGKILL)

    def close(self) -> None:
        self._cloud.terminate_all()
        self._cloud.close()


class HostsBench(LocalBench):
    """The local cloud on test hosts."""

    def __init__(self, root: Path, launch_delay_ms: int) -> None:
        self._site = Site()
        machine = machine_command(self._site, image.prepared())
        super().__init__(root, launch_delay_ms, [*machine, "--", *IDLE])

    def close(self) -> None:
        super().close()
        self._site.close()


class SimulatedBench:
    """The simulated cloud; its time passes while somebody waits for an event."""

    def __init__(self, _root: Path, launch_delay_ms: int) -> None:
        self._timeline = Timeline(Millis(1_000_000))
        self._inbox = VirtualInbox(self._timeline)
        self._cloud = SimulatedCloud(self._timeline, self._inbox, Hosts())
        self._delay = launch_delay_ms
        self._events: list[Any] = []
        self.now = self._timeline.now

    def execute(self, action: CloudAction) -> None:
        if isinstance(action, LaunchInstance):
            kind = replace(action.offering.type, acquisition_ms=self._delay)
            action = replace(action, offering=replace(action.offering, type=kind))
        self._cloud.execute(action)

    def event(self) -> Any:
        if not self._events:
            self._events.extend(self._inbox.wait(None))
        return self._events.pop(0)

    def pause(self) -> None:
        self._timeline.sleep_until(Millis(self.now() + 1))

    def machines(self) -> int:
        return len(self._cloud.existing())

    def strike(self, instance: InstanceId) -> None:
        self._cloud.fail(instance)

    def close(self) -> None:
        for instance in self._cloud.existing():
            self._cloud.execute(TerminateInstance(instance))
        while self._timeline.next() is not None:
            self._timeline.advance()


class WholeSeconds:
    """A clock with the resolution of EC2's records."""

    def now(self) -> Millis:
        return Millis(int(time.time()) * 1000)


class Ec2Bench:
    """EC2 as moto has it; each bench is a cluster of its own."""

    def __init__(self, root: Path, launch_delay_ms: int) -> None:
        aws = shared()
        self._cluster = uuid.uuid4().hex
        self._direct = aws.client("ec2")
        if launch_delay_ms:
            aws.order(self._cluster, launch_ms=launch_delay_ms)
        mailbox, clock = Mailbox(), WholeSeconds()
        self._cloud = Ec2Cloud(
            mailbox,
            clock,
            Ec2Settings(self._cluster, REGION, {"x86_64": IMAGE}, endpoint=aws.url, poll_s=0.05),
            user_data=lambda action: "#!/bin/true",
            launch_records=ShortMemory(),
            client_factory=lambda settings, service: aws.client(service),
        )
        self.event = mailbox.next
        self.now = clock.now

    def execute(self, action: CloudAction) -> None:
        if isinstance(action, LaunchInstance):
            action = replace(action, offering=replace(action.offering, zone=f"{REGION}a"))
        self._cloud.execute(action)

    def pause(self) -> None:
        time.sleep(0.002)

    def machines(self) -> int:
        return len(self._existing())

    def strike(self, instance: InstanceId) -> None:
        self._direct.terminate_instances(InstanceIds=self._existing(instance))

    def close(self) -> None:
        self._cloud.close()
        if existing := self._existing():
            self._direct.terminate_instances(InstanceIds=existing)

    def _existing(self, instance: str = "*") -> list[str]:
        wanted = {
            "tag:eva:cluster": self._cluster,
            "tag:eva:instance": instance,
        }
        filters = [{"Name": name, "Values": [value]} for name, value in wanted.items()]
        answer = self._direct.describe_instances(Filters=filters)
        return [
            found["InstanceId"]
            for reservation in answer["Reservations"]
            for found in reservation["Instances"]
            if found["State"]["Name"] != "terminated"
        ]


BENCHES: dict[str, Callable[[Path, int], Bench]] = {
    "ec2": Ec2Bench,
    "hosts": HostsBench,
    "local": LocalBench,
    "simulated": SimulatedBench,
}


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.hosts if name == "hosts" else ())
        for name in sorted(BENCHES)
    ]
)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def build(launch_delay_ms: int = 0) -> Bench:
        made.append(BENCHES[request.param](tmp_path / "cloud", launch_delay_ms))
        return made[-1]

    yield build
    for bench in made:
        bench.close()
        assert bench.machines() == 0


@pytest.fixture
def bench(make: Callable[..., Bench]) -> Bench:
    return make()


def ask(bench: Bench, action: CloudAction, kind: type[AnyEvent]) -> AnyEvent:
    """Hand the cloud an action, and take the next event for its answer."""
    bench.execute(action)
    return expect(bench, kind)


def expect(bench: Bench, kind: type[AnyEvent]) -> AnyEvent:
    event = bench.event()
    assert isinstance(event, kind)
    return event


def launch(
    bench: Bench, instance: InstanceId = ONE, attempt: int = 1, offering: Offering = OFFERING
) -> InstanceUp:
    up = ask(bench, LaunchInstance(instance, offering, attempt), InstanceUp)
    assert up.instance == instance
    return up


def terminate(bench: Bench, instance: InstanceId = ONE) -> InstanceGone:
    gone = ask(bench, TerminateInstance(instance), InstanceGone)
    assert gone.instance == instance
    return gone


def listed(bench: Bench) -> dict[InstanceId, Millis]:
    return dict(ask(bench, SyncCloud(), CloudListed).instances)


def test_launch_brings_up_one_machine(bench: Bench) -> None:
    before = bench.now()
    up = launch(bench)
    assert before <= up.up_ms <= bench.now()
    assert bench.machines() == 1


def test_an_instance_is_up_only_after_the_launch_delay(make: Callable[..., Bench]) -> None:
    bench = make(launch_delay_ms=200)
    before = bench.now()
    assert launch(bench).up_ms >= before + 200


def test_launch_again_after_it_is_up(bench: Bench) -> None:
    first = launch(bench)
    bench.pause()
    assert launch(bench) == first
    assert bench.machines() == 1


def test_launch_again_under_way(make: Callable[..., Bench]) -> None:
    bench = make(launch_delay_ms=200)
    for _ in range(3):
        bench.execute(LaunchInstance(ONE, OFFERING, 1))
    up = expect(bench, InstanceUp)
    # Whether each repetition is answered or one answer is for all, it is the same answer.
    bench.execute(TerminateInstance(ONE))
    gone = next(event for event in iter(bench.event, None) if event != up)
    assert (gone.instance, gone.up_ms) == (ONE, up.up_ms)
    assert bench.machines() == 0


def test_terminate_removes_the_machine(bench: Bench) -> None:
    up = launch(bench)
    gone = terminate(bench)
    assert gone.up_ms == up.up_ms
    assert up.up_ms <= gone.gone_ms <= bench.now()
    assert bench.machines() == 0
    assert listed(bench) == {}


def test_terminate_again_gives_the_same_times(bench: Bench) -> None:
    launch(bench)
    first = terminate(bench)
    bench.pause()
    assert terminate(bench) == first


def test_terminate_twice_at_once_ends_it_once(bench: Bench) -> None:
    launch(bench)
    bench.execute(TerminateInstance(ONE))
    first = terminate(bench)
    bench.pause()
    assert terminate(bench) == first


def test_terminate_before_it_is_up(make: Callable[..., Bench]) -> None:
    bench = make(launch_delay_ms=NEVER_MS)
    bench.execute(LaunchInstance(ONE, OFFERING, 1))
    gone = terminate(bench)
    assert gone.up_ms is None
    bench.pause()
    assert terminate(bench) == gone
    assert bench.machines() == 0
    assert listed(bench) == {}


def test_terminate_an_unknown_instance(bench: Bench) -> None:
    gone = terminate(bench)
    assert gone.up_ms is None
    assert gone.gone_ms <= bench.now()
    bench.pause()
    assert terminate(bench) == gone


def test_what_is_gone_does_not_come_back(bench: Bench) -> None:
    up = launch(bench)
    terminate(bench)
    bench.execute(LaunchInstance(ONE, OFFERING, 1))
    assert bench.event().up_ms == up.up_ms
    assert bench.machines() == 0
    assert listed(bench) == {}


def test_list_names_what_is_billed(bench: Bench) -> None:
    assert listed(bench) == {}
    ups = {instance: launch(bench, instance).up_ms for instance in (ONE, TWO, THREE)}
    assert listed(bench) == ups
    terminate(bench, TWO)
    del ups[TWO]
    assert listed(bench) == ups


def test_list_leaves_out_what_is_not_up_yet(make: Callable[..., Bench]) -> None:
    bench = make(launch_delay_ms=NEVER_MS)
    bench.execute(LaunchInstance(ONE, OFFERING, 1))
    assert listed(bench) == {}


def test_death_is_told_unasked(bench: Bench) -> None:
    up = launch(bench)
    launch(bench, TWO)
    bench.strike(ONE)
    gone = expect(bench, InstanceGone)
    assert (gone.instance, gone.up_ms) == (ONE, up.up_ms)
    assert up.up_ms <= gone.gone_ms <= bench.now()
    bench.pause()
    assert terminate(bench) == gone
    assert set(listed(bench)) == {TWO}
    assert bench.machines() == 1


def test_a_spot_instance_lives_as_any_other(bench: Bench) -> None:
    ups = {name: launch(bench, name, offering=SPOT).up_ms for name in (ONE, TWO)}
    ups[THREE] = launch(bench, THREE).up_ms
    assert listed(bench) == ups
    bench.strike(ONE)
    gone = expect(bench, InstanceGone)
    assert (gone.instance, gone.up_ms) == (ONE, ups[ONE])
    assert terminate(bench, TWO).up_ms == ups[TWO]
    assert listed(bench) == {THREE: ups[THREE]}
    assert bench.machines() == 1


def test_each_instance_has_its_own_times(bench: Bench) -> None:
    ups = {instance: launch(bench, instance) for instance in (ONE, TWO)}
    for instance in (TWO, ONE):
        assert terminate(bench, instance).up_ms == ups[instance].up_ms
    assert bench.machines() == 0
