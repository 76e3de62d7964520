"""The commands that read, against a real server with canned answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_client.cli.views import tables
from eva_client.cli.views.words import money
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.durations import span
from eva_wire.values.errors import EvaError, NotAuthorised, NotFound
from tests.fakes.rpc.api import TOKEN, FakeApi, sample_bill, sample_jobs, sample_plan, sample_state

Run = Callable[..., Result]

JOB = "name: a\nrun: x\nresources: {cpus: 1, memory: 1GiB}\n"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi(
        jobs=sample_jobs(), state=sample_state(), bill=sample_bill(), plan=sample_plan()
    ) as api:
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path)

    def run(*arguments: str, **options: object) -> Result:
        return CliRunner().invoke(main, list(arguments), **options)

    return run


def read(result: Result) -> object:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_ls_lists_active_jobs(eva: Run, api: FakeApi) -> None:
    result = eva("ls")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == [
        *("JOB", "OWNER", "STATE", "TASKS", "WHERE", "PROGRESS", "ETA", "COST", "ALONE", "AGE"),
        "NOTE",
    ]
    running = next(line for line in lines if "resnet18-3" in line)
    assert running.split()[:9] == [
        *("resnet18-3", "ana", "running", "1/2", "i-1", "60%", "-", "$1.23", "$2.00")
    ]
    assert "p3.2xlarge sold out" in result.stdout
    assert "resnet18-2" not in result.stdout
    assert api.of("List")[0].metadata["authorization"] == f"Bearer {TOKEN}"


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("known", "shown"),
    [
        ({}, "-"),
        ({"remaining_ms": 2 * HOUR_MS}, "(2h 0m)"),
        ({"remaining_ms": 2 * HOUR_MS, "remaining_estimated": True}, "(~2h 0m)"),
        ({"remaining_ms": 2 * HOUR_MS, "eta_ms": 9 * HOUR_MS}, "8h 0m"),
        (
            {"remaining_ms": HOUR_MS, "eta_ms": 3 * HOUR_MS, "remaining_estimated": True},
            "~2h 0m",
        ),
        ({"remaining_ms": 0, "eta_ms": HOUR_MS}, "0s"),
    ],
)
def test_the_eta_is_in_a_while_or_the_run_time_that_is_left(known: Any, shown: str) -> None:
    assert tables.eta(pb.Job(**known), HOUR_MS) == shown
    assert tables.eta(pb.Task(**known), HOUR_MS) == shown


def test_ls_and_status_show_what_is_known_of_the_eta(eva: Run, api: FakeApi) -> None:
    api.jobs["resnet18-3"].remaining_ms = 5 * HOUR_MS
    api.jobs["resnet18-3"].tasks[1].remaining_ms = 5 * HOUR_MS
    assert "(5h 0m)" in eva("ls").stdout
    assert "unknown; 5h 0m of standalone run time are left" in eva("status", "resnet18").stdout
    job = read(eva("status", "resnet18", "--json"))
    assert (job["remaining_ms"], job["eta_ms"]) == (5 * HOUR_MS, None)
    assert [task["remaining_ms"] for task in job["tasks"]] == [None, 5 * HOUR_MS]
    api.jobs["resnet18-3"].eta_ms = 4_102_444_800_000  # the year 2100
    assert "d" in next(li for li in eva("status", "resnet18").stdout.splitlines() if "eta " in li)
    assert read(eva("status", "resnet18", "--json"))["eta_ms"] == 4_102_444_800_000


def test_ls_json_reads_every_page(eva: Run, api: FakeApi) -> None:
    api.page_size = 1
    jobs = read(eva("ls", "--all", "--json"))["jobs"]
    assert [job["id"] for job in jobs] == ["resnet18-3", "bert-1", "resnet18-2"]
    assert len(api.of("List")) == 3


def test_a_limit_is_kept_and_said(eva: Run, api: FakeApi) -> None:
    api.page_size = 1
    text = eva("ls", "--all", "--limit", "2").stdout
    assert "resnet18-3" in text
    assert "resnet18-2" not in text
    assert "... and older ones; `--limit 20` shows more of them" in text
    assert "older ones" not in eva("ls", "--all", "--limit", "3").stdout
    jobs = read(eva("ls", "--all", "--json", "-n", "2"))["jobs"]
    assert [job["id"] for job in jobs] == ["resnet18-3", "bert-1"]


def test_ls_of_nothing(eva: Run, api: FakeApi) -> None:
    api.jobs.clear()
    assert "eva ls --all" in eva("ls").stdout
    assert eva("ls", "--all").stdout == "no jobs\n"
    assert read(eva("ls", "--json")) == {"jobs": []}


def test_a_master_that_stands_still_says_why_since_when_and_what_to_do(
    eva: Run, api: FakeApi
) -> None:
    pause = pb.Pause(since_ms=1, reason="journal x: the \x1b[31mdisk is full", hint="make room")
    assert "stands still" not in eva("status").stdout + eva("status", "resnet18").stdout
    assert read(eva("status", "--json"))["pause"] is None
    api.state.pause.CopyFrom(pause)
    for job in api.jobs.values():
        job.pause.CopyFrom(pause)
    for command in (["status"], ["status", "resnet18"], ["ls"], ["nodes"], ["top", "--once"]):
        told = " ".join(eva(*command).stdout.split())
        assert "stands still since" in told, command
        assert "ago, and tasks run on: journal x" in told
        assert "disk is full; make room" in told
        assert "\x1b" not in told
    for command in (["status"], ["status", "resnet18"], ["nodes"]):
        paused = read(eva(*command, "--json"))["pause"]
        assert (paused["since_ms"], paused["hint"]) == (1, "make room")


def test_status_without_a_job_is_of_the_cluster(eva: Run, api: FakeApi) -> None:
    lines = eva("status").stdout.splitlines()
    assert lines[0].split()[:2] == ["cluster", api.state.cluster]
    assert read(eva("status", "--json"))["planning"] is None
    api.state.planning = "slow"
    assert eva("status").stdout.splitlines()[-1].split() == ["planning", "slow"]
    assert read(eva("status", "--json"))["cluster"] == api.state.cluster


def test_status_json_has_the_documented_shape(eva: Run) -> None:
    job = read(eva("status", "resnet18", "--json"))
    assert job.keys() == {
        *("id", "name", "owner", "state", "reason", "priority", "submitted_ms", "started_ms"),
        *("task_count", "tasks_by_state", "waiting_for", "retry_of", "after_ended"),
        *("tenant", "partition", "after", "waits_for", "unmet", "unmet_origin", "dag", "markets"),
        *("finished_ms", "exit_code", "failures", "tasks", "cost_usd", "cost_micro_usd"),
        *("no_packing_usd", "no_packing_micro_usd", "replicas_usd", "replicas_micro_usd"),
        *("eta_earliest_ms", "eta_latest_ms", "estimate", "contradicted_duration", "buying"),
        *("remaining_ms", "remaining_estimated", "eta_ms", "pause", "suspension"),
        *("handed_priority", "handed_by", "labels", "notify", "max_cost_micro_usd"),
    }
    assert (job["cost_usd"], job["cost_micro_usd"]) == (1.234567, 1_234_567)
    assert (job["finished_ms"], job["exit_code"], job["reason"]) == (None, None, None)
    assert job["tasks"][0] == {
        "index": 0,
        "replica": None,
        "why": None,
        "outputs_of": None,
        "not_stored": None,
        "name": None,
        "state": "running",
        "workload": "resnet18-imagenet",
        "instance": "i-1",
        "target": None,
        "waiting_for": None,
        "attempt": 2,
        "moves": 1,
        "failures": 0,
        "reason": None,
        "exit_code": None,
        "checkpoint": 7,
        "steps": 600,
        "total_steps": 1000,
        "steps_per_second": 2.04,
        "normalised_throughput": 0.97,
        "metrics": {"loss": 0.25},
        "pool": None,
        "remaining_ms": None,
        "remaining_estimated": False,
        "eta_ms": None,
        "eta_earliest_ms": None,
        "eta_latest_ms": None,
        "suspension": None,
    }
    assert job["tasks"][1]["target"] == "i-2"


def test_status_tells_everything(eva: Run) -> None:
    text = eva("status", "resnet18-3").stdout
    for part in ("$1.23 ($2.00 on", "600/1,000", "2.04", "0.97", "i-1 -> i-2", "loss=0.25"):
        assert part in text
    failed = eva("status", "resnet18-2").stdout
    for part in ("task 0 exited with 3", "exit code  3", "after 16m 40s"):
        assert part in failed


def test_text_of_others_cannot_drive_the_terminal(eva: Run, api: FakeApi) -> None:
    api.jobs["resnet18-3"].reason = "\x1b[31mred\nline"
    text = eva("status", "resnet18-3").stdout
    assert "\x1b" not in text
    assert "red line" in text


def test_nodes(eva: Run, api: FakeApi) -> None:
    text = eva("nodes").stdout
    for part in ("c7i.8xlarge", "$1.428/h", "59m 50s", "28/32", "resnet18-3/0, resnet18-3/1"):
        assert part in text
    assert "r7i.8xlarge (spot)" in text
    assert "$3.57/h now; one instance per task would be $4.284/h" in text
    assert api.of("Describe")[0].request.all is False


def test_nodes_json(eva: Run, api: FakeApi) -> None:
    api.page_size = 1
    cluster = read(eva("nodes", "--all", "--json"))
    assert [call.request.all for call in api.of("Describe")] == [False, True, True]
    assert cluster["price_usd_per_hour"] == 3.57
    assert cluster["price_micro_usd_per_hour"] == 3_570_000
    first = cluster["instances"][0]
    assert first["used"] == {"gpus": 0, "cpus": 28.0, "memory_mib": 32_768, "disk_mib": 0}
    assert first["tasks"] == ["resnet18-3/0", "resnet18-3/1"]
    assert cluster["instances"][1]["gone_ms"] is None


def test_nodes_tells_of_a_worker_that_is_away(eva: Run, api: FakeApi) -> None:
    api.state.instances[0].connected = False
    assert "its worker is away" in eva("nodes").stdout


def test_no_nodes(eva: Run, api: FakeApi) -> None:
    del api.state.instances[:]
    assert eva("nodes").stdout == "no instances: nothing is being paid for\n"


def test_cost(eva: Run, api: FakeApi) -> None:
    text = eva("cost").stdout
    for part in ("cost $1.50 ($0.2654 idle)", "saved $0.5000 (25%)", "1 migration"):
        assert part in text
    api.bill.no_packing_micro_usd = 1_000_000
    assert "lost $0.5000 (50%)" in eva("cost").stdout


def test_cost_says_that_there_is_more(eva: Run, api: FakeApi) -> None:
    assert "--limit" not in eva("cost").stdout
    api.bill.jobs.append(pb.JobCost(id="old-1", name="old", cost_micro_usd=7))
    api.page_size = 1
    text = eva("cost", "--limit", "1").stdout
    assert "resnet18-3" in text
    assert "old-1" not in text
    assert "the tables have the newest" in text


def test_cost_json_has_every_page(eva: Run, api: FakeApi) -> None:
    api.bill.jobs.append(pb.JobCost(id="old-1", name="old", cost_micro_usd=7))
    api.page_size = 1
    bill = read(eva("cost", "--json"))
    assert [job["id"] for job in bill["jobs"]] == ["resnet18-3", "old-1"]
    assert len(bill["instances"]) == len(api.bill.instances)


def test_cost_json_adds_up(eva: Run) -> None:
    bill = read(eva("cost", "--json"))
    assert bill["saved_micro_usd"] == bill["no_packing_micro_usd"] - bill["cost_micro_usd"]
    assert bill["saved_usd"] == 0.5
    assert bill["jobs"][0]["cost_micro_usd"] == 1_234_567
    assert bill["instances"][0]["billed_ms"] == 3_590_000


def test_plan(eva: Run, api: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    text = eva("plan", str(file)).stdout
    for part in (
        "i-1 (c7i.8xlarge)  resnet18-3/0",
        "a new c7i.2xlarge",
        "waits",
        "the limit of p3.2xlarge",
        "from $1.428/h to $1.785/h (+$0.357/h)",
        "1 task would move",
    ):
        assert part in text
    answer = read(eva("plan", str(file), "--json"))
    assert answer["alone_usd_per_hour"] == 0.714
    assert answer["placements"][2]["waiting_for"] == "the limit of p3.2xlarge"
    assert api.of("Plan")[0].request.job_yaml == JOB
    assert "run time" not in text
    assert answer["estimate"] is None


def test_plan_tells_how_long_a_task_runs_unless_its_file_does(
    eva: Run, api: FakeApi, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    known = {"mean_ms": 60_000, "least_ms": 40_000, "most_ms": 90_000, "source": "history"}
    api.plan.estimate.CopyFrom(pb.RunTimeEstimate(**known))
    told = "run time: ~1m 0s a task, 40s to 1m 30s (68 %), by the owner's earlier"
    assert told in eva("plan", str(file)).stdout
    assert read(eva("plan", str(file), "--json"))["estimate"] == {**known, "tasks": 0}
    api.plan.estimate.source = "stated"
    assert "run time" not in eva("plan", str(file)).stdout


def test_plan_tells_what_the_job_would_be_worth(eva: Run, api: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    assert "worth" not in eva("plan", str(file)).stdout
    assert read(eva("plan", str(file), "--json"))["worth"] is None
    known = pb.JobWorth(at_once_micro_usd=12_000_000, loss_micro_usd_per_hour=3_000_000)
    api.plan.worth.CopyFrom(known)
    told = "worth: $12.00 if it were done at once; waiting loses $3.00/h"
    assert told in eva("plan", str(file)).stdout
    shown = read(eva("plan", str(file), "--json"))["worth"]
    assert (shown["done_usd"], shown["length_ms"], shown["at_once_usd"]) == (None, None, 12)
    api.plan.worth.done_micro_usd, api.plan.worth.length_ms = 6_000_000, 7_200_000
    told = "worth: $6.00 if it is done in 2h 0m; waiting loses $3.00/h"
    assert told in eva("plan", str(file)).stdout
    shown = read(eva("plan", str(file), "--json"))["worth"]
    assert (shown["done_usd"], shown["length_ms"]) == (6, 7_200_000)


def test_top_draws_once_into_a_pipe(eva: Run) -> None:
    text = eva("top").stdout
    for part in ("lab", "policy eva", "resnet18-3/0", "60", "bert-1/0", "saved $0.5000 (25%)"):
        assert part in text
    assert read(eva("top", "--json")).keys() == {"cluster", "jobs", "bill"}


def test_top_is_bounded(eva: Run, api: FakeApi) -> None:
    tasks = [pb.Task(index=index, state="running") for index in range(1000)]
    api.jobs = {"big-1": pb.Job(id="big-1", state="running", tasks=tasks)}
    text = eva("top").stdout
    assert "... and 960 more" in text
    assert len(text.splitlines()) < 80


def test_config_shows_both_sides(eva: Run, api: FakeApi) -> None:
    api.settings = '{"round_period": "5m"}'
    shown = read(eva("config", "--json"))
    assert shown["client"] == {
        "address": api.address,
        "ca_file": api.environment["EVA_CA_FILE"],
        "token": "**********",
        "token_file": None,
        "identity": None,
    }
    assert shown["master"] == {"round_period": "5m"}
    assert "round_period: 5m" in eva("config").stdout


def test_config_without_a_master(eva: Run) -> None:
    result = eva("config", "--json", "--address", "127.0.0.1:1")
    assert read(result)["master"] is None
    assert "no master answers at 127.0.0.1:1" in result.stderr


def test_address_may_stand_before_or_after_the_command(eva: Run, api: FakeApi) -> None:
    for arguments in (["--address", api.address, "ls"], ["ls", "--address", api.address]):
        result = eva(*arguments, env={"EVA_ADDRESS": "127.0.0.1:1"})
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("failure", "code", "message", "hint"),
    [
        (NotFound("no job 'x'", hint="`eva ls` lists them"), 1, "no job 'x'", "eva ls"),
        (NotAuthorised("not yours"), 1, "not yours", ""),
        (EvaError("broken", hint="look"), 1, "broken", "look"),
        (grpc.StatusCode.UNIMPLEMENTED, 1, "does not know this request", "release"),
        (grpc.StatusCode.INTERNAL, 1, "the master failed: scripted", "see its log"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 69, "did not answer in time", "try again"),
    ],
)
def test_errors_of_the_master(
    eva: Run, api: FakeApi, failure: EvaError, code: int, message: str, hint: str
) -> None:
    api.failures["Get"] = [failure]
    result = eva("status", "x")
    assert result.exit_code == code
    assert result.stdout == ""
    assert f"error: {message}" in result.stderr or message in result.stderr
    assert hint in result.stderr


def test_no_master(eva: Run) -> None:
    result = eva("ls", "--address", "127.0.0.1:1")
    assert result.exit_code == 69
    assert "error: no master answers at 127.0.0.1:1" in result.stderr
    assert "hint: start one with `eva up`" in result.stderr


def test_bad_address(eva: Run) -> None:
    result = eva("ls", "--address", "nowhere")
    assert result.exit_code == 2
    assert "--address: 'nowhere' is not an address" in result.stderr
    assert "HOST:PORT" in result.stderr


def test_a_read_is_repeated_when_the_master_restarts(eva: Run, api: FakeApi) -> None:
    api.failures["Get"] = [grpc.StatusCode.UNAVAILABLE]
    assert eva("status", "bert").exit_code == 0
    assert len(api.of("Get")) == 2


@pytest.mark.parametrize(
    ("micro_usd", "text"),
    [
        (0, "$0.00"),
        (43, "$0.000043"),
        (9_999, "$0.009999"),
        (265_433, "$0.2654"),
        (1_234_567, "$1.23"),
        (-1_500_000, "-$1.50"),
        (1_234_567_890_000, "$1,234,567.89"),
    ],
)
def test_money_has_the_digits_that_matter(micro_usd: int, text: str) -> None:
    assert money(micro_usd) == text


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(0, "0s"), (59_999, "59s"), (61_000, "1m 1s"), (7_260_000, "2h 1m"), (90_000_000, "1d 1h")],
)
def test_spans_have_two_units(duration_ms: int, text: str) -> None:
    assert span(duration_ms) == text


def sample_learned() -> pb.Learned:
    now = 1_800_000_000_000
    alone = {"workload": "bert", "family": "p3", "rate": 2.5, "windows": 7}
    beside = {"workload": "bert", "throughput_ppm": 812_345, "windows": 3, "owner": "ana"}
    beside |= {"others": ["resnet18", "resnet18"], "measured_ms": now - 5_000}
    return pb.Learned(
        now_ms=now,
        standalone=[
            pb.StandaloneRate(**alone, measured_ms=now - 90_000),  # type: ignore[arg-type]
            pb.StandaloneRate(workload="resnet18", family="c7i", stated=4.0),
        ],
        interference=[pb.Interference(**beside)],  # type: ignore[arg-type]
        delays=[
            pb.LearnedDelay(
                kind="setup", name="p3.2xlarge", delay_ms=61_400, measurements=2, measured_ms=now
            )
        ],
    )


def test_interference_shows_what_was_learned(eva: Run, api: FakeApi) -> None:
    api.learned = sample_learned()
    lines = [line.split() for line in eva("interference").stdout.splitlines()]
    assert ["bert", "p3", "2.5", "-", "7", "1m", "30s", "ago", "others"] in lines
    assert ["resnet18", "c7i", "-", "4", "0", "-", "others"] in lines
    assert ["bert", "resnet18", "+", "resnet18", "0.812", "3", "5s", "ago", "ana"] in lines
    assert ["setup", "p3.2xlarge", "61.4", "2", "0s", "ago", "-"] in lines


def test_interference_json(eva: Run, api: FakeApi) -> None:
    api.learned = sample_learned()
    shown = read(eva("interference", "--json"))
    assert shown["now_ms"] == api.learned.now_ms
    assert shown["standalone"][1] == {
        "workload": "resnet18",
        "family": "c7i",
        "steps_per_second": None,
        "stated_steps_per_second": 4.0,
        "owner": None,
        "windows": 0,
        "measured_ms": None,
    }
    assert shown["interference"] == [
        {
            "workload": "bert",
            "beside": ["resnet18", "resnet18"],
            "normalised_throughput": 0.812345,
            "owner": "ana",
            "windows": 3,
            "measured_ms": api.learned.now_ms - 5_000,
        }
    ]
    assert shown["delays"] == [
        {
            "kind": "setup",
            "of": "p3.2xlarge",
            "delay_ms": 61_400,
            "owner": None,
            "measurements": 2,
            "measured_ms": api.learned.now_ms,
        }
    ]


def test_estimates_show_what_was_learned(eva: Run, api: FakeApi) -> None:
    now = 10_000_000
    rows = (
        ("workload", "w\x1b"),
        ("owner", ""),
        ("cpus", "1500"),
        ("memory", "2048"),
        ("hour", "7"),
    )
    api.times = pb.LearnedTimes(
        estimates="posterior",
        now_ms=now,
        times=[
            pb.LearnedTime(
                owner="ada",
                feature=feature,
                value=value,
                median_ms=HOUR_MS,
                spread=0.405465,
                spread_within=0.1,
                jobs=3,
                tasks=1_000,
                ended_ms=now - 5_000,
            )
            for feature, value in rows
        ],
    )
    text = eva("estimates", "--owner", "ada").stdout
    assert api.of("Estimates")[0].request.owner == "ada"
    lines = [line.split() for line in text.splitlines()]
    rest = ["1h", "0m", "±50%", "-", "3", "1,000", "5s", "ago"]
    for told in (
        ["workload", "w"],
        ["owner", "all", "jobs"],
        ["cpus", "1.5"],
        ["memory", "2", "GiB"],
    ):
        assert ["ada", *told, *rest] in lines
    assert ["ada", "hour", "07:00", "UTC", *rest] in lines
    first = read(eva("estimates", "--json"))["times"][0]
    assert first == {
        "owner": "ada",
        "feature": "workload",
        "value": "w\x1b",
        "median_ms": HOUR_MS,
        "log_deviation": 0.405465,
        "log_deviation_within_jobs": 0.1,
        "log_error": None,
        "jobs": 3,
        "tasks": 1_000,
        "ended_ms": now - 5_000,
    }


def test_estimates_of_a_young_cluster_and_of_one_that_makes_none(eva: Run, api: FakeApi) -> None:
    assert "no job has ended yet" in eva("estimates").stdout
    api.times = pb.LearnedTimes(estimates="off")
    assert "`estimates` is off" in eva("estimates").stdout


def test_status_and_explain_tell_how_sure_a_run_time_is(eva: Run, api: FakeApi) -> None:
    job, now = api.jobs["resnet18-3"], 4_102_444_800_000
    job.remaining_ms, job.remaining_estimated = HOUR_MS, True
    job.eta_ms, job.eta_earliest_ms, job.eta_latest_ms = now, now - HOUR_MS, now + 2 * HOUR_MS
    job.estimate.CopyFrom(
        pb.RunTimeEstimate(
            mean_ms=HOUR_MS, least_ms=600_000, most_ms=2 * HOUR_MS, source="posterior", tasks=4
        )
    )
    job.contradicted.CopyFrom(
        pb.ContradictedDuration(workload="w\x1b", stated_ms=9 * HOUR_MS, took_ms=[60_000] * 3)
    )
    assert tables.eta(job, now - 5 * HOUR_MS) == "~5h 0m ±1h 30m"
    status = " ".join(eva("status", "resnet18").stdout.split())
    assert ", 68 %), at the present pace" in status
    told = "~1h 0m a task, 10m 0s to 2h 0m (68 %), by 4 finished tasks and the owner"
    doubt = (
        "9h 0m is stated and not believed: the last tasks of workload w took 1m 0s, 1m 0s, 1m 0s"
    )
    api.explanation = pb.Explanation(kind="job", subject="resnet18-3", job=job)
    explained = " ".join(eva("explain", "resnet18").stdout.split())
    for text in (status, explained):
        assert told in text
        assert doubt in text
    shown = read(eva("status", "resnet18", "--json"))
    assert (shown["eta_earliest_ms"], shown["eta_latest_ms"]) == (now - HOUR_MS, now + 2 * HOUR_MS)
    assert shown["estimate"]["source"] == "posterior"
    assert shown["contradicted_duration"]["took_ms"] == [60_000] * 3


def test_interference_of_a_young_cluster(eva: Run) -> None:
    assert eva("interference").stdout == "nothing was measured yet\n"
