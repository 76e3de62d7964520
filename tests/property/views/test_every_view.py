"""Every view of a job that was accepted, however extreme its figures are."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.core import CollectorRegistry

from eva_master.adapters.bills import divided_bill
from eva_master.adapters.http import metrics
from eva_master.adapters.resolving.parse import parse_job
from eva_master.adapters.rpc.server import explain, learned, reasons, views
from eva_master.adapters.rpc.server.parts import messages as partition_messages
from eva_master.adapters.rpc.server.shown import costs, tenants
from eva_master.adapters.rpc.server.shown.installed import METRICS
from eva_master.adapters.rpc.workers.messages import command
from eva_master.adapters.store.journal import SqlJournal
from eva_master.control.readside.publisher import Publisher
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.learning.voices.names import voice_of_owner
from eva_master.model.accounting.splits import CostSplit
from eva_master.model.accounting.tenants import TenantRules
from eva_master.model.actions import StartTask
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.changes import Changes
from eva_master.model.events import (
    InstanceUp,
    JobSubmitted,
    Phase,
    PlanReady,
    WorkerRegistered,
)
from eva_master.model.job import JobSpec
from eva_master.model.resources import Resources
from eva_master.policies.eva import POLICY
from eva_master.ports.reading import ReadModel
from eva_wire.values.errors import EvaError
from eva_wire.values.ids import Family, Millis, Price
from eva_wire.values.users import Role, UserToken
from tests.drawing import drawn
from tests.fakes.archive import LoadedArchive
from tests.fakes.hand_driven import Cluster
from tests.fakes.rpc.server import NoRounds

WALL_MS = 1_790_000_000_000
"""A time of today, which deadlines are measured from."""
LARGE = Resources(1_024, 2**31, 2**40)
CATALOG = tuple(
    Offering(InstanceType(f"{name}.1", Family(name), LARGE), Price(price))
    for name, price in (("fast", 3_060_000), ("slow", 10**12))
)
MOST = 2**63 - 1
HUGE = 999_999_999_999_999
DURATIONS = ("1ms", "1s", "1d", "3660d", "0s", "9223372036854775807ms", f"{HUGE}ms", f"{HUGE}d")
COUNTS = (0, 1, 2, 1_000, 10_000, 10**6, 10**12, 10**15, 2**31, 2**32, MOST, -1, -MOST)
DOLLARS = ("$0", "$0.000001", "$1000000", "$1000000.01", "$1000000000", f"${HUGE}")
RATES = (1e-300, 1e-9, 1.0, 1e9, 1e300, float("inf"), float("nan"))
MOMENTS = tuple(
    f"{day}{offset}"
    for day in ("9999-12-31T23:59:59", "9999-12-30T00:00:00", "0001-01-01T00:00:00")
    for offset in ("Z", "-14:00", "+14:00", "-23:59", "+23:59")
)
EDGES: dict[str, list[Any]] = {
    "name": ["a", "Z" * 63, "a.-_" + "9" * 59, "1" * 63],
    "workload": ["ü" * 100, "\N{MATHEMATICAL DOUBLE-STRUCK CAPITAL W}" * 50, "w" * 200, "w[9]"],
    "resources": [
        {"gpus": gpus, "cpus": cpus, "memory": memory}
        for gpus in (0, 1_024)
        for cpus in (0.001, 1_000_000)
        for memory in ("1MiB", "1048576TiB", "1024TiB")
    ],
    "throughput": [*RATES, *({"fast": it, "slow": 1.0} for it in RATES)],
    "total_steps": list(COUNTS),
    "duration": list(DURATIONS),
    "tasks": [2, 12, [{"name": "a" * 63}, {"name": "b"}], {"least": 1, "most": 12}],
    "kind": ["array"],
    "batch_size": list(COUNTS),
    "retries": list(COUNTS),
    "priority": list(COUNTS),
    "grace_period": list(DURATIONS),
    "spot_wait": list(DURATIONS),
    "checkpoint_interval": list(DURATIONS),
    "max_duration": list(DURATIONS),
    "spot": ["allowed"],
    "deadline": [*MOMENTS, *({"within": it} for it in DURATIONS)],
    "delays": [{"checkpoint": it, "launch": it} for it in DURATIONS],
    "value": [
        *({"worth": worth, "loses": f"{loses}/h"} for worth in DOLLARS for loses in DOLLARS),
        *({"worth": worth, "halves": halves} for worth in DOLLARS for halves in DURATIONS),
    ],
    "dag": ["ü" * 100],
    "ps": [{"minibatch": it, "update": it, "gradient": "1024TiB"} for it in DURATIONS],
    "envs": [{"A": "ü" * 1_000}],
    "retry_on": [["1-255"]],
}
"""For each key of a job file the figures at which sums, products and dates might break."""
BARE = {"name": "j", "run": "true", "resources": {"cpus": 1, "memory": "1MiB"}}
SETTINGS = Settings(round_gap_ms=0, price_limit_ppm=None)
RULES = TenantRules({"vision": ("m*",)})


def watcher() -> UserToken:
    return UserToken("t", "me", Role.VIEWER, "", Millis(0))


def shown(model: ReadModel, now: Millis) -> list[bytes]:
    """Every message about the cluster and its jobs, as it goes over the wire."""
    archive = LoadedArchive(Changes)
    told = [
        views.cluster(model, now, list(model.live.values()), name="c", policy="p", version="0"),
        costs.bill(model, now),
        tenants.response(model, RULES, now),
        partition_messages.response(model, watcher(), now),
        learned.view(model, None, now),
        learned.view(model, voice_of_owner("me", "vision"), now),
        learned.times(model, "me", now),
        *(
            share
            for by in ("owner", "type", "workload", "label:team", "day", "job")
            for share in costs.cost_shares(divided_bill(model, CostSplit.of(by), now))
        ),
    ]
    for name in model.jobs:
        record = model.record(name, now)
        told += [views.job(model, record, now), costs.job_cost(record)]
        subject = explain.find(model, archive, "me", name, now)
        told.append(explain.explain(NoRounds(), subject, now, reasons.machines(model)))
    told += [views.instance(model, it) for it in model.instances.values()]
    return [message.SerializeToString() for message in told]


def scraped(model: ReadModel, now: Millis) -> bytes:
    """The figures for Prometheus."""
    figures = metrics._figures(model, now, plans_long=False)

    class Figures:
        def collect(self) -> list[Any]:
            parts = (metrics._states, metrics._money, metrics._partitions)
            return [
                *(metric for part in parts for metric in part(figures)),
                *(metric for part in METRICS for metric in part(model, now)),
            ]

    registry = CollectorRegistry()
    registry.register(Figures())  # type: ignore[arg-type]
    return generate_latest(registry)


def previewed(model: ReadModel, spec: JobSpec, now: Millis) -> bytes:
    """The answer to `eva plan`."""
    preview = model.preview(spec, now)
    if preview.refused is not None:
        return b""
    plan = None
    if preview.question is not None:
        policy = POLICY.build(POLICY.config())
        plan = policy.plan(preview.question, preview.memory)[0]
    foreseen = preview.foreseen(plan)
    return views.plan(foreseen, sum(model.reservation_prices(spec))).SerializeToString()


def parsed(file: dict[str, Any]) -> JobSpec:
    """The job of a file; raises `EvaError`."""
    return parse_job(
        json.dumps(file), file_name="f", owner="me", catalog=CATALOG, workdir=None, tenant="vision"
    )


class Walk:
    """A master that is looked at in every way whenever something has happened.

    Args:
        directory: For its journal.
    """

    def __init__(self, directory: Path) -> None:
        self.cluster = Cluster(State(CATALOG), SETTINGS)
        self.publisher = Publisher(self.cluster.state, SETTINGS)
        self.journal = SqlJournal.open(f"sqlite:///{directory / 'journal.db'}")
        self.policy = POLICY.build(POLICY.config())
        self.now = WALL_MS

    def look(self) -> None:
        self.journal.commit(self.cluster.state.take_changes())
        model = self.publisher.publish(Millis(self.now))
        for later in (0, 10**12):
            shown(model, Millis(self.now + later))
            scraped(model, Millis(self.now + later))

    def submit(self, spec: JobSpec) -> None:
        previewed(self.publisher.publish(Millis(self.now)), spec, Millis(self.now))
        self.cluster.handle(JobSubmitted("c", spec), at=self.now)
        self.look()

    def plan(self) -> None:
        for _ in range(3):
            request, self.cluster.request = self.cluster.request, None
            if request is None:
                return
            plan, memory = self.policy.plan(request.snapshot, request.memory)
            self.cluster.handle(PlanReady(request.round, plan, memory), at=self.now)

    def run(self) -> None:
        """Have its instances come up, and its tasks run and report as much as they can."""
        for instance in sorted(self.cluster.state.instances):
            self.cluster.sessions += 1
            up = InstanceUp(instance, Millis(self.now))
            registered = WorkerRegistered(instance, self.cluster.sessions, LARGE, ())
            for action in self.cluster.handle(up, registered, at=self.now):
                if isinstance(action, StartTask):
                    command(action).SerializeToString()
        runs = [it.id for it in self.cluster.state.runs.values() if it.instance is not None]
        for run in runs[:8]:
            self.cluster.say(run, Phase.RUNNING, at=self.now)
            self.cluster.progress(MOST, at=self.now + 2_000, total=MOST, run=run)
        self.now += 20_000
        self.look()
        for run in runs[:8]:
            self.cluster.say(run, Phase.EXITED, at=self.now, exit_code=0)
        self.look()

    def restart(self) -> None:
        state = State.restored(CATALOG, self.journal.load())
        model = Publisher(state, SETTINGS).publish(Millis(self.now))
        shown(model, Millis(self.now))


def is_accepted(file: dict[str, Any]) -> bool:
    try:
        parsed(file)
    except EvaError:
        return False
    return True


def walked(file: dict[str, Any]) -> None:
    """Do all that happens to a job, and look at everything in between."""
    spec = parsed(file)
    with TemporaryDirectory() as directory:
        walk = Walk(Path(directory))
        try:
            walk.submit(spec)
            walk.plan()
            walk.run()
            walk.restart()
        finally:
            walk.journal.close()


@pytest.mark.parametrize("key", EDGES)
def test_no_view_breaks_over_an_extreme_figure_that_was_accepted(key: str) -> None:
    accepted = [it for it in EDGES[key] if is_accepted({**BARE, key: it})]
    assert accepted, "nothing of it is tried"
    for value in accepted:
        walked({**BARE, key: value})


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    """Files with several keys at their edges, each accepted by itself."""
    keys = draw(st.sets(st.sampled_from(sorted(EDGES)), min_size=2, max_size=6))
    chosen = {key: draw(st.sampled_from(EDGES[key])) for key in sorted(keys)}
    return {**BARE, **{key: it for key, it in chosen.items() if is_accepted({**BARE, key: it})}}


@drawn(30, suppress_health_check=list(HealthCheck))
@given(file=files().filter(is_accepted))
def test_no_view_breaks_over_several_extreme_figures(file: dict[str, Any]) -> None:
    walked(file)
