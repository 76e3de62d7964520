"""Explanations, from a policy's plan over the journal, gRPC and the command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_master.adapters.store import SqlJournal
from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import RequestPlan
from eva_master.model.catalog import Purchase
from eva_master.model.changes import Changes, Round
from eva_master.model.events import Event, JobSubmitted, PlanReady
from eva_master.model.fleet.forking import Forking
from eva_master.model.fleet.partitions import WHOLE, Partition, Partitions
from eva_master.model.job import ForkRules
from eva_master.model.planning.plan import Hold
from eva_master.model.planning.reasons import Exchange, Hosting, Move, Occupant, Reasons
from eva_master.policies import eva, no_packing
from eva_policies import hadar
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, RunId
from eva_wire.values.users import Role
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.server import CATALOG, JOB_YAML, RpcMaster, add_instance, add_job, rpc_master
from tests.fakes.rpc.server import spec as job_spec
from tests.fakes.snapshots import Cluster, offer, task

POLICY = eva.POLICY.build(eva.POLICY.config())


@dataclass
class Site:
    """A server, its journal, and the command as a viewer."""

    master: RpcMaster
    journal: SqlJournal
    environment: dict[str, str]

    async def eva(self, *arguments: str) -> Result:
        """Run the command."""
        runner = CliRunner(env=self.environment)
        return await asyncio.to_thread(runner.invoke, main, list(arguments))

    async def told(self, *arguments: str) -> str:
        """What the command prints."""
        result = await self.eva(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    async def adopt(self, state: State, changes: Changes) -> None:
        """Let the server answer from a state, and the journal have what changed."""
        await asyncio.to_thread(self.journal.commit, changes)

        def take(served: State) -> None:
            for instance in state.instances.values():
                served.put_instance(instance)
            for job in state.jobs.values():
                served.put_job(job)
            for run in state.runs.values():
                served.put_run(run)

        await self.master.loop.change(take)


@pytest.fixture
async def site(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    parts = getattr(request, "param", WHOLE)
    with SqlJournal.open(f"sqlite:///{tmp_path}/journal.db") as journal:
        async with rpc_master(tmp_path, history=journal, policy=POLICY, partitions=parts) as master:
            environment = {
                "EVA_ADDRESS": f"127.0.0.1:{master.ports.users}",
                "EVA_CA_FILE": str(authority().ca_file),
                "EVA_TOKEN": master.tokens.create("ada", Role.VIEWER)[1],
                "XDG_CONFIG_HOME": str(tmp_path),
            }
            yield Site(master, journal, environment)


def planned(machine: Machine, now: int, *events: Event, policy: Callable = POLICY.plan) -> Changes:
    """Have the machine hear something, and its policy answer."""
    for action in machine.handle(list(events), Millis(now)):
        if isinstance(action, RequestPlan):
            plan, memory = policy(action.snapshot, action.memory)
            machine.handle([PlanReady(action.round, plan, memory)], Millis(now + 20))
    return machine.take_changes()


def two_jobs(policy: Callable = POLICY.plan) -> tuple[State, Changes]:
    """A cluster after its first round: two jobs of one task that fit on one instance."""
    state = State(CATALOG)
    jobs = [JobSubmitted(f"c{name}", job_spec(name)) for name in ("one", "two")]
    return state, planned(Machine(state, Settings()), 1000, *jobs, policy=policy)


async def test_a_job_is_told_what_its_instance_is_worth(site: Site) -> None:
    await site.adopt(*two_jobs())
    text = await site.told("explain", "one")
    # Two tasks that cost $0.08925 alone, each at 95%, on an instance of that price.
    assert "one-1 is pending" in text
    assert "i00001 (c7i.large): worth $0.1696/h, costs $0.0892/h" in text
    assert "saves $0.0803/h against one instance per task" in text
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if "95%" in line}
    assert rows == {
        "one-1/0": ["$0.0892/h", "95%", "$0.0848/h", "$0.0446/h"],
        "two-2/0": ["$0.0892/h", "95%", "$0.0848/h", "$0.0446/h"],
    }
    assert "(round 1)" in text
    answer = json.loads(await site.told("explain", "one", "--json"))
    (instance,) = answer["instances"]
    assert (answer["kind"], answer["job"]["id"], answer["round"]) == ("job", "one-1", 1)
    assert instance["price_micro_usd_per_hour"] == 89_250
    assert instance["value_micro_usd_per_hour"] == 169_575
    assert [task["value_micro_usd_per_hour"] for task in instance["tasks"]] == [84_788, 84_788]
    shares = [task["share_micro_usd_per_hour"] for task in instance["tasks"]]
    assert shares == [44_625, 44_625]


async def test_an_instance_is_told_the_same(site: Site) -> None:
    await site.adopt(*two_jobs())
    text = await site.told("explain", "i00001")
    assert "worth $0.1696/h, costs $0.0892/h" in text
    assert "two-2/0" in text
    assert "pending" not in text


async def test_a_round_is_told_with_what_it_weighed(site: Site) -> None:
    await site.adopt(*two_jobs())
    newest = await site.told("explain")
    assert newest == await site.told("explain", "1")
    assert "chosen: keep what runs" in newest
    assert "the plan costs $0.0982/h, slowdowns included" in newest
    assert "2 tasks of 1 kind on 1 instance; optimizer auto" in newest
    weighing = json.loads(await site.told("explain", "--json"))["weighing"]
    (keep,) = weighing["alternatives"]
    assert (keep["kind"], keep["savings_micro_usd_per_hour"]) == ("keep", 80_325)
    assert weighing["lower_bound_micro_usd_per_hour"] <= weighing["cost_micro_usd_per_hour"]


async def test_without_packing_there_are_reasons_too(site: Site) -> None:
    policy = no_packing.POLICY.build(no_packing.POLICY.config())
    await site.adopt(*two_jobs(policy.plan))
    text = await site.told("explain", "two")
    assert "i00002 (c7i.large): worth $0.0892/h, costs $0.0892/h; worth its price" in text
    assert "one-1/0" not in text


async def test_a_task_that_waits_is_told_why(site: Site) -> None:
    state = State(tuple(replace(offering, limit=0) for offering in CATALOG))
    changes = planned(Machine(state, Settings()), 1000, JobSubmitted("c", job_spec("one", tasks=1)))
    await site.adopt(state, changes)
    text = await site.told("explain", "one")
    assert "one-1/0 waits: limit of c7i.large@local/on-demand" in text
    assert "worth" not in text


def moved(state: State) -> None:
    """A job that was moved from one instance to another."""
    add_instance(state, "i-1")
    place = add_instance(state, "i-2")
    job = add_job(state, job_spec("one"))
    run = next(state.members(job))
    state.put_run(replace(run, target=place, moves=1))


async def test_a_move_is_told_from_the_round_that_made_it(site: Site) -> None:
    occupants = (Occupant(RunId("one-1/0"), 89_250, 1_000_000, 89_250),)
    here = Hosting(InstanceId("i-2"), "c7i.large", 89_250, 89_250, occupants)
    move = Move(RunId("one-1/0"), InstanceId("i-1"), InstanceId("i-2"), 3_000)
    away = Exchange((move,), 90_000, 4_500)
    rounds = tuple(
        Round(number, Millis(number * 1000), 1, 0, 0, {}, Reasons((here,), exchanges))
        for number, exchanges in ((2, (away,)), (3, ()))
    )
    await asyncio.to_thread(site.journal.commit, Changes(rounds=rounds))
    await site.master.loop.change(moved)
    for subject in ("one", "i-1"):
        text = await site.told("explain", subject)
        assert "moved by round 2" in text
        assert "one-1/0 from i-1 to i-2: saves $0.09/h, costs $0.004500 once" in text
        assert "pays for itself after 3m 0s" in text
    assert "(round 3)" in await site.told("explain", "one")
    answer = await site.master.cluster.Explain(pb.ExplainRequest(subject="one-1"))
    assert (answer.round, answer.moved_in_round) == (3, 2)
    assert answer.exchanges[0].break_even_ms == 180_000


@pytest.mark.parametrize("subject", ["nothing", "7", ""])
async def test_what_is_not_there_is_told(site: Site, subject: str) -> None:
    result = await site.eva("explain", *[subject] if subject else [])
    assert result.exit_code == 1
    assert "hint:" in result.stderr
    assert subject in result.stderr


async def test_a_preview_gives_the_same_reasons_and_changes_nothing(
    site: Site, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB_YAML.format(name="resnet") + "tasks: 2\n")
    answer = json.loads(await site.told("plan", str(file), "--json"))
    (instance,) = answer["instances"]
    assert instance["instance"] is None
    # Members of one gang: each charges the slowdown of both.
    assert instance["value_micro_usd_per_hour"] == round(2 * 89_250 - 2 * 0.05 * 2 * 89_250)
    assert answer["exchanges"] == []
    text = await site.told("plan", str(file))
    assert "a new c7i.large: worth $0.1606/h, costs $0.0892/h" in text
    assert await asyncio.to_thread(site.journal.explained) is None
    assert await site.master.loop.gateway.read(lambda state: list(state.jobs)) == []


async def test_a_job_that_waits_for_its_turn_in_a_fleet_is_told_when_and_what_types_are_worth(
    site: Site,
) -> None:
    # Of three jobs of an hour each, two machines, of which one is half as fast, have room for two.
    fast = replace(offer("fast.1", (0, 1, 1), 1, family="fast", limit=1), purchase=Purchase.OWNED)
    slow = replace(offer("slow.1", (0, 1, 1), 1, family="slow", limit=1), purchase=Purchase.OWNED)
    rates = ((Family("fast"), 2_000_000), (Family("slow"), 1_000_000))
    kind = replace(task("w", fast=(0, 1, 1), slow=(0, 1, 1)), throughput=rates)
    fleet = Cluster(fast, slow).instance("n1", "fast.1").instance("n2", "slow.1")
    for name in ("one-1", "two-2", "three-3"):
        fleet.job(name, kind, left_s=3_600)
    plan, _ = hadar.POLICY.build(hadar.POLICY.config()).plan(fleet.snapshot(), None)
    (held,) = (entry for entry in plan.entries if isinstance(entry, Hold))
    assert "its turn is expected within" in held.reason
    state = State((fast, slow))
    for name in ("one", "two", "three"):
        add_job(state, job_spec(name))
    for name, offering in (("n1", fast), ("n2", slow)):
        add_instance(state, name, offering)
    name = held.run.partition("-")[0]
    state.explain(next(state.members(JobId(held.run.partition("/")[0]))), held.reason)
    state.put_round(Round(1, Millis(1000), 20, 0, 0, plan.figures, plan.reasons))
    await site.adopt(state, state.take_changes())
    text = await site.told("explain", name)
    assert f"{held.run} waits: {held.reason}" in text
    # What the slow one does in an hour, the fast one does in half of it.
    assert "worth of a GPU by type: fast 1, slow 0.5 (round 1)" in text
    newest = await site.told("explain", "--round")
    # Both do one and a half of the three hours of work of the fast one in an hour.
    assert "nobody could be done with everything in less than 2h 0m" in newest
    assert "if nothing else arrives it is expected to take" in newest
    told = json.loads(await site.told("explain", "--json"))["fleet"]
    assert [(it["type"], it["machines"]) for it in told["types"]] == [("fast", 1), ("slow", 1)]
    assert told["types"][0]["worth"] == pytest.approx(2 / 3, abs=0.01)


@pytest.mark.parametrize(
    "site", [Partitions(whole=Partition(default=True, forking=Forking(360_000)))], indirect=True
)
async def test_where_all_jobs_are_forked_one_that_is_not_is_told_why(site: Site) -> None:
    state = State(CATALOG)
    add_job(state, job_spec("plain"))
    add_job(
        state, replace(job_spec("forked"), kind=JobKind.ARRAY, forking=ForkRules(3), total_steps=9)
    )
    await site.adopt(state, state.take_changes())
    assert "it is not forked" in await site.told("explain", "plain")
    assert "not forked" not in await site.told("explain", "forked")
