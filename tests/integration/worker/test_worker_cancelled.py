"""Work of an agent that is cancelled from outside: the agent ends, and the next one goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from eva_wire._proto import worker_pb2 as pb
from eva_worker.settings import ENVIRONMENT, Settings
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.master import FakeMaster

RUN = "job-1/0"
CANCELLABLE = """
import asyncio, signal, sys
from eva_worker import agent

async def serve(settings):
    def cancel():
        (task,) = (task for task in asyncio.all_tasks() if task.get_name() == sys.argv[1])
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, cancel)
    await original(settings)

original, agent._serve = agent._serve, serve
sys.exit(agent.main())
"""


async def begun(settings: Settings, work: str) -> Process:
    """An agent that cancels some work of its own at SIGUSR1."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CANCELLABLE, work),
        env={**os.environ, ENVIRONMENT: settings.to_json()},
        stdout=PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def ended(agent: Process) -> tuple[int | None, str]:
    """The exit code of an agent, and what it wrote."""
    async with asyncio.timeout(DEADLINE_S):
        said, _ = await agent.communicate()
    return agent.returncode, said.decode()


@pytest.mark.parametrize(
    "work", [f"life of {RUN}#1", "link to the master", "watch of the lease", "heartbeat"]
)
async def test_the_next_agent_reports_the_end_of_a_task(
    master: FakeMaster, tmp_path: Path, work: str
) -> None:
    (tmp_path / "state").mkdir()
    settings = Settings(
        f"127.0.0.1:{master.port}",
        "i-1",
        "p3.2xlarge",
        gpus=0,
        milli_cpus=1_000,
        memory_mib=1_024,
        state_dir=tmp_path / "state",
        emulated=True,
        join=f"127.0.0.1:{master.join_port}",
        token="secret",
        authorities=authority().ca_file.read_text(),
    )
    goes_on = tmp_path / "goes on"
    agents = [await begun(settings, work)]
    try:
        await master.until(lambda: master.sessions)
        command = f'until [ -e "{goes_on}" ]; do sleep 0.02; done; exit 7'
        order = pb.TaskOrder(run_id=RUN, attempt=1, job_id="job-1", run=command, grace_ms=1_000)
        master.send(start=pb.StartTask(order=order))
        await master.phase(RUN, 1, pb.PHASE_RUNNING)
        agents[0].send_signal(signal.SIGUSR1)
        code, said = await ended(agents[0])
        assert code == 1
        assert f"{work} was cancelled" in said
        agents.append(await begun(settings, work))
        goes_on.touch()
        assert (await master.phase(RUN, 1, pb.PHASE_EXITED)).exit_code == 7
        agents[1].terminate()
        assert (await ended(agents[1]))[0] == 0
    finally:
        goes_on.touch()
        for agent in agents:
            if agent.returncode is None:
                agent.kill()
                await agent.wait()
