"""Job files: what they mean, and how each mistake is told."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from eva_master.adapters.resolving.parse import parse_job
from eva_master.adapters.resolving.partition import Placement
from eva_master.model.catalog import Catalog, InstanceType, Offering, spot_family
from eva_master.model.fleet.partitions import Partition, Partitions, ShortJobs
from eva_master.model.job import JobSpec, Stragglers
from eva_master.model.resources import Resources
from eva_wire.jobfile import check_job, job_schema, workdir_of
from eva_wire.text.quantities import parse_duration, write_duration
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import InvalidJob, Problem, Unplaceable
from eva_wire.values.ids import Family, Price
from eva_wire.values.notices import Topic


def offering(name: str, gpus: int, cpus: int, gib: int, limit: int | None = None) -> Offering:
    family = Family(name.partition(".")[0])
    capacity = Resources(gpus, cpus * 1000, gib * 1024)
    return Offering(InstanceType(name, family, capacity), Price(1), limit=limit)


CATALOG: Catalog = (
    offering("c7i.2xlarge", 0, 8, 16),
    offering("c7i.8xlarge", 0, 32, 64),
    offering("r7i.48xlarge", 0, 192, 1536),
    offering("p3.2xlarge", 1, 8, 61),
    offering("p3.16xlarge", 8, 64, 488),
)


REFUSED_INPUT = ("storage.inputs.a", "no input from", "master's setting input_roots")


def parse(text: str, **options: object) -> JobSpec:
    defaults = {"file_name": "job.yaml", "owner": "ana", "catalog": CATALOG, "workdir": None}
    return parse_job(text, **{**defaults, **options})


def problems_of(text: str, kind: type[InvalidJob] = InvalidJob) -> tuple[Problem, ...]:
    with pytest.raises(InvalidJob) as caught:
        parse(text)
    assert type(caught.value) is kind
    return caught.value.problems


def only_problem_of(text: str) -> Problem:
    problems = problems_of(text)
    assert len(problems) == 1, problems
    return problems[0]


def with_line(line: str) -> str:
    """A right job with one more line, its fourth."""
    return f"name: a\nrun: x\nresources: {{cpus: 1, memory: 1GiB}}\n{line}\n"


FULL = """\
name: resnet18
workload: resnet18-imagenet
workdir: .
run: python train.py
resources: {cpus: 14, memory: 16GiB}
resources_by_family:
  c7i: {cpus: 7.5}
  p3: null
throughput: {c7i: 2.1, r7i: 1.7}
total_steps: 50000
tasks: 2
envs: {LR: 0.10, AMP: no, NAME: "x y"}
storage: {inputs: {imagenet: s3://bucket/imagenet}}
grace_period: 90s
delays: {checkpoint: 8s, launch: 1.5m}
retries: 5
duration: 36h
max_duration: 48h
priority: 7
"""


def test_full_file_is_read_exactly() -> None:
    spec = parse(FULL, workdir="d" * 64)
    task = spec.tasks[0]
    assert task.demand == (
        ("c7i", Resources(0, 7_500, 16_384)),
        ("r7i", Resources(0, 14_000, 16_384)),
    )
    assert task.throughput == (("c7i", 2_100_000), ("r7i", 1_700_000))
    assert task.workload == "resnet18-imagenet"
    assert task.program.run == "python train.py"
    assert task.program.workdir == "d" * 64
    assert task.program.inputs == (("imagenet", "s3://bucket/imagenet"),)
    assert spec.tasks == (task, task)
    assert (spec.name, spec.owner, spec.kind) == ("resnet18", "ana", JobKind.GANG)
    assert (spec.total_steps, spec.duration_ms) == (50_000, 129_600_000)
    assert (spec.restarts.checkpoint_ms, spec.restarts.launch_ms) == (8_000, 90_000)
    assert (spec.restarts.grace_period_ms, spec.failing.max_duration_ms) == (90_000, 172_800_000)
    assert (spec.failing.retries, spec.priority) == (5, 7)


def test_a_job_may_ask_that_receivers_are_told_of_it() -> None:
    spec = parse(with_line("notify: [late, end, end]"))
    assert spec.notify == (Topic.END, Topic.LATE)
    assert parse(with_line("")).notify == ()
    with pytest.raises(InvalidJob, match="must be 'end', 'failure', 'late' or 'capped'"):
        parse(with_line("notify: [leader]"))


def test_an_array_may_limit_how_many_tasks_have_a_place() -> None:
    text = with_line("kind: array\ntasks: 9\n")
    assert parse(f"{text}concurrency: 4\n").array.concurrency == 4
    assert parse(text).array.concurrency is None


def test_an_array_may_have_late_tasks_run_twice() -> None:
    text = with_line("kind: array\ntasks: 9\n")
    assert parse(f"{text}stragglers: duplicate\n").array.stragglers is Stragglers.DUPLICATE
    assert parse(f"{text}stragglers: keep\n").array.stragglers is Stragglers.KEEP
    assert parse(text).array.stragglers is Stragglers.KEEP


def test_an_array_may_say_how_many_of_its_tasks_run_first() -> None:
    text = with_line("kind: array\ntasks: 9\n")
    assert parse(f"{text}pilots: 9\n").array.pilots == 9
    assert parse(text).array.pilots is None


@pytest.mark.parametrize(
    ("lines", "message", "hint"),
    [
        ("kind: array\ntasks: 9\npilots: 10", "10 tasks are to run first, and the job has 9", "9"),
        (
            "kind: array\ntasks: [{name: a}, {name: b}]\npilots: 3",
            "3 tasks are to run first, and the job has 2",
            "write at most 2",
        ),
        ("kind: gang\ntasks: 9\npilots: 2", "tasks of a gang run together", "write `kind: array`"),
        ("kind: gang\ntasks: 1\npilots: 1", "tasks of a gang run together", "or remove it"),
        ("tasks: {least: 1, most: 4}\nkind: gang\npilots: 1", "of a gang run together", "kind"),
        ("kind: array\ntasks: 9\npilots: 0", "must be 1 or more", ""),
        ("kind: array\ntasks: 900\npilots: 101", "must be 100 or less", ""),
        ("kind: array\ntasks: 9\npilots: 1.5", "must be a whole number", ""),
        ("kind: array\ntasks: 9\npilots: few", "must be a whole number", ""),
    ],
)
def test_pilots_that_cannot_be_are_refused_with_line_and_key(
    lines: str, message: str, hint: str
) -> None:
    problem = only_problem_of(with_line(lines))
    assert (problem.key, problem.line) == ("pilots", 6)
    assert message in problem.message
    assert hint in problem.hint


def test_variables_keep_their_spelling() -> None:
    assert parse(FULL).tasks[0].program.env == (("AMP", "no"), ("LR", "0.10"), ("NAME", "x y"))


def test_what_comes_beside_the_file_overrides_it() -> None:
    spec = parse(FULL, envs={"LR": "1", "NEW": ""}, name="again")
    assert dict(spec.tasks[0].program.env) == {"AMP": "no", "LR": "1", "NAME": "x y", "NEW": ""}
    assert spec.name == "again"


def test_default_workload_is_of_the_file_not_of_the_override() -> None:
    assert parse(with_line(""), name="b").tasks[0].workload == "a"


def test_different_tasks_take_what_they_do_not_say_from_the_job() -> None:
    spec = parse(
        """\
name: mixed
kind: array
run: worker
resources: {cpus: 2, memory: 4GiB}
resources_by_family: {r7i: {cpus: 1}, p3: null}
envs: {A: 1, B: 1}
tasks:
  - {name: plain}
  - name: big
    run: big
    resources: {gpus: 1, cpus: 4, memory: 8GiB}
    resources_by_family: {p3: {}}
    envs: {B: 2}
  - {name: anywhere, resources_by_family: {p3: {cpus: 3}}, workload: own}
"""
    )
    plain, big, anywhere = spec.tasks
    assert [task.name for task in spec.tasks] == ["plain", "big", "anywhere"]
    assert [task.workload for task in spec.tasks] == ["mixed/plain", "mixed/big", "own"]
    assert plain.demand == (("c7i", Resources(0, 2000, 4096)), ("r7i", Resources(0, 1000, 4096)))
    # Its own default replaces the job's figures, on every family.
    assert big.demand == tuple(
        (family, Resources(1, 4000, 8192)) for family in ("c7i", "p3", "r7i")
    )
    assert dict(anywhere.demand)[Family("p3")] == Resources(0, 3000, 4096)
    assert (big.program.run, dict(big.program.env)) == ("big", {"A": "1", "B": "2"})


def test_families_alone_leave_the_others_out() -> None:
    spec = parse("name: a\nrun: x\nresources_by_family: {p3: {gpus: 1, cpus: 4, memory: 8GiB}}\n")
    assert spec.tasks[0].demand == (("p3", Resources(1, 4000, 8192)),)


def test_one_throughput_holds_for_all_families() -> None:
    rates = dict(parse(with_line("throughput: 3")).tasks[0].throughput)
    assert rates == dict.fromkeys(("c7i", "p3", "r7i"), 3_000_000)


@pytest.mark.parametrize(
    ("line", "key", "message", "hint"),
    [
        ("rnu: x", "rnu", "unknown key 'rnu'", "did you mean 'run'?"),
        ("total_steps: 0", "total_steps", "must be greater than 0", ""),
        ("total_steps: 1.5", "total_steps", "must be a whole number", ""),
        ("total_steps: '5'", "total_steps", "must be a whole number", ""),
        ("throughput: 0", "throughput", "must be greater than 0", ""),
        ("throughput: -1", "throughput", "must be greater than 0", ""),
        ("throughput: .nan", "throughput", "must be a finite number", ""),
        ("throughput: .inf", "throughput", "must be a finite number", ""),
        ("throughput: {c7: 1}", "throughput.c7", "there are no instances", "did you mean 'c7i'?"),
        ("throughput: {c7i: 0}", "throughput.c7i", "must be greater than 0", ""),
        ("concurrency: 0", "concurrency", "must be 1 or more", ""),
        ("concurrency: many", "concurrency", "must be a whole number", ""),
        ("concurrency: 4", "concurrency", "all tasks of a gang run or none", "write `kind: array`"),
        ("stragglers: kill", "stragglers", "must be 'keep' or 'duplicate'", ""),
        ("stragglers: duplicate", "stragglers", "wait for each other", "write `kind: array`"),
        ("tasks: 0", "tasks", "must be 1 or more", ""),
        ("tasks: []", "tasks", "must not be empty", ""),
        ("tasks: [{name: a, cpus: 1}]", "tasks[0].cpus", "unknown key 'cpus'", "`resources: {"),
        ("tasks: [{run: x}]", "tasks[0].name", "'name' is missing", ""),
        ("tasks: [{name: a}, {name: a}]", "tasks[1].name", "another task 'a'", ""),
        ("kind: group", "kind", "must be 'gang' or 'array'", ""),
        ("grace_period: 60", "grace_period", "a duration needs a unit", "write 60s"),
        ("grace_period: 1 minute", "grace_period", "not a duration", "write 60s"),
        ("grace_period: 2d", "grace_period", "at most one day", ""),
        ("max_duration: 0s", "max_duration", "more than zero", ""),
        ("duration: 0s", "duration", "more than zero", ""),
        ("duration: 11000d", "duration", "at most ten years", ""),
        ("duration: 316224001s", "duration", "at most ten years", ""),
        ("duration: -5s", "duration", "'-5s' is not a duration", "write 60s"),
        ("duration: -5", "duration", "a duration needs a unit", ""),
        ("duration: 3600", "duration", "a duration needs a unit", "write 3600s"),
        ("max_duration: 0.5ms", "max_duration", "no whole number of milliseconds", ""),
        ("retries: -1", "retries", "must be 0 or more", ""),
        ("priority: true", "priority", "must be a whole number", ""),
        ("envs: {EVA_JOB_ID: x}", "envs.EVA_JOB_ID", "set by the cluster", "choose another"),
        ("envs: {MASTER_ADDR: x}", "envs.MASTER_ADDR", "set by the cluster", "choose another"),
        ("envs: {MASTER_PORT: x}", "envs.MASTER_PORT", "set by the cluster", "choose another"),
        ("envs: {NODE_RANK: x}", "envs.NODE_RANK", "set by the cluster", "choose another"),
        ("envs: {NNODES: x}", "envs.NNODES", "set by the cluster", "choose another"),
        ("envs: {a-b: x}", "envs.a-b", "cannot be an environment variable", "use letters"),
        ("envs: [a]", "envs", "must hold keys and values", ""),
        ("storage: {inputs: {a: /data}}", "storage.inputs.a", "is not a URL", "write s3://"),
        ("storage: {inputs: {../a: s3://bucket}}", "storage.inputs.../a", "cannot be a name", ""),
        ("storage: {inputs: {a: file:///etc/shadow}}", *REFUSED_INPUT),
        ("storage: {inputs: {a: 's3://bucket/x?endpoint=http://x'}}", *REFUSED_INPUT),
        ("storage: {inputs: {a: http://169.254.169.254/}}", *REFUSED_INPUT),
        ("resources_by_family: {x1: null}", "resources_by_family.x1", "no instances", "known: "),
        ("run: y", "run", "the key stands twice", ""),
        ("delays: {checkpont: 1s}", "delays.checkpont", "unknown key", "did you mean"),
    ],
)
def test_each_mistake_is_told_with_line_key_and_suggestion(
    line: str, key: str, message: str, hint: str
) -> None:
    problem = only_problem_of(with_line(line))
    assert problem.key == key
    assert message in problem.message
    assert hint in problem.hint
    assert problem.line == 4
    assert problem.column >= 1


@pytest.mark.parametrize(
    ("stated", "key", "message"),
    [
        ("cpus: 0, memory: 1GiB", "resources.cpus", "greater than 0"),
        ("cpus: -1, memory: 1GiB", "resources.cpus", "not a number of vCPUs"),
        ("cpus: .nan, memory: 1GiB", "resources.cpus", "not a number of vCPUs"),
        ("cpus: 0.0001, memory: 1GiB", "resources.cpus", "thousandths"),
        ("cpus: 1e300, memory: 1GiB", "resources.cpus", "no machine"),
        ("cpus: 1, memory: 16", "resources.memory", "a size needs a unit"),
        ("cpus: 1, memory: 16GB", "resources.memory", "'GB' is not a unit"),
        ("cpus: 1, memory: 0MiB", "resources.memory", "greater than 0"),
        ("cpus: 1, memory: -1GiB", "resources.memory", "not a size"),
        ("cpus: 1, memory: 1GiB, gpus: 0.5", "resources.gpus", "whole number"),
        ("cpus: 1, memory: 1GiB, gpus: -1", "resources.gpus", "0 or more"),
        ("cpus: 1, memory: 1GiB, disk: 200", "resources.disk", "a size needs a unit"),
        ("cpus: 1, memory: 1GiB, disk: 0GiB", "resources.disk", "greater than 0"),
        ("cpus: 1, memory: 1GiB, disk: 17179869185MiB", "resources.disk", "17179869184"),
        ("cpus: 1", "resources.memory", "'memory' is missing"),
        ("memory: 1GiB", "resources.cpus", "'cpus' is missing"),
    ],
)
def test_bad_demands_are_refused(stated: str, key: str, message: str) -> None:
    problem = only_problem_of(f"name: a\nrun: x\nresources: {{{stated}}}\n")
    assert (problem.key, problem.line) == (key, 3)
    assert message in problem.message


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    problems = problems_of("nmae: a\nrun: ''\nresources: {cpu: 1, memory: 1}\nretries: x\n")
    assert [(one.line, one.key) for one in problems] == [
        (1, "nmae"),
        (2, "run"),
        (3, "resources.cpu"),
        (3, "resources.memory"),
        (4, "retries"),
    ]


@pytest.mark.parametrize("missing", ["name", "run", "resources"])
def test_what_a_job_needs(missing: str) -> None:
    lines = with_line("").splitlines()
    text = "\n".join(line for line in lines if not line.startswith(missing))
    assert only_problem_of(text).key == missing


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'name' is missing"),
        ("- a\n", "must hold keys and values"),
        ("name: [a\n", "not YAML"),
        ("name: a\n  b: c\n", "not YAML"),
        ("name: !!python/object:os.system x\n", "tag"),
        ("? [a]\n: b\n", "a key must be a word"),
        ('name: "\\ud800"\n', "Unicode"),
        ("a: " + "[" * 5000, "nested too deeply"),
        ("a: &a [*a]\n", "nested too deeply"),
    ],
)
def test_what_is_no_job_file(text: str, message: str) -> None:
    assert any(message in problem.message for problem in problems_of(text))


def test_aliases_cannot_blow_up() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "too large" in only_problem_of("\n".join(lines)).message


def test_nearest_type_and_what_it_lacks() -> None:
    text = "name: a\nrun: x\nresources: {cpus: 392, memory: 16GiB}\n"
    (problem,) = problems_of(text, Unplaceable)
    assert "r7i.48xlarge, lacks 200 vCPUs" in problem.message
    assert (problem.line, problem.key) == (3, "resources")


def test_nearest_type_of_a_task_with_gpus_has_gpus() -> None:
    text = "name: a\nrun: x\nresources: {gpus: 9, cpus: 8, memory: 500GiB}\n"
    (problem,) = problems_of(text, Unplaceable)
    assert "p3.16xlarge, lacks 1 GPU and 12 GiB of memory" in problem.message


def test_a_type_that_cannot_be_had_holds_nothing() -> None:
    catalog = (offering("c7i.2xlarge", 0, 8, 16, limit=0), offering("c7i.large", 0, 2, 4))
    with pytest.raises(Unplaceable, match=r"c7i\.large, lacks 2 vCPUs"):
        parse("name: a\nrun: x\nresources: {cpus: 4, memory: 1GiB}\n", catalog=catalog)


def test_task_that_no_family_can_run_is_unplaceable() -> None:
    text = with_line("resources_by_family: {c7i: null, r7i: null, p3: null}")
    (problem,) = problems_of(text, Unplaceable)
    assert "no family" in problem.message


def test_overrides_are_checked_like_the_file() -> None:
    with pytest.raises(InvalidJob) as caught:
        parse(with_line(""), envs={"EVA_X": "1"}, name="a b")
    assert [one.key for one in caught.value.problems] == ["envs.EVA_X", "name"]


def test_check_needs_no_catalog() -> None:
    check_job(with_line("throughput: {z9: 1}"), file_name="job.yaml")
    with pytest.raises(InvalidJob, match=r"job.yaml:4:1: retries"):
        check_job(with_line("retries: -1"), file_name="job.yaml")
    check_job("run: x\nresources: {cpus: 1, memory: 1GiB}", file_name="job.yaml", name="given")


def test_workdir_of() -> None:
    assert workdir_of(FULL) == "."
    assert workdir_of(with_line("")) is None


def test_schema_knows_every_key_and_refuses_others() -> None:
    schema = job_schema()
    assert schema["additionalProperties"] is False
    assert {"name", "run", "resources_by_family", "storage"} <= schema["properties"].keys()
    assert schema["properties"]["grace_period"]["default"] == "60s"


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("60s", 60_000),
        ("1.5h", 5_400_000),
        ("500ms", 500),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
    ],
)
def test_durations(text: str, millis: int) -> None:
    assert parse_duration(text) == millis
    assert parse_duration(write_duration(millis)) == millis


DOCS = Path(__file__).parents[3] / "docs"


def test_reference_names_every_key() -> None:
    text = (DOCS / "reference" / "job-file.md").read_text()
    schema = job_schema()
    keys = {*schema["properties"]} - {"storage", "delays"}
    keys |= {*schema["$defs"]["ResourcesSection"]["properties"]}
    keys |= {f"storage.{key}" for key in schema["$defs"]["StorageSection"]["properties"]}
    keys |= {f"delays.{key}" for key in schema["$defs"]["DelaysSection"]["properties"]}
    assert not {key for key in keys if f"| `{key}` |" not in text}


@pytest.mark.parametrize(
    ("page", "least"), [("jobs", 2), ("arrays", 3), ("chains", 3), ("stops", 1)]
)
def test_every_job_in_the_guides_is_accepted(page: str, least: int) -> None:
    text = (DOCS / "howto" / f"{page}.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= least
    for block in blocks:
        parse(block)


# -- spot ----------------------------------------------------------------------------------------


def with_spot(*names: str) -> Catalog:
    """The catalog, and spot instances of some types."""
    spot = tuple(
        replace(it, type=replace(it.type, family=spot_family(it.type.family)))
        for it in CATALOG
        if it.type.name in names
    )
    return CATALOG + spot


@pytest.mark.parametrize(
    ("line", "families"),
    [
        ("", ["c7i", "p3", "r7i"]),
        ("spot: never", ["c7i", "p3", "r7i"]),
        ("spot: allowed", ["c7i", "c7i/spot", "p3", "p3/spot", "r7i"]),
        ("spot: only", ["c7i/spot", "p3/spot"]),
    ],
)
def test_spot_instances_are_for_jobs_that_allow_them(line: str, families: list[str]) -> None:
    (task,) = parse(with_line(line), catalog=with_spot("c7i.2xlarge", "p3.2xlarge")).tasks
    assert [family for family, _ in task.demand] == families


def test_a_family_is_spoken_of_however_it_is_paid_for() -> None:
    text = with_line(
        "spot: allowed\nresources_by_family: {c7i: {cpus: 2}, p3: null}\nthroughput: {c7i: 5}"
    )
    catalog = with_spot("c7i.2xlarge", "p3.2xlarge")
    (task,) = parse(text, catalog=catalog).tasks
    assert dict(task.demand)[Family("c7i/spot")] == Resources(0, 2000, 1024)
    assert [family for family, _ in task.demand] == ["c7i", "c7i/spot", "r7i"]
    assert task.throughput == (("c7i", 5_000_000),)
    with pytest.raises(InvalidJob) as caught:
        parse(with_line("resources_by_family: {c7i/spot: {cpus: 2}}"), catalog=catalog)
    assert caught.value.problems[0].hint.endswith("c7i?") or "c7i" in caught.value.problems[0].hint


@pytest.mark.parametrize(
    ("lines", "may"),
    [
        ("duration: 89s", True),
        ("duration: 90s", False),
        ("", False),
        ("latency: short", True),
        ("latency: short\nduration: 3h", True),
        ("latency: long\nduration: 1s", False),
        ("duration: 1s\nspot: never", False),
        ("duration: 1s\nspot: allowed", True),
        ("duration: 1s\nkind: array\ntasks: 9", True),
        ("duration: 1s\ntasks: 2", False),
    ],
)
def test_short_jobs_that_say_nothing_of_spot_may_use_it_where_room_is_kept_for_them(
    lines: str, may: bool
) -> None:
    catalog = with_spot("c7i.2xlarge")
    where = Placement(Partitions(whole=Partition(default=True, short=ShortJobs(90_000))))
    spec = parse(with_line(lines), catalog=catalog, placement=where)
    assert all((Family("c7i/spot") in dict(task.demand)) is may for task in spec.tasks)
    elsewhere = parse(with_line(lines), catalog=catalog)
    said = "spot: allowed" in lines
    assert all((Family("c7i/spot") in dict(task.demand)) is said for task in elsewhere.tasks)


def test_a_partition_allows_spot_instances_by_its_own_setting() -> None:
    parts = (Partition("day", default=True), Partition("night", short=ShortJobs(60_000)))
    for name, may in (("day", False), ("night", True)):
        spec = parse(
            with_line(f"duration: 5s\npartition: {name}"),
            catalog=with_spot("c7i.2xlarge"),
            placement=Placement(Partitions(parts)),
        )
        assert spec.partition == name
        assert (Family("c7i/spot") in dict(spec.tasks[0].demand)) is may


def test_spot_alone_needs_spot_instances() -> None:
    found = only_problem_of(with_line("spot: only"))
    assert (found.line, found.key) == (4, "spot")
    assert parse(with_line("spot: allowed")).tasks == parse(with_line("")).tasks


def test_a_grace_period_that_is_longer_than_allowed_is_named_with_its_line() -> None:
    text = with_line("grace_period: 1d")
    assert parse(text).restarts.grace_period_ms == 86_400_000, "where nothing limits it"
    with pytest.raises(InvalidJob) as caught:
        parse(text, grace_allowed_ms=600_000)
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (4, "grace_period")
    assert problem.message == (
        "the grace period is 1d, and at most 10m is allowed (limits.grace_period)"
    )
    assert parse(with_line("grace_period: 10m"), grace_allowed_ms=600_000).restarts.grace_period_ms


# -- variables of the caller -----------------------------------------------------------------------

OPEN = (
    "name: a\nrun: x\nresources: {cpus: 1, memory: 1GiB}\nkind: array\nenvs: {A: , B: ''}\n"
    "tasks:\n- {name: one, envs: {C: }}\n- {name: two, envs: {C: fixed}}\n"
)


def test_variables_without_a_value_are_the_callers_where_they_stand() -> None:
    spec = parse(OPEN, caller={"A": "1", "C": "2", "B": "not asked for", "D": "nor this"})
    assert [dict(task.program.env) for task in spec.tasks] == [
        {"A": "1", "B": "", "C": "2"},
        {"A": "1", "B": "", "C": "fixed"},
    ]


def test_one_that_did_not_come_is_told_where_it_stands() -> None:
    with pytest.raises(InvalidJob) as failure:
        parse(OPEN, caller={"A": "1"})
    (problem,) = failure.value.problems
    assert (problem.key, problem.line) == ("tasks[0].envs.C", 7)
    assert "none came with the file" in problem.message
    assert parse(OPEN, caller={"A": "1"}, envs={"C": "3"}).tasks[0].program.env[2] == ("C", "3")


def test_values_make_no_difference_to_a_preview() -> None:
    assert dict(parse(OPEN).tasks[0].program.env) == {"A": "", "B": "", "C": ""}


@pytest.mark.parametrize("value", ["x" * 120_001, "a\0b"])
def test_a_value_of_the_caller_is_checked_as_others_are(value: str) -> None:
    with pytest.raises(InvalidJob) as failure:
        parse(OPEN, caller={"A": value, "C": ""})
    assert failure.value.problems[0].key == "envs.A"


@pytest.mark.parametrize(
    ("text", "words"), [("$0", "never runs"), ("$2000000", "at most"), ("5", "$5")]
)
def test_a_cap_is_money(text: str, words: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        parse(f"run: train\nresources: {{cpus: 1, memory: 1GiB}}\nmax_cost: {text}\n")
    (problem,) = caught.value.problems
    assert words in f"{problem.message} {problem.hint}"
