"""Cost of the pages of a large cluster: one rendering of each, and a hundred that are open.

Run as `python -m benchmarks.pages [--instances N] [--jobs N] [--open N] [--window S] [--json]`. A
server has as many instances and jobs, four tasks to an instance; five times a second one of these
stops, or runs again.
Browsers are in a process of their own, and follow all pages that have no parts in their path. The
processor time of the control loop's thread, and of the same changes without browsers, is left out.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from benchmarks.harness import Figures, options, publish, surroundings
from eva_master.adapters.pages.routes import PAGES
from eva_master.control.state.store import State
from eva_wire.service import logs
from eva_wire.values.ids import InstanceId, JobId, run_id
from eva_wire.values.states import JobState, RunState
from eva_wire.values.users import Role
from tests.fakes.rpc.pages import Browser, PageMaster, page_master
from tests.fakes.rpc.server import LARGE, add_instance, add_job, spec

RENDERING_MS = 150
MOST_BYTES = 1_000_000
SHARE = 0.10
"""Goals: processor time and size of a page, and the part of a core for all that are open."""
_PER_INSTANCE = 4
_EVERY_S = 0.2
_MEASURED = ("/", "/cluster")
_SAMPLES = 5

_READERS = """
import selectors, socket, sys
path, cookie, *topics = sys.argv[1:]
waiting = selectors.DefaultSelector()
for topic in topics:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    head = f"GET /live?on={topic}&at= HTTP/1.1\\r\\nhost: 127.0.0.1:8265\\r\\n"
    connection.sendall(f"{head}cookie: {cookie}\\r\\n\\r\\n".encode())
    waiting.register(connection, selectors.EVENT_READ)
print("open", flush=True)
read = events = 0
while True:
    for key, _ in waiting.select():
        data = key.fileobj.recv(1 << 16)
        if not data:
            waiting.unregister(key.fileobj)
        read += len(data)
        events += data.count(b"data: ")
        print(read, events, flush=True)
"""


def fill(state: State, instances: int, jobs: int) -> list[JobId]:
    """Have instances, and jobs of one task; returns those that run, as many as find room."""
    names = [add_instance(state, f"i-{number}", LARGE) for number in range(instances)]
    running = []
    for number in range(jobs):
        job = add_job(state, spec(f"train-{number % 50}", owner=f"user-{number % 20}"))
        if number < _PER_INSTANCE * instances:
            move(state, job, names[number // _PER_INSTANCE], 2000)
            begun = (*state.jobs[job].history, (JobState.RUNNING.value, 2000))
            state.put_job(replace(state.jobs[job], history=begun))
            running.append(job)
    return running


def move(state: State, job: JobId, instance: InstanceId | None, at_ms: int) -> InstanceId | None:
    """Have a job's task run on an instance, or wait; returns where it was."""
    run = state.runs[run_id(job, 0)]
    now = RunState.WAITING if instance is None else RunState.RUNNING
    history = (*run.history[-9:], (now.value, at_ms))
    state.put_run(replace(run, history=history, attempt=1, instance=instance, target=instance))
    return run.instance


class Cluster:
    """A server with pages, whose tasks stop and run again, one at a time."""

    def __init__(self, pages: PageMaster, running: Sequence[JobId]) -> None:
        self._pages = pages
        self._running = running
        self._changed = 0
        self._away: tuple[JobId, InstanceId | None] | None = None

    async def change(self, seconds: float) -> None:
        """Have tasks change for so many seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await self._pages.master.loop.change(self._change)
            await asyncio.sleep(_EVERY_S)

    def _change(self, state: State) -> None:
        self._changed += 1
        if self._away is not None:
            move(state, *self._away, 2000 + self._changed)
            self._away = None
        else:
            job = self._running[self._changed % len(self._running)]
            self._away = job, move(state, job, None, 2000 + self._changed)

    def spent_s(self) -> float:
        """Processor time of this process, without that of the control loop's thread."""
        loop = self._pages.master.loop.thread_id
        threads = psutil.Process().threads()
        return sum(thread.user_time + thread.system_time for thread in threads if thread.id != loop)


async def rendering(browser: Browser, path: str) -> Figures:
    """Processor time and size of a page that nobody else looks at."""
    times = []
    for _ in range(_SAMPLES):
        began = time.process_time()
        answer = await browser.get(path)
        times.append((time.process_time() - began) * 1000)
        assert answer.status == 200, answer.text[:500]
        await asyncio.sleep(1.1)  # so that it is rendered anew
    return {"cpu_ms": round(min(times), 1), "bytes": len(answer.text.encode())}


async def measure(instances: int, jobs: int, opened: int, window_s: float) -> Figures:
    """Measure pages of a cluster.

    Args:
        instances: How many it has.
        jobs: Jobs of one task.
        opened: Browsers that follow pages.
        window_s: Seconds for which they are measured.
    """
    with tempfile.TemporaryDirectory(prefix="eva-bench-") as directory:
        async with page_master(Path(directory)) as pages:
            loop = pages.master.loop
            running = await loop.change(lambda state: fill(state, instances, jobs))
            cluster = Cluster(pages, running)
            browser = await pages.logged_in("oda", Role.OPERATOR)
            paths = [page.path for page in PAGES if "{" not in page.path]
            measured = [path for path in _MEASURED if path in paths]
            renderings = {path: await rendering(browser, path) for path in measured}
            began = cluster.spent_s()
            await cluster.change(window_s)
            quiet_s = cluster.spent_s() - began
            topics = [paths[number % len(paths)] for number in range(opened)]
            followed = await follow(pages, browser, topics, cluster, window_s)
    share = (followed.pop("spent_s") - quiet_s) / window_s
    missed = [path for path, made in renderings.items() if made["cpu_ms"] > RENDERING_MS]
    missed += [f"{path} bytes" for path, made in renderings.items() if made["bytes"] > MOST_BYTES]
    return {
        "surroundings": surroundings(),
        "instances": instances,
        "jobs": jobs,
        "rendering": renderings,
        "open": {"pages": opened, "core_share": round(share, 3), **followed},
        "goals": {"cpu_ms": RENDERING_MS, "bytes": MOST_BYTES, "core_share": SHARE},
        "missed": [*missed, *(["core_share"] if share > SHARE else [])],
    }


async def follow(
    pages: PageMaster, browser: Browser, topics: Sequence[str], cluster: Cluster, window_s: float
) -> Figures:
    """Have browsers follow pages, and measure what that costs."""
    ((name, value),) = browser.cookies.items()
    command = [sys.executable, "-c", _READERS, pages.path, f"{name}={value}", *topics]
    command[3] = pages.path.replace("/self/", f"/{psutil.Process().pid}/")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as readers:
        try:
            assert readers.stdout is not None
            assert readers.stdout.readline() == "open\n"
            await cluster.change(3 * _SAMPLES)  # Each page is rendered once.
            began = cluster.spent_s()
            await cluster.change(window_s)
            spent_s = cluster.spent_s() - began
        finally:
            readers.terminate()
        last = readers.stdout.read().splitlines()[-1].split()
    return {"spent_s": spent_s, "bytes_read": int(last[0]), "events": int(last[1])}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 1 if one missed its goal."""
    chosen = options(__doc__, arguments, instances=2_000, jobs=10_000, open=100, window=30)
    logs.configure()  # To standard error, as a master's.
    figures = asyncio.run(measure(chosen.instances, chosen.jobs, chosen.open, chosen.window))
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
