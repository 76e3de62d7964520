"""How explanations are written down, against a real server with canned answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from math import log
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_wire._proto import api_pb2 as pb
from tests.fakes.rpc.api import NOW_MS, FakeApi

Run = Callable[..., Result]


def hosting(number: int, **fields: int) -> pb.Hosting:
    """An instance that costs a dollar, with one task."""
    occupant = pb.Occupant(
        task=f"a-1/{number}",
        reservation_micro_usd_per_hour=1_000_000,
        throughput_ppm=912_345,
        value_micro_usd_per_hour=-250_000,
        share_micro_usd_per_hour=1_000_000,
    )
    values = {"price_micro_usd_per_hour": 1_000_000, "value_micro_usd_per_hour": 400_000, **fields}
    return pb.Hosting(instance=f"i-{number}", type="box", occupants=[occupant], **values)


def exchange(moves: int, **fields: int) -> pb.Exchange:
    return pb.Exchange(
        moves=[pb.Move(task=f"b-2/{n}", source="i-1", target="i-2") for n in range(moves)],
        **fields,
    )


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as api:
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path)
    return lambda *arguments: CliRunner().invoke(main, list(arguments))


def of_a_round() -> pb.Explanation:
    """A round that moved tasks on a large cluster."""
    return pb.Explanation(
        kind="round",
        subject="8",
        round=8,
        at_ms=NOW_MS - 60_000,
        now_ms=NOW_MS,
        hostings=[hosting(number) for number in range(23)],
        exchanges=[
            exchange(10, saved_micro_usd_per_hour=2_000_000, cost_micro_usd=500_000),
            exchange(1, saved_micro_usd_per_hour=-300_000, cost_micro_usd=-1, break_even_ms=0),
        ],
        weighing=pb.Weighing(
            chosen="full",
            alternatives=[
                pb.Alternative(kind="keep", savings_micro_usd_per_hour=-1_000_000),
                pb.Alternative(
                    kind="full",
                    savings_micro_usd_per_hour=1_700_000,
                    migration_micro_usd=500_000,
                    moves=11,
                ),
            ],
            horizon_ms=7_200_000,
            events_per_hour=3.25,
            full_share=0.125,
            cost_micro_usd_per_hour=5_000_000,
            tasks=23,
            classes=1,
            instances=23,
            optimizer="greedy",
        ),
    )


def test_a_round_in_words(eva: Run, api: FakeApi) -> None:
    api.explanation = of_a_round()
    result = eva("explain")
    assert result.exit_code == 0, result.output
    text = result.stdout
    assert api.of("Explain")[0].request.subject == ""
    for part in (
        "round 8, 1m 0s ago",
        "chosen: full reconfiguration; it is expected to last 2h 0m, at 3.25 arrivals",
        "12.5% led to a full reconfiguration",
        "the plan costs $5.00/h, slowdowns included; a lower bound is not known",
        "23 tasks of 1 kind on 23 instances; optimizer greedy, 0 columns",
        "i-0 (box): worth $0.40/h, costs $1.00/h; $0.60/h more than its tasks are worth",
        "i-19 (box)",
        "... and 3 more; --json has them all",
        "b-2/7 from i-1 to i-2 and 2 more: saves $2.00/h, costs $0.5000 once, does not pay",
        "b-2/0 from i-1 to i-2: adds $0.30/h, costs -$0.000001 once, pays for itself after 0s",
    ):
        assert part in text
    assert "i-20 (box)" not in text
    rows = {tuple(line.split()) for line in text.splitlines()}
    assert ("a-1/0", "$1.00/h", "91.2%", "-$0.25/h", "$1.00/h") in rows
    assert ("keep", "what", "runs", "-$1.00/h", "$0.00", "0", "-$2.00") in rows
    # 1.7 an hour for two hours, less 0.5.
    assert ("full", "reconfiguration", "$1.70/h", "$0.5000", "11", "$2.90") in rows


def test_json_has_the_documented_shape(eva: Run, api: FakeApi) -> None:
    api.explanation = of_a_round()
    shown = json.loads(eva("explain", "8", "--json").stdout)
    assert api.of("Explain")[0].request.subject == "8"
    assert shown.keys() == {
        *("kind", "subject", "now_ms", "round", "at_ms", "partition", "job", "instances"),
        *("moved_in_round", "moved_ms", "exchanges", "weighing", "instance", "lines", "pools"),
        *("latency", "more_lines", "evidence", "dag", "fleet", "borrowing", "notes"),
    }
    assert len(shown["instances"]) == 23
    assert shown["instances"][0]["tasks"][0] == {
        "task": "a-1/0",
        "normalised_throughput": 0.912345,
        "profiled": False,
        "reservation_price_usd_per_hour": 1.0,
        "reservation_price_micro_usd_per_hour": 1_000_000,
        "value_usd_per_hour": -0.25,
        "value_micro_usd_per_hour": -250_000,
        "share_usd_per_hour": 1.0,
        "share_micro_usd_per_hour": 1_000_000,
    }
    first, second = shown["exchanges"]
    assert (first["break_even_ms"], second["break_even_ms"]) == (None, 0)
    assert first["moves"][0].keys() == {"task", "source", "target", "cost_usd", "cost_micro_usd"}
    assert (shown["job"], shown["moved_in_round"]) == (None, None)
    weighing = shown["weighing"]
    assert weighing["lower_bound_micro_usd_per_hour"] is None
    assert weighing["lower_bound_usd_per_hour"] is None
    assert weighing["alternatives"][1]["migration_cost_usd"] == 0.5


def test_what_others_named_does_no_harm_to_the_terminal(eva: Run, api: FakeApi) -> None:
    task = pb.Task(index=0, state="waiting", waiting_for="\x1b[31mlimit")
    api.explanation = pb.Explanation(
        kind="job", subject="a-1", job=pb.Job(id="a-1", state="pending", tasks=[task])
    )
    text = eva("explain", "a").stdout
    assert "a-1/0 waits:" in text
    assert "\x1b" not in text


def test_an_instance_that_no_plan_used(eva: Run, api: FakeApi) -> None:
    api.explanation = pb.Explanation(kind="instance", subject="i-1", round=4, now_ms=NOW_MS)
    assert eva("explain", "i-1").stdout.strip() == (
        "i-1: no plan that is still kept put a task on it"
    )


def test_it_is_said_why_a_task_of_unknown_throughput_is_alone(eva: Run, api: FakeApi) -> None:
    one, other = hosting(1), hosting(2)
    one.occupants[0].profiled = True
    api.explanation = pb.Explanation(kind="job", subject="a-1", round=8, hostings=[one, other])
    words = eva("explain", "a-1").stdout
    assert "a-1/1 runs alone while its standalone throughput is measured" in words
    assert "a-1/2 runs alone" not in words
    shown = json.loads(eva("explain", "a-1", "--json").stdout)
    assert [each["tasks"][0]["profiled"] for each in shown["instances"]] == [True, False]


def test_a_job_is_told_what_each_source_of_its_run_time_says(eva: Run, api: FakeApi) -> None:
    known = pb.RunTimeEstimate(mean_ms=50_000, least_ms=40_000, most_ms=60_000, source="posterior")
    behind = pb.RunTimeEvidence(
        pilots=5,
        pilots_ms=41_000,
        feature="workload",
        value="etl",
        jobs=64,
        jobs_ms=55_000,
        spread=log(1.6),
    )
    job = pb.Job(id="a-1", state="running", estimate=known)
    api.explanation = pb.Explanation(kind="job", now_ms=NOW_MS, job=job, evidence=behind)
    assert eva("explain", "a-1").stdout.splitlines()[2:4] == [
        "    5 finished tasks took 41s each",
        "    64 earlier jobs of workload etl took 55s a task, give or take 60%",
    ]
    shown = json.loads(eva("explain", "a-1", "--json").stdout)["evidence"]
    assert (shown["pilots"], shown["pilots_ms"], shown["jobs"]) == (5, 41_000, 64)
    behind = pb.RunTimeEvidence(feature="memory", value="2560", jobs=1, jobs_ms=1_000)
    api.explanation.evidence.CopyFrom(behind)
    text = eva("explain", "a-1").stdout
    assert "1 earlier job with 2.5 GiB took 1s a task, give or take 0%" in text
    assert "finished" not in text


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            pb.DagOutlook(
                label="etl", stages=4, ended=1, waiting=2, left_ms=3 * 3_600_000, earlier=14
            ),
            "it is a stage of the DAG etl, of which 1 of 4 stages has ended and 2 wait for others: "
            "3h 0m of work left by estimate, from 14 earlier DAGs of this label",
        ),
        (
            pb.DagOutlook(label="e\x1b[31m", stages=2, waiting=1, left_ms=60_000),
            "it is a stage of the DAG e [31m, of which 0 of 2 stages have ended and 1 waits for "
            "others: 1m 0s of work left by estimate, each stage by itself",
        ),
        (
            pb.DagOutlook(label="etl", stages=1),
            "it is a stage of the DAG etl, of which 0 of 1 stage have ended: nothing is known of "
            "how much work is left",
        ),
    ],
)
def test_a_stage_is_told_what_its_dag_has_left(
    eva: Run, api: FakeApi, told: pb.DagOutlook, said: str
) -> None:
    job = pb.Job(id="a-1", state="running")
    api.explanation = pb.Explanation(kind="job", now_ms=NOW_MS, job=job, dag=told)
    assert said in " ".join(eva("explain", "a-1").stdout.split())
    shown = json.loads(eva("explain", "a-1", "--json").stdout)["dag"]
    assert (shown["label"], shown["stages"]) == (told.label, told.stages)
    assert shown["left_ms"] == (told.left_ms if told.HasField("left_ms") else None)


def test_a_job_that_borrows_says_from_whom(eva: Run, api: FakeApi) -> None:
    lenders = [
        pb.Lender(tenant="b", micro_usd_per_hour=240_000, gpus_thousandths=1_500),
        pb.Lender(tenant="c\x1b[2J", micro_usd_per_hour=120_000),
    ]
    terms = pb.Borrowing(gpus=2, micro_usd_per_hour=360_000, lenders=lenders)
    job = pb.Job(id="a-1", state="running")
    api.explanation = pb.Explanation(kind="job", now_ms=NOW_MS, job=job, borrowing=terms)
    text = eva("explain", "a-1").stdout
    for line in (
        "it borrows 2 GPUs for $0.36/h:",
        "b gets $0.24/h for 1.5 GPUs",
        "gets $0.12/h\n",
    ):
        assert line in text
    assert "\x1b" not in text
    shown = json.loads(eva("explain", "a-1", "--json").stdout)["borrowing"]
    assert (shown["gpus"], shown["pays_micro_usd_per_hour"]) == (2, 360_000)
    assert [it["gpus"] for it in shown["lenders"]] == [1.5, None]
    assert [it["gets_usd_per_hour"] for it in shown["lenders"]] == [0.24, 0.12]


def suspended(by: str, reason: str, tasks: list[pb.Task]) -> pb.Explanation:
    told = pb.Suspension(by=by, since_ms=NOW_MS - 60_000, reason=reason)
    job = pb.Job(id="a-1", state="suspended", suspension=told, tasks=tasks)
    return pb.Explanation(kind="job", subject="a-1", now_ms=NOW_MS, job=job)


def test_a_suspended_job_says_by_whom_why_when_and_what_has_it_go_on(
    eva: Run, api: FakeApi
) -> None:
    by_user = [pb.Task(index=n, state="waiting", waiting_for="suspended by ann") for n in (0, 1)]
    api.explanation = suspended("user", "suspended by ann", by_user)
    assert eva("explain", "a-1").stdout.splitlines() == [
        "a-1 is suspended",
        "  suspended by ann, 1m 0s ago; it waits until somebody says `eva resume a-1`",
    ]
    told = "suspended for u-9, which has a higher priority"
    more = [pb.Task(state="waiting", waiting_for=f"{told}; limit of box reached")]
    api.explanation = suspended("priority", told, more)
    assert eva("explain", "a-1").stdout.splitlines() == [
        "a-1 is suspended",
        f"  {told}, 1m 0s ago; it goes on by itself once there is room for both",
        f"  a-1/0 waits: {told}; limit of box reached",
    ]


def test_single_tasks_that_a_plan_has_suspended_say_so_too(eva: Run, api: FakeApi) -> None:
    told = pb.Suspension(by="policy", since_ms=NOW_MS - 60_000, reason="suspended by the policy: x")
    task = pb.Task(index=1, state="waiting", waiting_for=told.reason, suspension=told)
    rest = pb.Task(index=0, state="running", instance="i-1")
    job = pb.Job(id="a-1", state="running", tasks=[rest, task])
    api.explanation = pb.Explanation(kind="job", subject="a-1", now_ms=NOW_MS, job=job)
    assert (
        "  a-1/1 was suspended by the policy: x, 1m 0s ago; "
        "it goes on by itself when the policy gives it a place again"
    ) in eva("explain", "a-1").stdout.splitlines()


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("ready", "i-1 stands in the pool quick: why"),
        ("terminating", "i-1 stood in the pool quick and is terminating: why"),
        ("gone", "i-1 stood in the pool quick and is gone: why"),
    ],
)
def test_an_instance_that_is_gone_stands_in_no_pool(
    api: FakeApi, eva: Run, state: str, told: str
) -> None:
    one = pb.Instance(id="i-1", state=state, pool="quick", reason="why")
    api.explanation = pb.Explanation(kind="instance", subject="i-1", instance=one)
    assert told in " ".join(eva("explain", "i-1").output.split())
