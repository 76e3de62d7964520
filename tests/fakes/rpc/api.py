"""A master as the command sees it: a real gRPC server of eva.api.v1 with canned answers."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import pytest

from eva_wire._proto import api_pb2 as pb
from eva_wire._proto import api_pb2_grpc
from eva_wire.rpc.channels import server_options
from eva_wire.rpc.errors import DETAIL_KEY, detail_of, status_of
from eva_wire.values.errors import DigestMismatch, EvaError, NotFound
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.notices import NoticesApi

NOW_MS = 1_800_000_000_000
TOKEN = "eva_t1_secret"


@dataclass
class Call:
    """A request that arrived."""

    method: str
    request: Any
    metadata: dict[str, str | bytes]


@dataclass
class FakeApi(api_pb2_grpc.JobsServicer, api_pb2_grpc.ClusterServicer):
    """The answers, and what was asked.

    Attributes:
        jobs: By id; what `Get`, `List` and the first answer of `Watch` tell.
        changes: Changes that `Watch` sends afterwards.
        hang_ups: So many `Watch` calls end before they tell of the changes.
        logs: Chunks that `Logs` sends; as bytes, such as a master of an earlier release.
        blobs: Uploaded blobs, by digest.
        failures: Errors that the next calls of a method meet, first one first; a status code
            stands for a failure of the network.
        breaks: After so many chunks the next `Logs` call breaks off.
        tokens: Tokens of users, by id.
        secrets: Requests that set secrets, by tenant and name.
        nodes: The owned nodes.
        node_verbs: Requests about nodes, in order.
        notices: Receivers of notices.
    """

    jobs: dict[str, pb.Job] = field(default_factory=dict)
    changes: list[pb.Job] = field(default_factory=list)
    hang_ups: int = 0
    logs: list[bytes | pb.LogChunk] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    state: pb.ClusterState = field(default_factory=pb.ClusterState)
    bill: pb.Bill = field(default_factory=pb.Bill)
    plan: pb.PlanResponse = field(default_factory=pb.PlanResponse)
    settings: str = "{}"
    learned: pb.Learned = field(default_factory=pb.Learned)
    tenants: pb.TenantsResponse = field(default_factory=pb.TenantsResponse)
    partitions: pb.PartitionsResponse = field(default_factory=pb.PartitionsResponse)
    times: pb.LearnedTimes = field(default_factory=pb.LearnedTimes)
    explanation: pb.Explanation = field(default_factory=pb.Explanation)
    notes: list[str] = field(default_factory=list)
    page_size: int = 100
    failures: dict[str, list[EvaError | grpc.StatusCode]] = field(
        default_factory=lambda: defaultdict(list)
    )
    breaks: list[int] = field(default_factory=list)
    tokens: dict[str, pb.Token] = field(default_factory=dict)
    secrets: dict[tuple[str, str], pb.SetSecretRequest] = field(default_factory=dict)
    nodes: list[pb.Node] = field(default_factory=list)
    node_verbs: list[tuple[str, str]] = field(default_factory=list)
    notices: NoticesApi = field(default_factory=NoticesApi)
    calls: list[Call] = field(default_factory=list)
    address: str = ""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._commands: dict[str, str] = {}
        self._server = grpc.server(ThreadPoolExecutor(8), options=server_options())
        api_pb2_grpc.add_JobsServicer_to_server(self, self._server)
        api_pb2_grpc.add_ClusterServicer_to_server(self, self._server)
        api_pb2_grpc.add_SecretsServicer_to_server(_Secrets(self), self._server)
        api_pb2_grpc.add_TokensServicer_to_server(_Tokens(self), self._server)
        api_pb2_grpc.add_NodesServicer_to_server(_Nodes(self), self._server)
        api_pb2_grpc.add_NoticesServicer_to_server(self.notices, self._server)

    def __enter__(self) -> Self:
        credentials = authority().server_credentials()
        self.address = f"127.0.0.1:{self._server.add_secure_port('127.0.0.1:0', credentials)}"
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.stop(grace=None).wait()

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which the command finds this master."""
        ca_file = str(authority().ca_file)
        return {"EVA_ADDRESS": self.address, "EVA_CA_FILE": ca_file, "EVA_TOKEN": TOKEN}

    def be_the_only_one(self, monkeypatch: pytest.MonkeyPatch, settings: Path) -> None:
        """Have the command find this master, whatever the machine's own settings say.

        Args:
            monkeypatch: Of the test.
            settings: Directory for the user's settings.
        """
        for name in [name for name in os.environ if name.startswith("EVA_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(settings))
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)

    def of(self, method: str) -> list[Call]:
        """The calls of one method, in order."""
        return [call for call in self.calls if call.method == method]

    def Submit(self, request, context):
        self.arrived("Submit", request, context)
        with self._lock:
            job = self._commands.setdefault(request.command_id, f"job-{len(self._commands) + 1}")
        self.fail("Submit", context)
        return pb.SubmitResponse(job_id=job, notes=self.notes)

    def Check(self, request, context):
        self.arrived("Check", request, context)
        self.fail("Check", context)
        return pb.CheckResponse()

    def Get(self, request, context):
        self.arrived("Get", request, context)
        self.fail("Get", context)
        job = self._find(request.job, context)
        if not request.HasField("tasks"):
            return job
        if name := request.tasks.name:
            named = [task for task in job.tasks if task.name == name]
            if not named:
                self.abort(NotFound(f"job {job.id} has no task named {name!r}"), context)
            return pb.Job(id=job.id, tasks=named[:1])
        first, most = request.tasks.first, request.tasks.size or 100
        failed = request.tasks.failed
        if first >= len(job.tasks) and not failed:
            self.abort(NotFound(f"job {job.id} has no task {first}", hint="fewer"), context)
        chosen = [
            task
            for task in job.tasks
            if task.index >= first and (task.state == "failed" or not failed)
        ]
        page = pb.Job()
        page.CopyFrom(job)
        page.task_count = len({task.index for task in job.tasks})
        del page.tasks[:]
        shown = list(dict.fromkeys(task.index for task in chosen))[:most]
        page.tasks.extend(task for task in chosen if task.index in shown)
        return page

    def List(self, request, context):
        self.arrived("List", request, context)
        self.fail("List", context)
        jobs = [
            job
            for job in self.jobs.values()
            if (request.all or job.state in ("pending", "suspended", "running", "ending"))
            and request.labels.items() <= job.labels.items()
        ]
        page, token = self._page(jobs, request.page_token)
        return pb.ListJobsResponse(jobs=page, next_page_token=token)

    def _page(self, entries, token):
        start = int(token or 0)
        end = start + self.page_size
        return entries[start:end], str(end) if end < len(entries) else ""

    def Cancel(self, request, context):
        self.arrived("Cancel", request, context)
        self.fail("Cancel", context)
        return pb.CancelResponse(job_id=self._find(request.job, context).id)

    def Suspend(self, request, context):
        self.arrived("Suspend", request, context)
        self.fail("Suspend", context)
        return pb.SuspendResponse(job_id=self._find(request.job, context).id)

    def Resume(self, request, context):
        self.arrived("Resume", request, context)
        self.fail("Resume", context)
        return pb.ResumeResponse(job_id=self._find(request.job, context).id)

    def Retry(self, request, context):
        self.arrived("Retry", request, context)
        self.fail("Retry", context)
        job = self._find(request.job, context)
        notes = ["`value`: not read"]
        return pb.RetryResponse(job_id=f"{job.name}-99", retry_of=job.id, tasks=2, notes=notes)

    def Watch(self, request, context) -> Iterator[pb.Job]:
        self.arrived("Watch", request, context)
        self.fail("Watch", context)
        for reference in request.jobs:
            yield self._find(reference, context)
        if self.hang_ups:
            self.hang_ups -= 1
            return
        yield from self.changes

    def Logs(self, request, context) -> Iterator[pb.LogChunk]:
        self.arrived("Logs", request, context)
        self.fail("Logs", context)
        most = self.breaks.pop(0) if self.breaks else None
        start = request.from_attempt, request.from_offset
        for number, chunk in enumerate(self.logs):
            if number == most:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the master stops")
            if isinstance(chunk, bytes):
                yield pb.LogChunk(data=chunk)
            elif (chunk.attempt, chunk.offset) >= start:
                yield chunk

    def Plan(self, request, context):
        self.arrived("Plan", request, context)
        self.fail("Plan", context)
        return self.plan

    def MissingBlobs(self, request, context):
        self.arrived("MissingBlobs", request, context)
        self.fail("MissingBlobs", context)
        missing = [digest for digest in request.digests if digest not in self.blobs]
        return pb.MissingBlobsResponse(digests=missing)

    def PutBlob(self, request_iterator, context):
        chunks = list(request_iterator)
        digest = chunks[0].digest
        self.arrived("PutBlob", digest, context)
        self.fail("PutBlob", context)
        data = b"".join(chunk.data for chunk in chunks)
        if hashlib.sha256(data).hexdigest() != digest:
            self.abort(DigestMismatch(digest), context)
        self.blobs[digest] = data
        return pb.PutBlobResponse()

    def Describe(self, request, context):
        self.arrived("Describe", request, context)
        self.fail("Describe", context)
        if not request.all:
            return self.state
        state = pb.ClusterState()
        state.CopyFrom(self.state)
        del state.instances[:]
        page, state.next_page_token = self._page(self.state.instances, request.page_token)
        state.instances.extend(page)
        return state

    def Cost(self, request, context):
        self.arrived("Cost", request, context)
        self.fail("Cost", context)
        bill = pb.Bill()
        bill.CopyFrom(self.bill)
        del bill.jobs[:], bill.instances[:]
        if not request.without_jobs:
            page, bill.next_jobs_page_token = self._page(self.bill.jobs, request.jobs_page_token)
            bill.jobs.extend(page[: request.page_size or None])
        if not request.without_instances:
            page, bill.next_instances_page_token = self._page(
                self.bill.instances, request.instances_page_token
            )
            bill.instances.extend(page[: request.page_size or None])
        return bill

    def Explain(self, request, context):
        self.arrived("Explain", request, context)
        self.fail("Explain", context)
        return self.explanation

    def Partitions(self, request, context):
        self.arrived("Partitions", request, context)
        self.fail("Partitions", context)
        return self.partitions

    def Move(self, request, context):
        self.arrived("Move", request, context)
        self.fail("Move", context)
        return pb.MoveResponse(job_id=self._find(request.job, context).id)

    def Tenants(self, request, context):
        self.arrived("Tenants", request, context)
        self.fail("Tenants", context)
        return self.tenants

    def Interference(self, request, context):
        self.arrived("Interference", request, context)
        self.fail("Interference", context)
        return self.learned

    def Estimates(self, request, context):
        self.arrived("Estimates", request, context)
        self.fail("Estimates", context)
        return self.times

    def Config(self, request, context):
        self.arrived("Config", request, context)
        self.fail("Config", context)
        return pb.ConfigResponse(json=self.settings)

    def arrived(self, method, request, context) -> None:
        with self._lock:
            metadata = dict(context.invocation_metadata())
            self.calls.append(Call(method, request, metadata))

    def fail(self, method, context) -> None:
        with self._lock:
            failure = self.failures[method].pop(0) if self.failures[method] else None
        if isinstance(failure, grpc.StatusCode):
            context.abort(failure, "scripted")
        elif callable(failure):
            failure()
        elif failure is not None:
            self.abort(failure, context)

    def _find(self, reference, context):
        for job in self.jobs.values():
            if reference in (job.id, job.name):
                return job
        return self.abort(NotFound(f"no job {reference!r}", hint="`eva ls` lists them"), context)

    def abort(self, error: EvaError, context) -> None:
        context.set_trailing_metadata(((DETAIL_KEY, detail_of(error).SerializeToString()),))
        context.abort(status_of(error), error.message)


class _Nodes(api_pb2_grpc.NodesServicer):
    """Owned nodes; what is asked of them is kept in `FakeApi.node_verbs`."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api

    def Token(self, request, context):
        return pb.NodeTokenResponse(
            node=request.node,
            type="own.small",
            expires_ms=NOW_MS + request.lifetime_ms,
            secret="eva-node.secret",
        )

    def Act(self, request, context):
        self._api.node_verbs.append((request.node, request.verb))
        return pb.NodeActResponse()

    def List(self, request, context):
        return pb.ListNodesResponse(nodes=self._api.nodes)


class _Secrets(api_pb2_grpc.SecretsServicer):
    """Apart, likewise; its calls are noted as ``Secrets.NAME``. Jobs of all use every secret."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api

    def Set(self, request, context):
        self._begin("Set", request, context)
        same = self._api.secrets.get((request.tenant, request.name)) == request
        self._api.secrets[request.tenant, request.name] = request
        return pb.SetSecretResponse(secret=self._secret(request), unchanged=same, **self._jobs())

    def List(self, request, context):
        self._begin("List", request, context)
        return pb.ListSecretsResponse(secrets=map(self._secret, self._api.secrets.values()))

    def Remove(self, request, context):
        self._begin("Remove", request, context)
        if self._api.secrets.pop((request.tenant, request.name), None) is None:
            self._api.abort(NotFound(f"you have no secret {request.name!r}"), context)
        return pb.RemoveSecretResponse(**self._jobs())

    def _secret(self, request):
        return pb.Secret(
            name=request.name,
            tenant=request.tenant,
            version=3,
            set_ms=NOW_MS - 60_000,
            set_by="ana",
            unreadable=request.name.startswith("OLD"),
            now_ms=NOW_MS,
        )

    def _jobs(self):
        names = list(self._api.jobs)
        return {"jobs": names[:2], "job_count": len(names)}

    def _begin(self, method, request, context) -> None:
        self._api.arrived(f"Secrets.{method}", request, context)
        self._api.fail(f"Secrets.{method}", context)


class _Tokens(api_pb2_grpc.TokensServicer):
    """Apart, since `List` is a method of two services; its calls are noted as ``Tokens.NAME``."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api

    def Create(self, request, context):
        self._begin("Create", request, context)
        key = f"t{len(self._api.tokens) + 1}"
        token = pb.Token(id=key, owner=request.owner, role=request.role, created_ms=NOW_MS)
        if request.lifetime_ms:
            token.expires_ms = NOW_MS + request.lifetime_ms
        self._api.tokens[key] = token
        return pb.CreateTokenResponse(token=token, secret=f"eva_{key}_secret")

    def List(self, request, context):
        self._begin("List", request, context)
        return pb.ListTokensResponse(tokens=self._api.tokens.values())

    def Revoke(self, request, context):
        self._begin("Revoke", request, context)
        if request.id not in self._api.tokens:
            self._api.abort(NotFound(f"there is no token {request.id!r}"), context)
        self._api.tokens[request.id].revoked_ms = NOW_MS
        return pb.RevokeTokenResponse()

    def WhoAmI(self, request, context):
        self._begin("WhoAmI", request, context)
        return next(iter(self._api.tokens.values()))

    def _begin(self, method, request, context) -> None:
        self._api.arrived(f"Tokens.{method}", request, context)
        self._api.fail(f"Tokens.{method}", context)


def sample_jobs() -> dict[str, pb.Job]:
    """A job that runs on two instances, one that waits, and one that failed."""
    running = pb.Job(
        id="resnet18-3",
        name="resnet18",
        owner="ana",
        state="running",
        submitted_ms=NOW_MS - 3_600_000,
        started_ms=NOW_MS - 3_500_000,
        cost_micro_usd=1_234_567,
        no_packing_micro_usd=2_000_000,
        priority=1,
        tasks=[
            pb.Task(
                index=0,
                state="running",
                instance="i-1",
                attempt=2,
                moves=1,
                generation=7,
                steps=600,
                total_steps=1000,
                rate=2.04,
                normalised=0.97,
                metrics={"loss": 0.25},
                workload="resnet18-imagenet",
            ),
            pb.Task(
                index=1,
                state="starting",
                instance="i-1",
                target="i-2",
                attempt=1,
                workload="resnet18-imagenet",
            ),
        ],
    )
    waiting = pb.Job(
        id="bert-1",
        name="bert",
        owner="ben",
        state="pending",
        submitted_ms=NOW_MS - 60_000,
        tasks=[
            pb.Task(index=0, state="waiting", workload="bert", waiting_for="p3.2xlarge sold out")
        ],
    )
    failed = pb.Job(
        id="resnet18-2",
        name="resnet18",
        owner="ana",
        state="failed",
        reason="task 0 exited with 3",
        submitted_ms=NOW_MS - 9_000_000,
        started_ms=NOW_MS - 8_900_000,
        finished_ms=NOW_MS - 8_000_000,
        exit_code=3,
        failures=4,
        tasks=[pb.Task(index=0, state="failed", workload="resnet18-imagenet")],
    )
    return {job.id: job for job in (running, waiting, failed)}


def sample_state() -> pb.ClusterState:
    """A cluster of one packed instance and one that comes up."""
    return pb.ClusterState(
        cluster="lab",
        policy="eva",
        now_ms=NOW_MS,
        rounds=12,
        version="0.1.0",
        workers_connected=1,
        jobs_by_state={"running": 1, "pending": 1},
        tasks_by_state={"running": 1, "starting": 1, "waiting": 1},
        price_micro_usd_per_hour=3_570_000,
        no_packing_micro_usd_per_hour=4_284_000,
        instances=[
            pb.Instance(
                id="i-1",
                type="c7i.8xlarge",
                zone="local",
                purchase="on-demand",
                state="ready",
                price_micro_usd_per_hour=1_428_000,
                requested_ms=NOW_MS - 3_600_000,
                up_ms=NOW_MS - 3_590_000,
                capacity=pb.Resources(milli_cpus=32_000, memory_mib=65_536),
                used=pb.Resources(milli_cpus=28_000, memory_mib=32_768),
                tasks=["resnet18-3/0", "resnet18-3/1"],
                connected=True,
            ),
            pb.Instance(
                id="i-2",
                type="r7i.8xlarge",
                zone="local",
                purchase="spot",
                state="up",
                price_micro_usd_per_hour=2_142_000,
                requested_ms=NOW_MS - 30_000,
                up_ms=NOW_MS - 20_000,
                capacity=pb.Resources(milli_cpus=32_000, memory_mib=262_144),
                reason="for resnet18-3/1",
            ),
        ],
    )


def sample_bill() -> pb.Bill:
    """The bill of the sample cluster."""
    return pb.Bill(
        cost_micro_usd=1_500_000,
        idle_micro_usd=265_433,
        no_packing_micro_usd=2_000_000,
        migrations=1,
        now_ms=NOW_MS,
        jobs=[
            pb.JobCost(
                id="resnet18-3",
                name="resnet18",
                cost_micro_usd=1_234_567,
                no_packing_micro_usd=2_000_000,
            )
        ],
        instances=[
            pb.InstanceCost(
                id="i-1",
                type="c7i.8xlarge",
                price_micro_usd_per_hour=1_428_000,
                billed_ms=3_590_000,
                cost_micro_usd=1_424_033,
                idle_micro_usd=200_000,
            )
        ],
    )


def sample_plan() -> pb.PlanResponse:
    """One task beside another, one on a new instance, one that would wait."""
    return pb.PlanResponse(
        moves=1,
        price_before_micro_usd_per_hour=1_428_000,
        price_after_micro_usd_per_hour=1_785_000,
        alone_micro_usd_per_hour=714_000,
        placements=[
            pb.Placement(
                task=0, instance_type="c7i.8xlarge", instance="i-1", beside=["resnet18-3/0"]
            ),
            pb.Placement(task=1, instance_type="c7i.2xlarge"),
            pb.Placement(task=2, waiting_for="the limit of p3.2xlarge"),
        ],
    )
