"""The Secrets service over TLS: each caller has their own, and values never come back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import grpc
import pytest

from eva_client.rpc.master import Client
from eva_master.adapters.secrets.vault import SecretVault
from eva_master.model.accounting.tenants import TenantRules
from eva_master.model.actions import FetchFiles, ForgetTask, StartTask, TaskOrder
from eva_master.model.events import SecretChanged, SecretsRefused
from eva_master.model.job import Program
from eva_master.model.resources import Resources
from eva_master.model.secrets import Holder, NeededSecrets
from eva_master.model.values import replace
from eva_master.ports.reading import Pause
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import SecretsStub
from eva_wire.values.errors import (
    InvalidSecret,
    LimitExceeded,
    NotAuthorised,
    NotFound,
    StorageError,
)
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from eva_wire.values.users import Role
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.relay import Relay
from tests.fakes.rpc.server import RpcMaster, add_job, refusal, rpc_master, spec

T = TypeVar("T")

HERE = InstanceId("i-1")
RULES = TenantRules({"red": ("ana",), "blue": ("ben",)})


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path, tenants=RULES) as master:
        yield master


def as_user(master: RpcMaster, owner: str, role: Role = Role.USER) -> SecretsStub:
    return SecretsStub(master.channel_of(owner, role))


def put(name: str, value: bytes = b"value", tenant: str = "") -> pb.SetSecretRequest:
    return pb.SetSecretRequest(name=name, value=value, tenant=tenant)


def gone(name: str) -> pb.RemoveSecretRequest:
    return pb.RemoveSecretRequest(name=name)


async def names(stub: SecretsStub, tenant: str = "") -> list[tuple[str, str, int]]:
    """Name, tenant and version of the secrets that a caller sees."""
    answer = await stub.List(pb.ListSecretsRequest(tenant=tenant))
    return [(secret.name, secret.tenant, secret.version) for secret in answer.secrets]


async def test_users_see_their_own_and_their_tenants_secrets(master: RpcMaster) -> None:
    ana, ben = as_user(master, "ana"), as_user(master, "ben")
    operator = as_user(master, "oscar", Role.OPERATOR)
    answer = await ana.Set(put("TOKEN", b"s3cret value"))
    assert b"s3cret" not in answer.SerializeToString()
    assert (answer.secret.version, answer.secret.set_by, answer.unchanged) == (1, "ana", False)
    assert (await ana.Set(put("TOKEN", b"s3cret value"))).unchanged
    assert (await ana.Set(put("TOKEN", b"newer"))).secret.version == 2
    await operator.Set(put("TOKEN", tenant="red"))
    await operator.Set(put("KEY", tenant="blue"))
    assert await names(ana) == [("TOKEN", "", 2), ("TOKEN", "red", 1)]
    assert await names(ben) == [("KEY", "blue", 1)]
    # An operator sees those of any tenant, and of no other user.
    assert await names(operator) == []
    assert await names(operator, "red") == [("TOKEN", "red", 1)]
    _, error = await refusal(ben.Remove(pb.RemoveSecretRequest(name="TOKEN")))
    assert isinstance(error, NotFound)
    await ana.Remove(pb.RemoveSecretRequest(name="TOKEN"))
    assert await names(ana) == [("TOKEN", "red", 1)]
    listed = await ana.List(pb.ListSecretsRequest())
    assert "value" not in str(listed)


async def test_only_operators_change_a_tenants_secrets(master: RpcMaster) -> None:
    ana = as_user(master, "ana")
    calls = (
        ana.Set(put("TOKEN", tenant="red")),
        ana.Remove(pb.RemoveSecretRequest(name="TOKEN", tenant="red")),
        ana.List(pb.ListSecretsRequest(tenant="red")),
        as_user(master, "ben").List(pb.ListSecretsRequest(tenant="red")),
    )
    for call in calls:
        status, error = await refusal(call)
        assert status is grpc.StatusCode.PERMISSION_DENIED
        assert isinstance(error, NotAuthorised)
        assert "are set by operators" in error.message
    operator = as_user(master, "oscar", Role.OPERATOR)
    _, error = await refusal(operator.Set(put("TOKEN", tenant="green")))
    assert isinstance(error, NotFound)
    assert (error.message, error.hint) == (
        "there is no tenant 'green'",
        "tenants are red, blue, default",
    )
    assert master.loop.commands == []


async def test_the_control_loop_hears_of_each_change(master: RpcMaster) -> None:
    ana = as_user(master, "ana")
    await ana.Set(put("TOKEN"))
    # Told again, since the first time may have been lost with a master.
    await ana.Set(put("TOKEN"))
    await ana.Remove(pb.RemoveSecretRequest(name="TOKEN"))
    changes = [event for event in master.loop.commands if isinstance(event, SecretChanged)]
    assert [(event.secret, event.present) for event in changes] == [
        ((Holder.user("ana"), "TOKEN"), True),
        ((Holder.user("ana"), "TOKEN"), True),
        ((Holder.user("ana"), "TOKEN"), False),
    ]
    assert "value" not in repr(master.loop.commands)


async def test_answers_say_which_jobs_use_a_secret(master: RpcMaster) -> None:
    jobs: list[JobId] = []
    for number in range(7):
        using = replace(spec(f"j{number}", owner="ana"), secrets=("TOKEN",), tenant="red")
        jobs.append(await master.loop.change(lambda state, it=using: add_job(state, it)))
    await master.loop.change(lambda state: add_job(state, spec("other", owner="ana")))
    ana = as_user(master, "ana")
    answer = await ana.Set(put("TOKEN"))
    assert (list(answer.jobs), answer.job_count) == (jobs[:1:-1], 7)
    assert (await as_user(master, "ben").Set(put("TOKEN"))).job_count == 0
    operator = as_user(master, "oscar", Role.OPERATOR)
    assert (await operator.Set(put("TOKEN", tenant="red"))).job_count == 7


def start(owner: str, attempt: int, *names: str) -> StartTask:
    """A start of a job of a user of tenant red, on the first instance."""
    order = TaskOrder(
        *(RunId("job-1/0"), attempt, JobId("job-1"), 0, "job", Program("train")),
        *(Resources(0, 1_000, 1_024), 60_000),
        secrets=NeededSecrets(owner, "red", names),
    )
    return StartTask(HERE, order)


async def test_values_go_with_the_start_to_its_instance_alone(master: RpcMaster) -> None:
    await as_user(master, "ana").Set(put("TOKEN", b"of ana"))
    await as_user(master, "oscar", Role.OPERATOR).Set(put("KEY", b"of red", "red"))
    agent, another = await master.welcomed("i-1"), await master.welcomed("i-2")
    fetch = FetchFiles(HERE, start("ana", 1, "KEY", "TOKEN").order)
    for action in (fetch, start("ana", 1, "KEY", "TOKEN"), start("ben", 2, "KEY")):
        master.sessions.execute(action)
    fetched, first, second = [await agent.hear() for _ in range(3)]
    assert list(fetched.fetch.order.secrets) == ["KEY", "TOKEN"]
    assert b"of ana" not in fetched.SerializeToString()
    assert dict(first.start.secrets) == {"KEY": "of red", "TOKEN": "of ana"}
    assert list(first.start.order.secrets) == ["KEY", "TOKEN"]
    assert dict(second.start.secrets) == {"KEY": "of red"}
    # Told again, it is read again.
    await as_user(master, "ana").Set(put("TOKEN", b"newer"))
    master.sessions.execute(start("ana", 1, "TOKEN"))
    assert dict((await agent.hear()).start.secrets) == {"TOKEN": "newer"}
    master.sessions.execute(ForgetTask(InstanceId("i-2"), RunId("job-1/0"), 9))
    assert (await another.hear()).forget.attempt == 9


async def test_a_start_without_its_secret_is_told_to_the_control_loop(master: RpcMaster) -> None:
    await as_user(master, "ben").Set(put("TOKEN", b"of ben"))
    agent = await master.welcomed("i-1")
    while not master.loop.quiet:
        await master.loop.event()
    master.sessions.execute(start("ana", 3, "TOKEN"))
    refused = await master.loop.event()
    secrets = (Holder.user("ana"), "TOKEN"), (Holder.tenant("red"), "TOKEN")
    assert refused == SecretsRefused(RunId("job-1/0"), 3, secrets)
    # Nothing of it went out.
    master.sessions.execute(ForgetTask(HERE, RunId("job-1/0"), 9))
    assert (await agent.hear()).forget.attempt == 9


async def test_a_database_that_fails_has_the_start_told_again(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await as_user(master, "ana").Set(put("TOKEN", b"of ana"))
    agent = await master.welcomed("i-1")
    opened = SecretVault.values
    failures = [StorageError("the disk is away")]

    def values(self: SecretVault, needs: NeededSecrets) -> Mapping[str, str]:
        if failures:
            raise failures.pop()
        return opened(self, needs)

    monkeypatch.setattr(SecretVault, "values", values)
    for attempt in (1, 2):
        master.sessions.execute(start("ana", attempt, "TOKEN"))
    assert (await agent.hear()).start.order.attempt == 2


@pytest.mark.parametrize(
    ("request_", "kind", "message"),
    [
        (put("EVA_TOKEN"), InvalidSecret, "set by the cluster"),
        (put("A B"), InvalidSecret, "cannot be an environment variable"),
        (put("TOKEN", b""), InvalidSecret, "is empty"),
        (put("TOKEN", b"\xff"), InvalidSecret, "is no text"),
        (put("TOKEN", b"x" * 65_537), InvalidSecret, "at most 65,536"),
    ],
)
async def test_bad_secrets_are_refused_in_a_line(
    master: RpcMaster, request_: pb.SetSecretRequest, kind: type, message: str
) -> None:
    ana = as_user(master, "ana")
    status, error = await refusal(ana.Set(request_))
    assert status is grpc.StatusCode.FAILED_PRECONDITION
    assert isinstance(error, kind)
    assert message in error.message
    assert error.hint
    assert await names(ana) == []


async def test_a_user_has_so_many_secrets_at_most(master: RpcMaster) -> None:
    ana = as_user(master, "ana")
    for name in "ABC":
        await ana.Set(put(name))
    _, error = await refusal(ana.Set(put("D")))
    assert isinstance(error, LimitExceeded)
    assert await names(as_user(master, "ben")) == []


class HeldVault:
    """Holds changes of a vault: a call is cut off while its change is on the way to the disk.

    Attributes:
        begun: Set once a change is on its way.
        go_on: Set by the test, once it may arrive.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        changed = getattr(SecretVault, change)

        def held(vault: SecretVault, *arguments: object, **more: object) -> object:
            self.begun.set()
            assert self.go_on.wait(DEADLINE_S)
            return changed(vault, *arguments, **more)

        monkeypatch.setattr(SecretVault, change, held)

    async def until_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, DEADLINE_S)


def changes(master: RpcMaster) -> list[tuple[str, bool]]:
    """The control loop's news of secrets: their names, and whether they are there."""
    events = [event for event in master.loop.commands if isinstance(event, SecretChanged)]
    return [(event.secret[1], event.present) for event in events]


@pytest.mark.parametrize("change", ["set", "remove"])
async def test_a_change_is_told_to_the_control_loop_though_its_user_has_gone(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    ana = as_user(master, "ana")
    if change == "remove":
        await ana.Set(put("TOKEN"))
    vault = HeldVault(monkeypatch, change)
    calls = {"set": lambda: ana.Set(put("TOKEN")), "remove": lambda: ana.Remove(gone("TOKEN"))}
    call = calls[change]()
    waiting = asyncio.ensure_future(call.code())
    await vault.until_begun()
    call.cancel()
    await waiting
    await names(ana)  # The master hears of the end before it answers the next call.
    before = len(changes(master))
    vault.go_on.set()
    await ana.Set(put("NEXT"))  # Changes are made one after the other.
    assert changes(master)[before:] == [("TOKEN", change == "set"), ("NEXT", True)]


async def test_a_change_while_the_control_loop_stands_still_is_told_to_it(
    master: RpcMaster,
) -> None:
    """The loop takes it in once it goes on; until then the secret is set all the same."""
    ana = as_user(master, "ana")
    master.loop.gateway.paused(Pause(Millis(0), "the disk is full", "make room"))
    await ana.Set(put("TOKEN"))
    await ana.Remove(gone("TOKEN"))
    await master.loop.change(lambda _: None)
    assert changes(master) == [("TOKEN", True), ("TOKEN", False)]


@asynccontextmanager
async def cut_off(
    master: RpcMaster, call: Callable[[Client], T], vault: Callable[[], HeldVault]
) -> AsyncIterator[tuple[Client, T]]:
    """A call whose connection breaks before its answer; yields the client, and what it was told."""
    secret = master.tokens.create("ana", Role.USER)[1]
    async with Relay(master.ports.users) as relay:
        address = f"127.0.0.1:{relay.port}"
        with Client(address, authorities=master.authorities, token=secret) as client:
            await asyncio.to_thread(client.secrets, "")
            held = vault()
            answer = asyncio.create_task(asyncio.to_thread(call, client))
            await held.until_begun()
            relay.hang_up_on_callers()
            held.go_on.set()
            yield client, await answer


async def test_a_removal_whose_answer_is_lost_is_none_that_failed(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await as_user(master, "ana").Set(put("TOKEN"))

    def vault() -> HeldVault:
        return HeldVault(monkeypatch, "remove")

    async with cut_off(master, lambda ana: ana.remove_secret("TOKEN"), vault) as (client, _):
        assert await names(as_user(master, "ana")) == []
        with pytest.raises(NotFound):
            await asyncio.to_thread(client.remove_secret, "TOKEN")


async def test_a_secret_whose_answer_is_lost_is_set_once_and_said_to_be(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vault() -> HeldVault:
        return HeldVault(monkeypatch, "set")

    async with cut_off(master, lambda ana: ana.set_secret("TOKEN", b"v"), vault) as (client, told):
        assert (told.secret.version, told.unchanged) == (1, False)
        again = await asyncio.to_thread(client.set_secret, "TOKEN", b"v")
        assert (again.secret.version, again.unchanged) == (1, True)
