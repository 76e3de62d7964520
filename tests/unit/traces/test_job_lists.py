"""Lists of jobs of other systems: what `eva trace convert` makes of them, and what it tells."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_lab.traces import read_trace
from eva_master.model.resources import Resources
from eva_master.model.trace import Trace

SWF = """\
; Version: 2.2
; MaxProcs: 512

  1   100  10  300   4  -1 1048576   4  600 -1 1  7 1 12 -1 1 -1 -1
  2    40   0   -1   2  -1      -1   2  600 -1 0  2 1 -1 -1 1 -1 -1
  3   160   0   60  -1  -1      -1 400  600 -1 1 -1 1 -1 -1 1 -1 -1
"""
PHILLY = [
    {
        "status": "Pass",
        "vc": "aa11",
        "jobid": "application_1_1",
        "attempts": [
            {
                "start_time": "2017-10-07 01:12:00",
                "end_time": "2017-10-07 01:13:00",
                "detail": [{"ip": "m1", "gpus": ["gpu0"]}],
            },
            {
                "start_time": "2017-10-07 02:00:00",
                "end_time": "2017-10-07 03:00:00",
                "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu3"]}],
            },
        ],
        "submitted_time": "2017-10-07 01:11:30",
        "user": "u 1",
    },
    {
        "status": "Killed",
        "jobid": "application_1_2",
        "attempts": [{"start_time": "None", "end_time": "None", "detail": []}],
        "submitted_time": "2017-10-07 01:11:00",
        "user": "u2",
    },
]
HELIOS = """\
job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u1,v,train,16,64,2,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:02,2020-06-09 19:41:02,3600,0
2,u1,v,train,1,4,1,CANCELLED,2020-06-09 18:42:01,None,2020-06-09 18:42:02,0,0
3,u2,v,count,0,8,1,FAILED,2020-06-09 18:43:01,2020-06-09 18:43:01,2020-06-09 18:43:31,30,0
"""
ALIBABA_2020 = """\
job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type
j1,worker,2.0,Terminated,1000,1600,600.0,29.3,50.0,V100
j2,worker,1.0,Failed,1100,1600,600.0,29.3,50.0,V100
j3,ps,1.0,Running,1200,,100.0,4,,MISC
"""
COLUMNS = """\
arrival,duration,gpus,cpus,memory,name,colour
1700000600,60,0,1.5,0.5,etl,red
1700000000,3600,1,4,30,bert,blue
"""


def converted(tmp_path: Path, name: str, text: str | bytes, *options: str) -> tuple[Trace, str]:
    """The trace that is made of a list, and what the command says."""
    source = tmp_path / name
    source.write_bytes(text if isinstance(text, bytes) else text.encode())
    target = tmp_path / "out.json"
    done = CliRunner().invoke(main, ["trace", "convert", str(source), str(target), *options])
    assert done.exit_code == 0, done.output
    return read_trace(target), done.output


def refused(tmp_path: Path, name: str, text: str) -> str:
    source = tmp_path / name
    source.write_text(text)
    command = ["trace", "convert", str(source), str(tmp_path / "out.json")]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 1, done.output
    return done.output


def test_the_standard_workload_format(tmp_path: Path) -> None:
    trace, told = converted(tmp_path, "log.swf", SWF)
    first, second = trace.jobs
    assert (first.arrival_ms, first.duration_ms) == (0, 300_000)
    assert (first.owner, first.workload) == ("user-7", "application-12")
    assert [task.demand for task in first.tasks] == [Resources(0, 4_000, 4 * 1_024)]
    assert second.arrival_ms == 60_000
    # 400 processors fit on no instance: three equal parts of 134 do (the largest has 192).
    assert sum(task.demand.milli_cpus for task in second.tasks if task.demand) >= 400_000
    assert len({task.demand for task in second.tasks}) == 1
    assert len(second.tasks) == 3
    assert "left out 1 of 3 jobs: no run time 1" in told


def test_philly(tmp_path: Path) -> None:
    trace, told = converted(tmp_path, "cluster_job_log.json", json.dumps(PHILLY))
    (job,) = trace.jobs
    assert job.duration_ms == 61 * 60_000, "all attempts count"
    gpus = [task.demand.gpus for task in job.tasks if task.demand]
    assert gpus == [2, 1], "a member for each machine of the last attempt"
    assert job.owner == "u-1"
    assert "left out 1 of 2 jobs: no run time 1" in told
    assert "assumed 4 vCPUs for each GPU" in told


def test_helios(tmp_path: Path) -> None:
    trace, told = converted(tmp_path, "cluster_log.csv", HELIOS)
    train, count = trace.jobs
    assert [task.demand for task in train.tasks] == [Resources(8, 32_000, 128 * 1_024)] * 2
    assert (train.arrival_ms, train.duration_ms, train.workload) == (0, 3_600_000, "train")
    assert (count.arrival_ms, count.owner) == (120_000, "u2")
    assert "left out 1 of 3 jobs: no run time 1" in told


@pytest.mark.parametrize("header", [True, False])
def test_alibaba_s_tasks_of_2020(tmp_path: Path, header: bool) -> None:
    text = ALIBABA_2020 if header else ALIBABA_2020.partition("\n")[2]
    trace, told = converted(tmp_path, "pai_task_table.csv", text)
    (job,) = trace.jobs
    assert [task.demand for task in job.tasks] == [Resources(1, 6_000, 30_004)] * 2
    assert job.duration_ms == 600_000
    assert "left out 2 of 3 jobs: failed 1, no run time 1" in told


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("jobs.csv", lambda text: text.encode()),
        ("jobs.csv", lambda text: b"\xef\xbb\xbf" + text.encode()),
        ("jobs.csv.gz", lambda text: gzip.compress(text.encode())),
    ],
)
def test_five_columns_since_any_time(tmp_path: Path, name: str, pack: object) -> None:
    trace, told = converted(tmp_path, name, pack(COLUMNS))  # type: ignore[operator]
    bert, etl = trace.jobs
    assert (bert.workload, bert.arrival_ms, bert.duration_ms) == ("bert", 0, 3_600_000)
    assert bert.tasks[0].demand == Resources(1, 4_000, 30 * 1_024)
    assert (etl.workload, etl.arrival_ms) == ("etl", 600_000)
    assert etl.tasks[0].demand == Resources(0, 1_500, 512)
    assert "left unread: the columns colour" in told


def test_only_so_many_jobs(tmp_path: Path) -> None:
    trace, _ = converted(tmp_path, "jobs.csv", COLUMNS, "--jobs", "1")
    assert [job.workload for job in trace.jobs] == ["bert"]


def test_pods_that_are_left_out_are_counted(tmp_path: Path) -> None:
    text = (
        "name,cpu_milli,memory_mib,num_gpu,pod_phase,creation_time,deletion_time\n"
        "p0,4000,8192,1,Running,0,3600\n"
        "p1,4000,8192,1,Failed,10,3600\n"
        "p2,400000000,8192,1,Succeeded,20,3600\n"
    )
    trace, told = converted(tmp_path, "pods.csv", text)
    assert len(trace.jobs) == 1
    assert "left out 2 of 3 pods: failed 1, larger than every instance type 1" in told


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("jobs.csv", "arrival,duration,gpus,cpus,memory\n1,2,3\n", ":2:1: the row has 3 of 5"),
        ("jobs.csv", "arrival,duration,gpus,cpus,memory\nx,2,3,1,1\n", "arrival: 'x' is neither"),
        ("jobs.csv", "arrival,duration,gpus,cpus,memory\n1,-2,3,1,1\n", "duration: '-2' is no"),
        ("jobs.csv", "arrival,duration,gpus,cpus,memory\n1,2,900,1,1\n", "larger than every"),
        ("jobs.csv", "when,how\n1,2\n", "has no form that can be read"),
        ("jobs.csv", "", "has no form that can be read"),
        ("jobs.csv", "\n1,2,3,4,5\n", "has no form that can be read"),
        ("jobs.csv", "x" * 200_000, "has no form that can be read"),
        (
            "p.json",
            f'[{{"job": {"9" * 5_000}}}]',
            "a number in it has more digits than can be read",
        ),
        ("log.swf", "1 2 3\n", ":1:1: the row has 3 of 18 columns"),
        ("log.dat", "1 2 3\n", "the Standard Workload Format"),
        ("p.json", '[{"attempts": 5, "submitted_time": 1}]', "job 0: it has not the fields"),
    ],
)
def test_a_wrong_list_is_refused_by_row_and_field(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    said = " ".join(refused(tmp_path, name, text).split())
    assert message in said
    assert "JSON" not in said or name.endswith("json")


@pytest.mark.parametrize(
    "name", ["jobs.csv", "jobs.csv.gz", "some.tr", "some.txt.gz", "log.swf", "philly.json"]
)
@pytest.mark.parametrize("command", [["trace", "describe"], ["simulate"]])
def test_a_list_where_a_trace_is_wanted_is_to_be_converted_first(
    tmp_path: Path, name: str, command: list[str]
) -> None:
    path = tmp_path / name
    text = json.dumps(PHILLY) if name.endswith("json") else "a,b\n"
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    done = CliRunner().invoke(main, [*command, str(path)])
    assert done.exit_code == 1
    assert f"eva trace convert {path}" in done.output.replace("\n", "")


def test_numbers_of_jobs_may_be_numbers(tmp_path: Path) -> None:
    row = {
        "name": "a",
        "arrival_time": 0,
        "duration": 6,
        "tasks": {"0": {"demand": {"any": [0, 1, 1]}}},
    }
    lines = [
        {"job": 0, **row},
        {"job": 1, **row, "after": [0]},
        {"job": "2", **row, "after": ["1"]},
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert [(job.id, job.after) for job in read_trace(path).jobs] == [
        ("0", ()),
        ("1", ("0",)),
        ("2", ("1",)),
    ]


def test_a_mark_and_compression_do_no_harm(tmp_path: Path) -> None:
    row = {
        "name": "a",
        "arrival_time": 0,
        "duration": 6,
        "tasks": {"0": {"demand": {"any": [0, 1, 1]}}},
    }
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + json.dumps({"0": row}).encode()))
    assert len(read_trace(path).jobs) == 1


def test_times_since_1970_are_told_apart_from_long_ones(tmp_path: Path) -> None:
    row = {
        "name": "a",
        "arrival_time": 1.7e9,
        "duration": 6,
        "tasks": {"0": {"demand": {"any": [0, 1, 1]}}},
    }
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"0": row}))
    done = CliRunner().invoke(main, ["trace", "describe", str(path)])
    assert (
        "arrival_time: counts seconds from the beginning of the trace, not since 1970"
        in " ".join(done.output.split())
    )


def test_comments_and_blank_lines_of_text_forms_are_skipped(tmp_path: Path) -> None:
    trace, _ = converted(tmp_path, "some.tr", "# arrival tasks mean durations\n\n0 2 5 4 6\n")
    assert len(trace.jobs[0].tasks) == 2
    trace, _ = converted(tmp_path, "some.txt", "# past, then to run\n\nJ 0 a b c 1 1 1 2 4 6\n")
    assert len(trace.jobs[0].tasks) == 2
