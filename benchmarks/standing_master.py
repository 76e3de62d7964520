"""The real master with a cloud whose instances never change.

Run as `python -m benchmarks.standing_master REQUEST`, a JSON file with the master's `settings` and
the ids of the `instances` that its cloud lists. Everything but the cloud is what `eva master` runs:
control loop, journal, planner process, gRPC server. The cloud ignores launches and terminations, so
that thousands of instances need no host processes and a full cluster stays full. Prints its ports
on standard output; ends at SIGTERM. With `grows` instances come and go: a launch is carried out
at once, and the agent of each is one of `benchmarks.clockwork_agents`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from eva_master.adapters.bootstrap import Bootstrap
from eva_master.adapters.rpc.server.ports import Ports
from eva_master.app.config import MasterConfig
from eva_master.app.master import serve
from eva_master.app.settings import master_model
from eva_master.model.actions import CloudAction, LaunchInstance, SyncCloud, TerminateInstance
from eva_master.model.events import CloudListed, InstanceGone, InstanceUp
from eva_master.ports import Clock, Inbox
from eva_wire.service import logs
from eva_wire.values.ids import InstanceId, Millis

THREADS = "threads.json"
"""Beside the request: the system's ids of the master's threads, by name."""


class StandingCloud:
    """Implements `eva_master.app.master.ManagedCloud`: lists given instances and launches none.

    Args:
        inbox: Where listings are posted.
        instances: Ids of the instances, which run since `up_ms`.
        up_ms: Milliseconds since the epoch.
    """

    def __init__(self, inbox: Inbox, instances: Sequence[str], up_ms: Millis) -> None:
        self._inbox = inbox
        self._listed = tuple((InstanceId(name), up_ms) for name in instances)

    def execute(self, action: CloudAction) -> None:
        """See `eva_master.ports.Cloud.execute`."""
        if isinstance(action, SyncCloud):
            self._inbox.post(CloudListed(self._listed))

    def terminate_all(self, within_ms: int | None = None) -> None:
        """Do nothing, since no instance runs."""

    def hurry(self) -> None:
        """Do nothing, since no instance runs."""

    def close(self) -> None:
        """Do nothing, since nothing is watched."""


class GrowingCloud(StandingCloud):
    """Launches at once whatever is asked for; agents of its instances are in another process.

    Args:
        inbox: Where answers are posted.
        clock: Dates the instances.
        bootstrap: How agents find and trust the master.
        request: File with the request of `benchmarks.clockwork_agents`.
    """

    def __init__(self, inbox: Inbox, clock: Clock, bootstrap: Bootstrap, request: Path) -> None:
        super().__init__(inbox, (), clock.now())
        self._clock, self._bootstrap = clock, bootstrap
        self._up: dict[InstanceId, Millis] = {}
        self._worker = ThreadPoolExecutor(1)
        self._agents = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.clockwork_agents", str(request)],
            stdin=subprocess.PIPE,
            text=True,
        )

    def execute(self, action: CloudAction) -> None:
        """See `eva_master.ports.Cloud.execute`; the control loop never waits for a cloud."""
        self._worker.submit(self._handle, action)

    def _handle(self, action: CloudAction) -> None:
        match action:
            case LaunchInstance(instance):
                if instance not in self._up:
                    self._up[instance] = self._clock.now()
                    self._tell(
                        instance=instance,
                        enrol=self._bootstrap.join,
                        workers=self._bootstrap.workers,
                        authorities=self._bootstrap.authorities,
                        token=self._bootstrap.token(instance, action.attempt),
                    )
                self._inbox.post(InstanceUp(instance, self._up[instance]))
            case TerminateInstance(instance):
                up_ms = self._up.pop(instance, None)
                self._tell(instance=instance)
                self._inbox.post(InstanceGone(instance, up_ms, self._clock.now()))
            case SyncCloud():
                self._inbox.post(CloudListed(tuple(sorted(self._up.items()))))

    def close(self) -> None:
        """End the process of the agents."""
        self._worker.shutdown(cancel_futures=True)
        assert self._agents.stdin is not None
        self._agents.stdin.close()
        self._agents.terminate()
        self._agents.wait()

    def _tell(self, **launch: str) -> None:
        assert self._agents.stdin is not None
        print(json.dumps(launch), file=self._agents.stdin, flush=True)


def main(path: str) -> int:
    """Run until SIGTERM; returns 1 if the control loop failed."""
    request = json.loads(Path(path).read_text())
    config = master_model()(**request["settings"])
    logs.configure(cluster=config.cluster)

    def open_cloud(
        _config: MasterConfig, inbox: Inbox, clock: Clock, bootstrap: Bootstrap
    ) -> StandingCloud:
        if "grows" in request:
            return GrowingCloud(inbox, clock, bootstrap, Path(request["grows"]))
        return StandingCloud(inbox, request["instances"], clock.now())

    def tell(ports: Ports) -> None:
        threads = {thread.name: thread.native_id for thread in threading.enumerate()}
        Path(path).with_name(THREADS).write_text(json.dumps(threads))
        print(*ports)

    broken = asyncio.run(serve(config, power_off=False, on_open=tell, open_cloud=open_cloud))
    return int(broken is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
