"""How long a master on EC2 takes to find its instances again after a restart.

Run as `python -m benchmarks.clouds [--instances N] [--json]`. The production state machine is
restored with N instances that run a task each, and lists instances through the production adapter.
The adapter calls a substitute for EC2 in another process, which also has N instances: one in twenty
is unknown to the master, and as many that the master knows are missing. A pass is over when the
unknown ones are terminated and the missing ones are given up. The figures are the time of the whole
pass, with the substitute's share, and the processor time of the master.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence

from benchmarks.harness import Figures, options, publish, surroundings
from eva_master.adapters.ec2 import Ec2Cloud, Ec2Settings
from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.loop.inbox import LiveInbox
from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import LaunchInstance, SyncCloud, TerminateInstance
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.resources import Resources
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, Workload, run_id
from eva_wire.values.states import InstanceState
from tests.fakes.aws.launches import ShortMemory
from tests.fakes.aws.service import CREDENTIALS, REGION, Aws

GOAL_S = 2.0
MOST_CALLS = 20
_ONE_IN = 20
_PATIENCE_MS = 100
_FAMILY = Family("c7i")
_OFFERING = Offering(
    InstanceType("c7i.large", _FAMILY, Resources(0, 2_000, 4_096)),
    Price(89_250),
    zone=f"{REGION}a",
)


def standing(first: int, count: int) -> State:
    """Make a state in which each instance runs a job.

    Args:
        first: Number of the first instance.
        count: How many there are.
    """
    state = State((_OFFERING,))
    task = TaskSpec(Workload("w"), Program("true"), ((_FAMILY, Resources(0, 2_000, 4_096)),))
    running = (("running", 0),)
    for number in range(first, first + count):
        instance, job = InstanceId(f"i{number:05d}"), JobId(f"job-{number + 1}")
        run = run_id(job, 0)
        up = Instance(instance, _OFFERING, (("ready", 0),), Millis(0), up_ms=Millis(0))
        state.put_instance(up)
        state.put_job(Job(job, JobSpec(f"job-{number}", "me", (task,)), Millis(0), running))
        state.put_run(TaskRun(run, job, 0, running, 1, instance, instance))
    state.take_changes()
    return state


class Pass:
    """One restart of a master.

    Args:
        aws: The substitute for EC2.
        instances: How many it has, and how many the master wants.
    """

    def __init__(self, aws: Aws, instances: int) -> None:
        self.strays = self.absent = instances // _ONE_IN
        self._aws = aws
        self._cluster = uuid.uuid4().hex
        aws.populate(self._cluster, instances)
        self._clock = SystemClock()
        self._inbox = LiveInbox(self._clock)
        self._machine = Machine(standing(self.strays, instances), Settings())
        settings = Ec2Settings(self._cluster, REGION, endpoint=aws.url)
        self._cloud = Ec2Cloud(
            self._inbox,
            self._clock,
            settings,
            user_data=lambda _: "#!/bin/true",
            launch_records=ShortMemory(),
            settle_s=0,
        )

    def run(self) -> float:
        """Carry out the pass; returns its seconds."""
        began = time.perf_counter()
        actions = self._machine.recover(self._clock.now())
        while True:
            for action in actions:
                if isinstance(action, LaunchInstance | TerminateInstance | SyncCloud):
                    self._cloud.execute(action)
            if self._is_over():
                return time.perf_counter() - began
            events = self._inbox.wait(Millis(self._clock.now() + _PATIENCE_MS))
            heard = list(events)
            actions = self._machine.handle(heard, self._clock.now())

    def states(self) -> Counter[InstanceState]:
        """The number of wanted instances in each state."""
        return Counter(instance.state for instance in self._machine.state.instances.values())

    def _is_over(self) -> bool:
        return (
            self.states()[InstanceState.GONE] == self.absent
            and self._aws.terminated(self._cluster) == self.strays
        )

    def calls(self) -> Counter[str]:
        """The number of calls of each API method."""
        return Counter(call["action"] for call in self._aws.calls(self._cluster))

    def close(self) -> None:
        """Stop the cloud's threads after the pass."""
        self._cloud.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    chosen = options(__doc__, arguments, instances=1_000)
    os.environ.update({name.upper(): value for name, value in CREDENTIALS.items()})
    aws = Aws()
    one = Pass(aws, chosen.instances)
    busy = time.process_time()
    seconds = one.run()
    busy = time.process_time() - busy
    calls = one.calls()
    one.close()
    aws.stop()
    missed = []
    if seconds > GOAL_S:
        missed.append(f"a pass takes {seconds:.2f} s")
    if calls.total() > MOST_CALLS:
        missed.append(f"a pass takes {calls.total()} calls")
    figures: Figures = {
        "surroundings": surroundings(),
        "instances": chosen.instances,
        "strays": one.strays,
        "absent": one.absent,
        "seconds": round(seconds, 2),
        "processor_seconds": round(busy, 2),
        "calls": dict(calls),
        "missed": missed,
    }
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
