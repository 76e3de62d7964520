"""Jobs that run after others, as users submit them over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_master.control.state.store import State
from eva_master.model.job import JobOutputs
from eva_master.model.records import Ended, Outcome
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto import worker_pb2 as wpb
from eva_wire._proto.api_pb2_grpc import JobsStub
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import InvalidJob
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import JobState
from eva_wire.values.users import Role
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.server import JOB_YAML, RpcMaster, add_job, refusal, rpc_master, spec
from tests.integration.rpc.test_rpc_loop import (
    ObedientCloud,
    launched,
    master,
    until_body,
    until_state,
)

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def yaml(name: str, *after: str) -> str:
    return JOB_YAML.format(name=name) + f"after: [{', '.join(after)}]\n"


def submission(name: str, *after: str, **more: object) -> pb.SubmitRequest:
    return pb.SubmitRequest(job_yaml=yaml(name, *after), file_name=f"{name}.yaml", **more)


def ended(state: State, name: JobId, how: JobState = JobState.SUCCEEDED) -> None:
    job = state.jobs[name].to(JobState.ENDING, Millis(2_000)).to(how, Millis(2_000))
    state.put_job(replace(job, outcome=Outcome(how.value)))


@pytest.fixture
async def scripted(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


async def test_names_mean_the_callers_newest_job_and_ids_are_taken_as_they_are(
    scripted: RpcMaster,
) -> None:
    def jobs(state: State) -> None:
        ended(state, add_job(state, spec("prep")))
        add_job(state, spec("prep"))
        ended(state, add_job(state, spec("fetch")), JobState.FAILED)
        ended(state, add_job(state, spec("fetch")))
        ended(state, add_job(state, spec("old")))
        add_job(state, spec("prep", owner="bob"))

    await scripted.loop.change(jobs)
    # What the loop has forgotten is found in the journal.
    await scripted.loop.change(lambda state: state._forget_job(JobId("old-5")))
    names = ("prep", "prep-1", "fetch", "fetch-3", "old", "prep-2")
    await scripted.jobs.Submit(submission("train", *names))
    command = scripted.loop.commands[-1]
    assert command.spec.stage.depends_on == ("prep-2", "prep-1", "fetch-4", "fetch-3", "old-5")
    assert {(end.job, end.outcome.value) for end in command.ended} == {
        ("prep-1", "succeeded"),
        ("fetch-4", "succeeded"),
        ("fetch-3", "failed"),
        ("old-5", "succeeded"),
    }


async def test_a_name_that_several_active_jobs_have_is_refused_with_their_ids(
    scripted: RpcMaster,
) -> None:
    def jobs(state: State) -> None:
        add_job(state, spec("prep"))
        add_job(state, spec("prep"))
        ended(state, add_job(state, spec("prep")))
        add_job(state, spec("one"))
        ended(state, add_job(state, spec("one")))

    await scripted.loop.change(jobs)
    status, error = await refusal(scripted.jobs.Submit(submission("train", "one", "prep")))
    assert status is INVALID
    (problem,) = error.problems
    assert problem.line == 4
    assert "prep-2, prep-1" in problem.message
    assert "prep-3" not in problem.message
    assert scripted.loop.commands == []
    # The only active one is meant, though one that ended is newer; and ids tell them apart.
    await scripted.jobs.Submit(submission("train", "one", "prep-1"))
    assert scripted.loop.commands[-1].spec.stage.depends_on == ("one-4", "prep-1")
    # A job that was just submitted is known by its id, whatever else has its name.
    await scripted.jobs.Submit(submission("train", "prep", after_ids={"prep": "prep-2"}))
    assert scripted.loop.commands[-1].spec.stage.depends_on == ("prep-2",)


def reading(text: str, **more: object) -> pb.SubmitRequest:
    yaml = JOB_YAML.format(name="reader") + f"storage: {{inputs: {{data: {text}}}}}\n"
    return pb.SubmitRequest(job_yaml=yaml, file_name="reader.yaml", **more)


async def test_outputs_of_own_jobs_are_inputs_however_long_ago_they_ended(
    scripted: RpcMaster,
) -> None:
    def jobs(state: State) -> None:
        add_job(state, spec("prep"))
        ended(state, add_job(state, spec("sweep", tasks=3, kind=JobKind.ARRAY)))
        ended(state, add_job(state, spec("old", tasks=3, kind=JobKind.ARRAY)))

    await scripted.loop.change(jobs)
    await scripted.loop.change(lambda state: state._forget_job(JobId("old-3")))
    for text, given, outputs in (
        ("job:prep/outputs/x", {}, JobOutputs("data", JobId("prep-1"), path="x")),
        ("job:sweep/2/outputs", {}, JobOutputs("data", JobId("sweep-2"), index=2)),
        ("job:old/outputs", {}, JobOutputs("data", JobId("old-3"), tasks=3)),
        ("job:here/1/outputs", {"here": "sweep-2"}, JobOutputs("data", JobId("sweep-2"), index=1)),
    ):
        await scripted.jobs.Submit(reading(text, after_ids=given))
        command = scripted.loop.commands[-1]
        assert command.spec.stage.depends_on == (outputs.job,)
        assert command.spec.tasks[0].program.outputs == (outputs,)
        assert [end.job for end in command.ended] == [outputs.job][: outputs.job != "prep-1"]
    for text in ("job:sweep/3/outputs", "job:old/3/outputs"):
        status, error = await refusal(scripted.jobs.Submit(reading(text)))
        assert (status, type(error)) == (INVALID, InvalidJob)
        assert "has no task '3'" in error.problems[0].message


@pytest.mark.parametrize("role", [Role.USER, Role.OPERATOR])
async def test_nobody_reads_the_outputs_of_others(scripted: RpcMaster, role: Role) -> None:
    def theirs(state: State) -> None:
        add_job(state, spec("secret", owner="bob"))
        ended(state, add_job(state, spec("gone", owner="bob")))

    await scripted.loop.change(theirs)
    await scripted.loop.change(lambda state: state._forget_job(JobId("gone-2")))
    ann = JobsStub(scripted.channel_of("ann", role))
    told = set()
    for reference in ("secret-1", "secret", "gone-2", "gone", "absent-7"):
        for request in (
            reading(f"job:{reference}/outputs"),
            reading("job:x/outputs", after_ids={"x": reference}),
        ):
            status, error = await refusal(ann.Submit(request))
            assert (status, type(error)) == (INVALID, InvalidJob)
            (problem,) = error.problems
            told.add((problem.message.replace(reference, "x"), problem.hint))
    assert len(told) == 1
    assert scripted.loop.commands == []


@pytest.mark.parametrize(
    ("run", "told"),
    [
        ("echo x > $EVA_STORAGE/shared/x", True),
        ('echo x > "${EVA_STORAGE}"/shared', True),
        ("""python -c 'os.path.join(os.environ["EVA_STORAGE"], "shared")'""", True),
        ("echo x > $EVA_STORAGE/outputs/shared", False),
        ("cat $EVA_STORAGE/inputs/x /mnt/shared", False),
        ("echo $EVA_STORAGE/sharedness", False),
    ],
)
async def test_a_directory_that_no_instance_shares_is_told_at_the_submission(
    scripted: RpcMaster, run: str, told: bool
) -> None:
    yaml = f"name: a\nresources: {{cpus: 1, memory: 1GiB}}\nrun: |\n  {run}\n"
    answer = await scripted.jobs.Submit(pb.SubmitRequest(job_yaml=yaml))
    assert ["$EVA_STORAGE/shared" in note for note in answer.notes] == [True] * told


@pytest.mark.parametrize("forgotten", [False, True])
async def test_jobs_of_others_and_jobs_that_are_none_are_told_in_the_same_words(
    scripted: RpcMaster, forgotten: bool
) -> None:
    def theirs(state: State) -> None:
        ended(state, add_job(state, spec("secret", owner="bob")))

    await scripted.loop.change(theirs)
    if forgotten:
        await scripted.loop.change(lambda state: state._forget_job(JobId("secret-1")))
    ann = JobsStub(scripted.channel_of("ann", Role.USER))
    # Nor may an operator have a job of theirs wait for one of somebody else.
    for stub in (ann, scripted.jobs):
        told = []
        for reference in ("secret-1", "absent-1", "secret", "absent"):
            for request in (
                submission("mine", "x", after_ids={"x": reference}),
                submission("mine", reference),
            ):
                status, error = await refusal(stub.Submit(request))
                assert (status, type(error)) == (INVALID, InvalidJob)
                (problem,) = error.problems
                assert (problem.key, problem.line, problem.column) == ("after[0]", 4, 9)
                told.append((problem.message.replace(reference, "J"), problem.hint))
        assert len({words.replace("'x'", "'J'") for words, _ in told}) == 1
        assert len({hint for _, hint in told}) == 1
    assert scripted.loop.commands == []


@pytest.mark.parametrize("value", ["x" * 1_001, "a\0b"])
async def test_what_names_are_to_mean_is_checked_like_names(
    scripted: RpcMaster, value: str
) -> None:
    status, error = await refusal(
        scripted.jobs.Submit(submission("mine", "x", after_ids={"x": value}))
    )
    assert status is INVALID
    assert "after_ids" in error.message


async def test_a_job_of_mine_with_the_name_of_an_id_of_somebody_else_is_mine(
    scripted: RpcMaster,
) -> None:
    def jobs(state: State) -> None:
        add_job(state, spec("prep", owner="bob"))
        add_job(state, spec("prep-1"))

    await scripted.loop.change(jobs)
    await scripted.jobs.Submit(submission("train", "prep-1"))
    assert scripted.loop.commands[-1].spec.stage.depends_on == ("prep-1-2",)


async def test_a_check_changes_nothing_and_knows_those_that_come(scripted: RpcMaster) -> None:
    request = pb.CheckRequest(job_yaml=yaml("train", "prep", "other"), file_name="t.yaml")
    _, error = await refusal(scripted.jobs.Check(request))
    assert [problem.key for problem in error.problems] == ["after[0]", "after[1]"]
    request.coming.extend(["prep", "other"])
    await scripted.jobs.Check(request)
    assert scripted.loop.commands == []


async def test_a_preview_asks_for_no_other_job(scripted: RpcMaster) -> None:
    answer = await scripted.jobs.Plan(pb.PlanRequest(job_yaml=yaml("train", "absent")))
    assert len(answer.placements) == 1


class Worker:
    """An agent of a cluster, whose tasks do as they are told."""

    def __init__(self, running: RpcMaster, cloud: ObedientCloud) -> None:
        self._running = running
        self._cloud = cloud

    async def work(self, job: str, phase: wpb.Phase, **more: object) -> wpb.TaskOrder:
        """Take a job's only task, and end it; returns the order."""
        instance = await launched(self._cloud)
        agent = await self._running.agent(instance)
        order = (await until_body(agent, "start")).start.order
        assert order.run_id == f"{job}/0"
        for one, details in ((wpb.PHASE_RUNNING, {}), (phase, more)):
            report = wpb.TaskReport(
                run_id=order.run_id, attempt=order.attempt, phase=one, **details
            )
            await agent.say(reports=wpb.Reports(tasks=[report]))
        watch = self._running.jobs.Watch(pb.WatchRequest(jobs=[job]))
        async with asyncio.timeout(DEADLINE_S):
            while (await watch.read()).state not in ("succeeded", "failed"):
                pass  # The instance may stay for the job that comes next.
        watch.cancel()
        return order


@asynccontextmanager
async def real(
    tmp_path: Path, journal: MemoryJournal, cloud: ObedientCloud
) -> AsyncIterator[RpcMaster]:
    async with master(tmp_path, journal, cloud) as running:
        yield running


async def test_a_chain_runs_over_a_restart_of_the_master(tmp_path: Path) -> None:
    journal, cloud = MemoryJournal(), ObedientCloud()
    async with real(tmp_path, journal, cloud) as first:
        prep = pb.SubmitRequest(job_yaml=JOB_YAML.format(name="prep"))
        ids = [(await first.jobs.Submit(prep)).job_id]
        ids += [(await first.jobs.Submit(submission("train", "prep"))).job_id]
        ids += [(await first.jobs.Submit(submission("report", "train", "prep-1"))).job_id]
        assert ids == ["prep-1", "train-2", "report-3"]
        told = await first.jobs.Get(pb.GetJobRequest(job="report"))
        assert list(told.after) == list(told.waits_for) == ["train-2", "prep-1"]
        assert told.state == "pending"
        assert told.tasks[0].waiting_for == "runs after train-2 and 1 other job"
        why = await first.cluster.Explain(pb.ExplainRequest(subject="report"))
        assert list(why.job.waits_for) == ["train-2", "prep-1"]
        await Worker(first, cloud).work("prep-1", wpb.PHASE_EXITED, exit_code=0)
        told = await first.jobs.Get(pb.GetJobRequest(job="report"))
        assert list(told.waits_for) == ["train-2"]
    async with real(tmp_path, journal, cloud) as second:
        await Worker(second, cloud).work("train-2", wpb.PHASE_EXITED, exit_code=0)
        await Worker(second, cloud).work("report-3", wpb.PHASE_EXITED, exit_code=0)
        watch = second.jobs.Watch(pb.WatchRequest(jobs=["report"]))
        over = await until_state(watch, "succeeded")
        assert list(over.after) == ["train-2", "prep-1"]
        assert not over.waits_for


async def test_an_order_names_the_outputs_over_a_restart_of_the_master(tmp_path: Path) -> None:
    """Of the job that was meant at the submission, whatever else is called so by then."""
    journal, cloud = MemoryJournal(), ObedientCloud()
    async with real(tmp_path, journal, cloud) as first:
        prep = pb.SubmitRequest(job_yaml=JOB_YAML.format(name="prep"))
        await first.jobs.Submit(prep)
        await first.jobs.Submit(reading("job:prep/outputs/x"))
        told = await first.jobs.Get(pb.GetJobRequest(job="reader"))
        assert list(told.after) == list(told.waits_for) == ["prep-1"]
        await Worker(first, cloud).work("prep-1", wpb.PHASE_EXITED, exit_code=0)
        await first.jobs.Submit(prep)
        await first.jobs.Cancel(pb.CancelRequest(job="prep"))
    async with real(tmp_path, journal, cloud) as second:
        order = await Worker(second, cloud).work("reader-2", wpb.PHASE_EXITED, exit_code=0)
        assert dict(order.outputs) == {"data": wpb.JobOutputs(job_id="prep-1", path="x")}


async def test_a_job_ends_with_that_whose_outputs_it_reads(tmp_path: Path) -> None:
    async with real(tmp_path, MemoryJournal(), ObedientCloud()) as running:
        await running.jobs.Submit(pb.SubmitRequest(job_yaml=JOB_YAML.format(name="prep")))
        await running.jobs.Submit(reading("job:prep/outputs"))
        await running.jobs.Cancel(pb.CancelRequest(job="prep"))
        watch = running.jobs.Watch(pb.WatchRequest(jobs=["reader"]))
        assert (await until_state(watch, "cancelled")).unmet == "prep-1"
        again = (await running.jobs.Submit(reading("job:prep/outputs"))).job_id
        assert (await running.jobs.Get(pb.GetJobRequest(job=again))).state == "cancelled"


async def test_users_are_told_of_a_dag_before_and_after_a_restart(tmp_path: Path) -> None:
    journal, cloud = MemoryJournal(), ObedientCloud()
    async with real(tmp_path, journal, cloud) as first:
        prep = pb.SubmitRequest(job_yaml=JOB_YAML.format(name="prep"))
        for request in (prep, submission("train", "prep"), submission("report", "train")):
            request.job_yaml += "dag: nightly\n"
            await first.jobs.Submit(request)
        told = (await first.cluster.Explain(pb.ExplainRequest(subject="report"))).dag
        assert (told.label, told.stages, told.ended, told.waiting) == ("nightly", 3, 0, 2)
        await Worker(first, cloud).work("prep-1", wpb.PHASE_EXITED, exit_code=0)
        watch = first.jobs.Watch(pb.WatchRequest(jobs=["train"]))
        async with asyncio.timeout(DEADLINE_S):  # A plan writes what is learned.
            while (await watch.read()).tasks[0].state != "starting":
                pass
    async with real(tmp_path, journal, cloud) as second:
        for job in ("train", "report"):
            told = (await second.cluster.Explain(pb.ExplainRequest(subject=job))).dag
            assert (told.label, told.stages, told.ended, told.waiting) == ("nightly", 3, 1, 1)
        over = await second.cluster.Explain(pb.ExplainRequest(subject="prep"))
        assert not over.HasField("dag")
        assert (await second.jobs.Get(pb.GetJobRequest(job="report"))).dag == "nightly"


async def test_a_cancelled_job_takes_those_after_it_along(tmp_path: Path) -> None:
    async with real(tmp_path, MemoryJournal(), ObedientCloud()) as running:
        await running.jobs.Submit(pb.SubmitRequest(job_yaml=JOB_YAML.format(name="prep")))
        for name, before in (("train", "prep"), ("report", "train")):
            await running.jobs.Submit(submission(name, before))
        await running.jobs.Cancel(pb.CancelRequest(job="prep"))
        watch = running.jobs.Watch(pb.WatchRequest(jobs=["report"]))
        over = await until_state(watch, "cancelled")
        assert over.reason == (
            "train-2, after which it was to run, was cancelled because prep-1 was"
        )
        assert (over.unmet, over.unmet_origin, over.exit_code) == ("train-2", "prep-1", 130)
        assert over.cost_micro_usd == over.no_packing_micro_usd == 0
        # Whoever comes later is told at once.
        late = (await running.jobs.Submit(submission("late", "report"))).job_id
        told = await running.jobs.Get(pb.GetJobRequest(job=late))
        assert (told.state, told.unmet, told.unmet_origin) == ("cancelled", "report-3", "prep-1")


def test_the_end_of_a_job_says_where_it_began() -> None:
    end = Ended(JobId("b-2"), Outcome.FAILED, JobId("a-1"))
    assert end.words == "b-2, after which it was to run, failed because a-1 did"
