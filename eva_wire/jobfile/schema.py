"""The schema of job files, with effective keys only."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)

from eva_wire.jobfile.scalars import (
    Command,
    Count,
    Directory,
    Dockerfile,
    ExitCodes,
    Image,
    Input,
    Label,
    Members,
    Moment,
    Name,
    PositiveDuration,
    Rate,
    Reference,
    ShortDuration,
    Text,
    Value,
    Variable,
    check_half_life,
    check_loss,
    check_max_cost,
    check_wait,
    check_worth,
    refusal,
)
from eva_wire.text.quantities import Dollars, DollarsPerHour, Duration, MilliCpus, Size
from eva_wire.values.bounds import (
    LARGEST_BATCH,
    MOST_FORKS,
    MOST_MEMBERS,
    MOST_PILOTS,
    MOST_SECRETS,
    MOST_TASKS,
)
from eva_wire.values.notices import OF_JOB_FILES

MOST_LABELS = 16
"""Labels of a job at most."""
TEXT_UNDER = frozenset({"envs", "labels"})
"""Keys whose mappings keep numbers and truth values as they are written."""
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_RULES = (
    "use up to 63 letters, digits, '.', '_' and '-', the first and the last a letter or digit"
)
MOST_BEFORE = 1_000
"""Jobs after which one may run."""


def _form(value: Any) -> str:
    """Which form the tasks of a job have."""
    if isinstance(value, list):
        return "list"
    return "map" if isinstance(value, dict | ElasticSection) else "number"


def _check_key(key: str) -> str:
    if not _LABEL.fullmatch(key):
        raise refusal(f"{key[:80]!r} cannot be the key of a label", _LABEL_RULES)
    return key


def _check_value(value: str) -> str:
    if value and not _LABEL.fullmatch(value):
        raise refusal(f"{value[:80]!r} cannot be the value of a label", _LABEL_RULES)
    return value


Labels = Annotated[
    dict[
        Annotated[str, AfterValidator(_check_key)],
        Annotated[
            str,
            AfterValidator(_check_value),
            # Numbers are kept as they are written.
            WithJsonSchema({"type": ["string", "number", "boolean"]}),
        ],
    ],
    Field(max_length=MOST_LABELS),
]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ResourcesSection(_Section):
    """The resources that a task takes of an instance."""

    gpus: Annotated[Count, Field(ge=0, le=1_024)] = Field(
        default=0, description="Whole GPUs; none if absent."
    )
    cpus: Annotated[MilliCpus, Field(gt=0)] | None = Field(
        default=None, description="vCPUs, to a thousandth."
    )
    memory: Annotated[Size, Field(gt=0, le=2**40)] | None = Field(
        default=None, description="Memory, with its unit."
    )
    disk: Annotated[Size, Field(gt=0, le=2**34)] | None = Field(
        default=None, description="Disk beside the image, with its unit; none if absent."
    )


class BuildSection(_Section):
    """An image that is built from a Dockerfile, on the instance that needs it."""

    context: Directory | None = Field(
        default=None,
        description="Directory that is uploaded, relative to the job file; `.` if absent.",
    )
    dockerfile: Dockerfile = Field(
        default="Dockerfile", description="Path of the Dockerfile in the context."
    )


ByFamily = dict[str, ResourcesSection | None]


class StorageSection(_Section):
    """Files that the tasks read."""

    inputs: dict[Name, Input] = Field(
        default={},
        description=(
            "URL of each input, or job:JOB/outputs for what an earlier job of yours has written; "
            "found by the task in $EVA_STORAGE/inputs/NAME."
        ),
    )


class DelaysSection(_Section):
    """The delays of a move as the user knows them. Measured delays take precedence."""

    checkpoint: ShortDuration | None = Field(
        default=None, description="From stop to checkpoint stored."
    )
    launch: ShortDuration | None = Field(default=None, description="From start to first progress.")


class ElasticSection(_Section):
    """How many members of a gang run: as many as pay, between two bounds."""

    least: Annotated[Count, Field(ge=1, le=1_000)] = Field(
        description="The fewest members that run."
    )
    most: Annotated[Count, Field(ge=1, le=1_000)] = Field(description="The most.")
    throughput: Annotated[dict[Members, Rate], Field(max_length=1_000)] = Field(
        default={},
        description="Iterations per second of the gang, by its number of members; else learned.",
    )
    throughput_apart: Annotated[dict[Members, Rate], Field(max_length=1_000)] = Field(
        default={},
        description="The same while members are on several instances; absent: as `throughput`.",
    )


class ParameterServersSection(_Section):
    """How workers train that send their gradients to parameter servers."""

    minibatch: ShortDuration = Field(description="Time of a mini-batch on a worker.")
    update: ShortDuration = Field(default=0, description="Time of the update after it.")
    gradient: Annotated[Size, Field(ge=0, le=2**30)] = Field(
        description="What a worker sends, and receives, for each mini-batch, with its unit."
    )


class ValueSection(_Section):
    """Worth of a finished job: it falls with time, never below zero."""

    worth: Annotated[Dollars, AfterValidator(check_worth)] = Field(
        description="If it is done in the moment in which it is submitted."
    )
    loses: Annotated[DollarsPerHour, AfterValidator(check_loss)] | None = Field(
        default=None, description="What it loses with every hour until it is done."
    )
    halves: Annotated[PositiveDuration, AfterValidator(check_half_life)] | None = Field(
        default=None, description="The time in which what it is worth halves, over and over."
    )


class DeadlineSection(_Section):
    """When the job is to be done."""

    at: Moment | None = Field(
        default=None, description="The time, with its zone; `deadline: TIME` for short."
    )
    within: PositiveDuration | None = Field(
        default=None, description="How long after its submission, in place of a time."
    )

    @model_validator(mode="before")
    @classmethod
    def _time(cls, told: Any) -> Any:
        if isinstance(told, str | int | float) and not isinstance(told, bool):
            return {"at": told}
        return told


class MergeSection(_Section):
    """How the forks of a job are merged."""

    every: Annotated[ShortDuration, Field(ge=1_000)] = Field(
        default=60_000,
        description="From one merge to the next.",
        json_schema_extra={"default": "60s"},
    )
    check: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None,
        description=(
            "The program's own figure by which a merge is judged, such as loss. If it gets worse "
            "by merging twice in a row, the job goes on unforked."
        ),
    )
    tolerance: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.02,
        description="How much worse a merge may be than the best fork, as a part of its figure.",
    )
    better: Literal["smaller", "larger"] | None = Field(
        default=None,
        description=(
            "Which figure is better; by default larger for names that begin with accuracy or end "
            "with acc."
        ),
    )


def _check_equal(entry: Any) -> Any:
    if isinstance(entry, dict) and (elastic := {"least", "most"} & entry.keys()):
        raise refusal(
            f"{sorted(elastic)[0]!r} has no place in a list: an elastic gang has equal tasks",
            "write `tasks: {least: 1, most: 8}` instead of the list",
        )
    return entry


class TaskSection(_Section):
    """One task of a job. Absent keys are taken from the job."""

    _equal = model_validator(mode="before")(_check_equal)

    name: Name
    run: Command | None = Field(default=None, description="Script of this task.")
    image: Image | None = Field(default=None, description="Container image of this task.")
    build: BuildSection | None = Field(
        default=None, description="How to build the image of this task instead."
    )
    workload: Label | None = Field(default=None, description="Tasks of one workload behave alike.")
    resources: ResourcesSection | None = Field(default=None, description="What this task takes.")
    resources_by_family: ByFamily | None = Field(
        default=None, description="What it takes per family."
    )
    envs: dict[Variable, Value] = Field(default={}, description="Added to the job's variables.")


class AfterSection(_Section):
    """A job after which this one runs, and what has to have become of it."""

    job: Reference = Field(description="Its id or name.")
    when: Literal["succeeded", "ended"] = Field(
        default="succeeded",
        description="ended: also if it has failed or was cancelled.",
    )


Predecessor = Annotated[
    Annotated[Reference, Tag("name")] | Annotated[AfterSection, Tag("map")],
    Discriminator(lambda value: "map" if isinstance(value, dict | AfterSection) else "name"),
]


class JobFile(_Section):
    """A job: what to run, on which resources, and whether its tasks run together."""

    name: Name | None = Field(
        default=None, description="Active jobs may share it; ids tell them apart."
    )
    workload: Label | None = Field(
        default=None,
        description="Tasks of one workload behave alike: what is learned of one holds for all.",
    )
    image: Image | None = Field(
        default=None, description="Container image that tasks run in; the cluster's if absent."
    )
    build: BuildSection | None = Field(
        default=None, description="How to build the image, if it does not exist yet."
    )
    workdir: Text | None = Field(
        default=None, description="Directory that is uploaded and becomes the working directory."
    )
    run: Command | None = Field(default=None, description="Script that each task runs.")
    resources: ResourcesSection | None = Field(default=None, description="What each task takes.")
    resources_by_family: ByFamily = Field(
        default={},
        description=(
            "What each task takes on instances of one family, where it differs from "
            "`resources`; null for a family that it cannot run on."
        ),
    )
    throughput: (
        Annotated[
            Annotated[Rate, Tag("number")] | Annotated[dict[str, Rate], Tag("map")],
            Discriminator(lambda value: "map" if isinstance(value, dict) else "number"),
        ]
        | None
    ) = Field(
        default=None, description="Iterations per second alone on an instance, or one per family."
    )
    reports_steps: bool = Field(
        default=True,
        description=(
            "Whether the program may report iterations; one that does not need not run alone "
            "first to be measured."
        ),
    )
    total_steps: Annotated[Count, Field(gt=0, le=10**15)] | None = Field(
        default=None, description="Iterations until each task is done."
    )
    duration: PositiveDuration | None = Field(
        default=None,
        description=(
            "How long one task takes alone, on the family on which its work costs least. "
            "An estimate: nothing is stopped when it is exceeded."
        ),
    )
    tasks: Annotated[
        Annotated[Count, Field(ge=1, le=MOST_TASKS), Tag("number")]
        | Annotated[list[TaskSection], Field(min_length=1, max_length=MOST_MEMBERS), Tag("list")]
        | Annotated[ElasticSection, Tag("map")],
        Discriminator(_form),
    ] = Field(
        default=1,
        description=(
            "Number of identical tasks, or a list of different ones; or how many tasks of an "
            "elastic gang run at least and at most."
        ),
    )
    kind: Literal["gang", "array"] = Field(
        default="gang",
        description="gang: all tasks run or none does. array: they are independent.",
    )
    split_batch: bool = Field(
        default=False,
        description=(
            "Whether the program of a gang does the part of each batch that $EVA_BATCH_SHARE says: "
            "more of it where it runs faster."
        ),
    )
    batch_size: Annotated[Count, Field(ge=1, le=LARGEST_BATCH)] | None = Field(
        default=None, description="Examples in a mini-batch, for first guesses of rates."
    )
    model_size: Literal["small", "modest", "high", "extra high"] | None = Field(
        default=None, description="How complex the model is, likewise."
    )
    dataset_size: Literal["S", "M", "L", "XL"] | None = Field(
        default=None, description="How large the dataset is, likewise."
    )
    concurrency: Annotated[Count, Field(ge=1, le=MOST_TASKS)] | None = Field(
        default=None, description="How many tasks of an array may have a place at a time."
    )
    stragglers: Literal["keep", "duplicate"] = Field(
        default="keep",
        description=(
            "duplicate: a task of an array that runs for much longer than expected gets a second "
            "run where there is room; the first of the two to succeed counts."
        ),
    )
    on_failure: Literal["continue", "stop"] | None = Field(
        default=None,
        description=(
            "Whether the other tasks of an array run on after one that failed for good. Left out: "
            "they do, unless the first ten tasks that end have all failed."
        ),
        json_schema_extra={"default": "continue"},
    )
    forks: Annotated[Count, Field(ge=1, le=MOST_FORKS)] = Field(
        default=1,
        description=(
            "How many copies of the job may train at once where there is room, each on an instance "
            "of its own; their weights are merged."
        ),
    )
    merge: MergeSection | None = Field(
        default=None, description="How the forks of the job are merged."
    )
    ps: ParameterServersSection | None = Field(
        default=None,
        description=(
            "How its workers train with parameter servers, for policies that plan with these."
        ),
    )
    pilots: Annotated[Count, Field(ge=1, le=MOST_PILOTS)] | None = Field(
        default=None,
        description=(
            "How many tasks of an array run first, where the cluster learns from some how long the "
            "others take; by default that is up to it."
        ),
    )
    value: ValueSection | None = Field(
        default=None,
        description=(
            "What it is worth that the job is done, for policies that lend GPUs between tenants. "
            "By default what its work costs, which it loses while that work would take once more."
        ),
    )
    latency: Literal["auto", "short", "long"] = Field(
        default="auto",
        description=(
            "Whether the job counts as short where the cluster keeps room for short jobs. auto: by "
            "how long its tasks are expected to take."
        ),
    )
    envs: dict[Variable, Value] = Field(
        default={}, description="Environment variables of every task."
    )
    secrets: Annotated[list[Variable], Field(max_length=MOST_SECRETS)] = Field(
        default=[],
        description=(
            "Environment variables of every task whose values the cluster keeps: "
            "`eva secret set NAME`."
        ),
    )
    storage: StorageSection = Field(
        default=StorageSection(), description="Files that the tasks read."
    )
    grace_period: ShortDuration = Field(
        default=60_000, description="From SIGTERM to SIGKILL.", json_schema_extra={"default": "60s"}
    )
    delays: DelaysSection = Field(
        default=DelaysSection(), description="What a move costs, until it was measured three times."
    )
    spot: Literal["never", "allowed", "only"] | None = Field(
        default=None,
        description="Whether the job may run on spot instances, which the cloud may take back; "
        "left out: never, but for short jobs where room is kept for these.",
        json_schema_extra={"default": "never"},
    )
    deadline: DeadlineSection | None = Field(
        default=None,
        description=(
            "When the job is to be done. While there is time to lose it may run on spot instances, "
            "after that it runs on others alone. How long it takes is told by `duration`, by "
            "`total_steps` or by earlier jobs."
        ),
    )
    deadline_miss: Literal["warn", "fail"] = Field(
        default="warn",
        description="Whether a job that is late goes on, as cheaply as it can, or is failed.",
    )
    spot_wait: Annotated[Duration, AfterValidator(check_wait)] = Field(
        default=0,
        description=(
            "How long a job without a deadline waits for a spot instance when it could run on "
            "demand, each time that it has no place. One with a deadline waits while that is "
            "cheaper and there is time to lose."
        ),
        json_schema_extra={"default": "0s"},
    )
    checkpoint_interval: PositiveDuration | None = Field(
        default=None,
        description=(
            "How often the program stores a checkpoint by itself: what a spot instance that goes "
            "without notice takes along. By default notice is relied on."
        ),
    )
    retries: Annotated[Count, Field(ge=0, le=1_000)] = Field(
        default=3, description="How many failures are followed by another attempt."
    )
    retry_on: ExitCodes = Field(
        default=[],
        description=(
            "Exit codes, or ranges such as 64-78, that are always followed by another attempt "
            "while there are retries, also where the program is certain to fail again."
        ),
    )
    fail_on: ExitCodes = Field(
        default=[], description="Exit codes, likewise, that are never followed by another attempt."
    )
    max_duration: PositiveDuration | None = Field(
        default=None,
        description="Running time after which the job is failed; an array's from its first start.",
    )
    max_cost: Annotated[Dollars, AfterValidator(check_max_cost)] | None = Field(
        default=None,
        description=(
            "Most that the job may cost, such as $5: all attempts, runs and forks. Before that it "
            "is suspended from a checkpoint, until `eva resume --max-cost` raises it."
        ),
    )
    priority: Annotated[Count, Field(ge=0, le=1_000_000)] = Field(
        default=0, description="Larger is more urgent."
    )
    partition: Label | None = Field(
        default=None,
        description="Where to run; else the first partition whose rule matches, else the default.",
    )
    after: Annotated[list[Predecessor], Field(max_length=MOST_BEFORE)] = Field(
        default=[],
        description=(
            "Ids or names of jobs of yours that have to succeed before this one runs; as "
            "`{job: NAME, when: ended}` one that only has to end, in whatever way."
        ),
    )
    labels: Labels = Field(
        default={},
        description=(
            "Text of your own, as `KEY: VALUE`, for `eva ls -l` and the rules of partitions."
        ),
    )
    notify: Annotated[
        list[Literal["end", "failure", "late", "capped"]], Field(max_length=len(OF_JOB_FILES))
    ] = Field(
        default=[],
        description=(
            "Of what of this job the operator's receivers of notices are told: its end, each "
            "failure, that it is late, that it comes to its max_cost."
        ),
    )
    unique: bool = Field(
        default=False,
        description="Whether no other active job of yours may have this name.",
    )
    zones: Literal["same", "any"] = Field(
        default="same",
        description=(
            "Whether all tasks of a gang run in one availability zone, where one has room for all "
            "of them, or in any."
        ),
    )
    dag: Label | None = Field(
        default=None,
        description=(
            "Label of the DAG of which this job is a stage, the same each time that it runs. "
            "Stages that name each other in `after` are one DAG, whose run times are learned "
            "together."
        ),
    )
