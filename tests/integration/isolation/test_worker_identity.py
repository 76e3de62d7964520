"""How an agent comes by its certificate and keeps it: real processes, a scripted master."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.pki.authority import Authority, requested_key
from eva_wire._proto import worker_pb2 as pb
from eva_wire.values.ids import InstanceId, Millis
from eva_worker.errors import BadIdentity
from eva_worker.link.identity import Identity
from eva_worker.process.durable_files import write_file
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.master import DEADLINE_S, FakeMaster

RUN = "job-1/0"
SHORT_MS = 3_000
"""Life of a certificate; dates in certificates are whole seconds."""


class Worker:
    """A supervisor with all that is below it."""

    def __init__(self, master: FakeMaster, home: Path) -> None:
        self.master = master
        self.state = home / "state"
        self._log = home / "worker.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, token: str = "secret") -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "eva_worker", *self.master.options()),
                *("--instance-id", "i-1", "--instance-type", "t", "--emulated"),
                *("--cpus", "4", "--memory-mib", "1024", "--state-dir", str(self.state)),
                env=self.master.environment() | {"EVA_WORKER_TOKEN": token},
                stderr=log,
            )

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            async with asyncio.timeout(DEADLINE_S):
                await self._process.wait()

    async def kill(self) -> None:
        """Without a goodbye, for which an agent without a session would wait."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    @property
    def identity(self) -> Path:
        return self.state / "identity"

    def certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate((self.identity / "certificate.pem").read_bytes())

    async def says(self, event: str) -> dict[str, str]:
        """Wait for a line of the log."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for line in self._log.read_text().splitlines() if self._log.exists() else ():
                    if line.startswith("{") and (said := json.loads(line))["event"] == event:
                        return said
                await asyncio.sleep(0.05)

    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
async def worker(master: FakeMaster, tmp_path: Path) -> AsyncIterator[Worker]:
    worker = Worker(master, tmp_path)
    yield worker
    await worker.stop()


async def test_an_agent_joins_once_and_keeps_what_it_got(
    worker: Worker, master: FakeMaster
) -> None:
    await worker.start()
    await master.until(lambda: master.sessions)
    assert master.joins == [("i-1", "secret")]
    assert (worker.identity / "key.pem").stat().st_mode & 0o777 == 0o600
    assert worker.identity.stat().st_mode & 0o777 == 0o700
    before = worker.certificate()
    await worker.stop()
    sessions = len(master.sessions)
    # It needs no token any more.
    await worker.start(token="")
    await master.until(lambda: len(master.sessions) > sessions)
    assert len(master.joins) == 1
    assert worker.certificate() == before
    assert "secret" not in worker.log()


async def test_tasks_run_on_while_certificates_come_and_go(
    worker: Worker, master: FakeMaster
) -> None:
    master.certificate_ms = SHORT_MS
    await worker.start()
    await master.until(lambda: master.sessions)
    order = pb.TaskOrder(
        run_id=RUN,
        attempt=1,
        job_id="job-1",
        run="echo $$ >> pids; until [ -e go ]; do sleep 0.02; done; exit 7",
        demand=pb.Resources(milli_cpus=1000, memory_mib=64),
    )
    master.send(start=pb.StartTask(order=order))
    await master.phase(RUN, 1, pb.PHASE_RUNNING)
    first = worker.certificate()
    await master.until(lambda: master.renewals >= 2 and len(master.sessions) >= 3)
    listed = master.session.register.tasks
    assert [(task.run_id, task.phase) for task in listed] == [(RUN, pb.PHASE_RUNNING)]
    second = worker.certificate()
    assert second.serial_number != first.serial_number
    assert second.public_key() == first.public_key()
    work = worker.state / "tasks" / RUN / "0001" / "work"
    (work / "go").touch()
    assert (await master.phase(RUN, 1, pb.PHASE_EXITED)).exit_code == 7
    assert len((work / "pids").read_text().splitlines()) == 1
    assert len(master.joins) == 1
    # The agent ended the sessions by itself: nothing was lost.
    assert "session lost" not in worker.log()


async def test_an_agent_whose_certificate_expired_says_what_to_do(
    worker: Worker, master: FakeMaster
) -> None:
    await worker.start()
    await master.until(lambda: master.sessions)
    await worker.stop()
    late = _authority_of(days_ago=2)
    request = Identity(worker.identity, "i-1").signing_request()
    expired = late.issue_agent(requested_key(request), InstanceId("i-1"), 3_600_000)
    write_file(worker.identity / "certificate.pem", expired)
    await worker.start(token="")
    said = await worker.says("session lost")
    assert "the certificate expired at" in said["reason"]
    assert "start the worker with a new token" in said["reason"]
    await worker.kill()
    sessions = len(master.sessions)
    await worker.start(token="another")
    await master.until(lambda: len(master.sessions) > sessions)
    assert master.joins[-1] == ("i-1", "another")


async def test_an_agent_that_may_not_join_says_why(worker: Worker, master: FakeMaster) -> None:
    master.refusal = "the join token of instance 'i-1' expired 7 s ago"
    await worker.start()
    said = await worker.says("session lost")
    assert "PERMISSION_DENIED: the join token of instance 'i-1' expired 7 s ago" in said["reason"]
    master.refusal = ""
    await master.until(lambda: master.sessions)


class _Past:
    def __init__(self, days_ago: int) -> None:
        self._ago_ms = int(timedelta(days=days_ago).total_seconds() * 1000)

    def now(self) -> Millis:
        return Millis(SystemClock().now() - self._ago_ms)


def _authority_of(days_ago: int) -> Authority:
    ours = authority().authority
    return Authority(ours._key, ours._bundle, _Past(days_ago))


# -- the files -----------------------------------------------------------------------------------


def _certified(identity: Identity, instance: str = "i-1") -> bytes:
    key = requested_key(identity.signing_request())
    return authority().authority.issue_agent(key, InstanceId(instance), 3_600_000)


def test_what_was_kept_is_there_the_next_time(tmp_path: Path) -> None:
    identity = Identity(tmp_path / "identity", "i-1")
    assert identity.load() is None
    kept = identity.keep(_certified(identity), authority().certificates)
    again = Identity(tmp_path / "identity", "i-1").load()
    assert again == kept
    assert not kept.expired
    # An hour, and half of one before, for clocks that are wrong.
    assert kept.expires - kept.renew == timedelta(minutes=90) / 3


def test_the_key_is_made_once_and_before_anything_is_asked_for(tmp_path: Path) -> None:
    identity = Identity(tmp_path / "identity", "i-1")
    first = requested_key(identity.signing_request())
    assert requested_key(Identity(tmp_path / "identity", "i-1").signing_request()) == first


def test_an_identity_of_somebody_else_is_refused(tmp_path: Path) -> None:
    identity = Identity(tmp_path / "mine", "i-1")
    other = Identity(tmp_path / "other", "i-1")
    trusted = authority().certificates
    identity.signing_request()
    with pytest.raises(BadIdentity, match="is not for the key"):
        identity.keep(_certified(other), trusted)
    with pytest.raises(BadIdentity, match="that of i-2, not of i-1"):
        identity.keep(_certified(identity, "i-2"), trusted)
    with pytest.raises(BadIdentity, match="not in PEM"):
        identity.keep(_certified(identity), b"nonsense")
    assert identity.load() is None
    identity.keep(_certified(identity), trusted)
    with pytest.raises(BadIdentity, match="a state directory belongs to one instance"):
        Identity(tmp_path / "mine", "i-2").load()
