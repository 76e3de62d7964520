"""Which settings and job files are refused, with line and key."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import pytest

from eva_master.adapters.resolving.parse import parse_job
from eva_master.adapters.resolving.partition import Placement
from eva_master.app.config import MasterConfig
from eva_master.app.master import control_settings
from eva_master.app.policy_registry import policies
from eva_master.app.sections.policies import built, source
from eva_master.app.settings import load_master_config
from eva_master.model.accounting.tenants import OwnerPatterns
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.fleet.partitions import Offers, Partition, Partitions
from eva_master.model.resources import Resources
from eva_wire.values.errors import EvaError, InvalidConfig, InvalidJob, Unplaceable
from eva_wire.values.ids import Family, InstanceId, Price


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("EVA_")]:
        monkeypatch.delenv(name)


def load(tmp_path: Path, text: str) -> MasterConfig:
    file = tmp_path / "master.yaml"
    file.write_text(f"state_dir: {tmp_path}\n{text}")
    return load_master_config(policies=policies(), file=file)


GOOD = """\
tenants: {vision: {owners: [ana]}}
partitions:
  short:
    policy: {name: no_packing}
    offerings: {families: [c7i], purchase: [on-demand]}
    limits: {jobs: 10, tasks: 100, instances: 3}
    budget: {usd_per_hour: 2.5, usd_per_month: 300}
    submitters: [ana, "b*"]
    rule:
      owners: [ana]
      tenants: [vision]
      workloads: [etl, "train-*"]
      most: {gpus: 0, cpus: 2, memory: 4GiB}
      spot: false
      duration: {below: 10m}
  main: {default: true}
"""


@pytest.mark.parametrize("across", [True, False])
def test_whether_preemption_crosses_partitions_is_a_setting(tmp_path: Path, across: bool) -> None:
    more = "preemption: suspend\nlimits: {priority: 5}\n" + "preemption_across: true\n" * across
    assert control_settings(load(tmp_path, GOOD + more)).preemption_across is across


def test_settings_become_partitions(tmp_path: Path) -> None:
    short, main = control_settings(load(tmp_path, GOOD)).partitions.parts
    assert (short.name, short.policy, main.policy) == ("short", "no_packing", "eva")
    assert (short.budget.per_hour, short.budget.per_month) == (2_500_000, 300_000_000)
    assert (short.limits.jobs, short.limits.tasks, short.limits.instances) == (10, 100, 3)
    assert short.admits("bo")
    assert not short.admits("carl")
    assert short.rule is not None
    assert short.rule.below_ms == 600_000
    assert main.default
    assert not control_settings(load(tmp_path, "")).partitions.divided


RACK = "  rack1: {type: own.4, capacity: {cpus: 4, memory: 8GiB}}\n"


@pytest.mark.parametrize(
    ("text", "line", "key", "words"),
    [
        ("  a: {default: true}\n  b: {default: true}\n", 4, "partitions.b.default", "already"),
        ("  a: {}\n", 2, "partitions", "no partition is for the jobs"),
        ("  a b: {default: true}\n", 3, "partitions.a b", "cannot name a partition"),
        ("  a: {default: true}\n  a: {}\n", 4, "partitions.a", "twice"),
        ("  a: {default: 1}\n", 3, "partitions.a.default", "true or false"),
        ("  a: {default: true, polcy: {}}\n", 3, "partitions.a.polcy", "unknown key"),
        (
            "  a: {default: true, policy: {name: evan}}\n",
            3,
            "partitions.a.policy.name",
            "no policy 'evan'",
        ),
        (
            "  a: {default: true, policy: {options: {nope: 1}}}\n",
            3,
            "partitions.a.policy.options.nope",
            "no option",
        ),
        (
            "  a: {default: true, offerings: {families: [c7]}}\n",
            3,
            "partitions.a.offerings.families[0]",
            "nothing is sold in 'c7'",
        ),
        (
            "  a: {default: true, offerings: {zones: [mars]}}\n",
            3,
            "partitions.a.offerings.zones[0]",
            "nothing is sold in 'mars'",
        ),
        (
            "  a: {default: true, offerings: {purchase: [spot]}}\n",
            3,
            "partitions.a.offerings",
            "sells nothing",
        ),
        ("  a: {default: true, submitters: [x]}\n", 3, "partitions.a.submitters", "default"),
        ("  a: {default: true, rule: {}}\n", 3, "partitions.a.rule", "every job"),
        (
            "  a: {default: true, rule: {tenants: [x]}}\n",
            3,
            "partitions.a.rule.tenants[0]",
            "no tenant 'x'",
        ),
        (
            "  a: {default: true, rule: {duration: {below: 1m, above: 2m}}}\n",
            3,
            "partitions.a.rule.duration",
            "above and below",
        ),
        (
            "  a: {default: true, budget: {usd_per_hour: -1}}\n",
            3,
            "partitions.a.budget.usd_per_hour",
            "greater than 0",
        ),
        (
            "  a: {default: true, budget: {usd_per_month: 0.0000001}}\n",
            3,
            "partitions.a.budget.usd_per_month",
            "millionths",
        ),
        ("  a: {default: true}\n  A: {}\n", 4, "partitions.A", "upper and lower case"),
        (
            "  a: {default: true}\n  b: {offerings: {nodes: [rack1]}}\n"
            "  c: {offerings: {nodes: [rack1]}}\nnodes:\n" + RACK,
            5,
            "partitions.c.offerings.nodes[0]",
            "in partition 'b' already",
        ),
        (
            "  a: {default: true, offerings: {nodes: [rack2]}}\nnodes:\n" + RACK,
            3,
            "partitions.a.offerings.nodes[0]",
            "no owned node 'rack2'",
        ),
        (
            "  a: {default: true}\n" + "".join(f"  p{n}: {{}}\n" for n in range(16)),
            2,
            "partitions",
            "at most 16 entries",
        ),
        (
            "  a: {default: true, policy: {name: eva, short: {name: evan}}}\n",
            3,
            "partitions.a.policy.short.name",
            "no policy 'evan'",
        ),
        (
            "  a: {default: true, policy: {short: {name: stratus, options: {nope: 1}}}}\n",
            3,
            "partitions.a.policy.short.options.nope",
            "no option",
        ),
        (
            "  a: {default: true, policy: {short: {below: 0s}}}\n",
            3,
            "partitions.a.policy.short.below",
            "greater than 0",
        ),
        (
            "  a: {default: true, policy: {short: {short: {}}}}\n",
            3,
            "partitions.a.policy.short.short",
            "unknown key",
        ),
        ("  a: {default: true, limits: {jobs: 0}}\n", 3, "partitions.a.limits.jobs", "greater"),
        ("  a: {default: true, rule: {owners: [a*b*]}}\n", 3, "rule.owners[0]", "two '*'"),
    ],
)
def test_bad_settings_are_refused_with_line_and_key(
    tmp_path: Path, text: str, line: int, key: str, words: str
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        load(tmp_path, f"partitions:\n{text}")
    told = [(it.line, it.key, it.message) for it in refused.value.problems]
    assert any(at == line and key in where and words in what for at, where, what in told), told


def test_a_partition_has_a_policy_for_short_jobs_in_front_of_another(tmp_path: Path) -> None:
    text = "partitions: {main: {default: true, policy: {short: {name: stratus, below: 5m}}}}\n"
    config = load(tmp_path, text)
    (main,) = control_settings(config).partitions.parts
    assert main.policy == "stratus+eva"
    section = config.policy_sections["main"]
    assert built(section).name == "stratus+eva"
    options, path = source(section)
    assert options == {"front": ["stratus", {}], "back": ["eva", {}], "below_ms": 300_000}
    module, _, function = path.partition(":")
    assert getattr(import_module(module), function)("", options).name == "stratus+eva"
    assert config.shown()["partitions"]["main"]["policy"]["short"]["name"] == "stratus"


def test_a_node_is_of_the_partition_that_names_it(tmp_path: Path) -> None:
    text = (
        "partitions:\n  racks: {offerings: {nodes: [rack1]}}\n  main: {default: true}\n"
        "nodes:\n" + RACK + "  desk: {type: own.2, capacity: {cpus: 2, memory: 4GiB}}\n"
    )
    settings = control_settings(load(tmp_path, text))
    racks, main = settings.partitions.parts
    rack, desk = (settings.nodes[InstanceId(name)].offering for name in ("rack1", "desk"))
    bought = Offering(InstanceType("c7i.large", Family("c7i"), Resources(0, 2000, 4096)), Price(1))
    assert [racks.sells(it) for it in (rack, desk, bought)] == [True, False, False]
    assert [main.sells(it) for it in (rack, desk, bought)] == [False, True, True]
    assert settings.partitions.of_node(InstanceId("rack1")) is racks
    assert settings.partitions.of_node(InstanceId("desk")) is main
    for partition, offering in ((racks, rack), (main, desk)):
        totals = settings.nodes_of(partition)
        assert (totals.count, totals.per_hour) == (1, offering.price)
        assert totals.of_offering == {offering.id: 1}


ROOM = Resources(0, 4000, 8192)
CATALOG = (
    Offering(InstanceType("c.4", Family("c"), ROOM), Price(1)),
    Offering(InstanceType("g.1", Family("g"), Resources(1, 1000, 1024)), Price(1)),
)
PARTS = Partitions(
    (
        Partition("gpus", offers=Offers(families=frozenset({"g"}))),
        Partition("ours", submitters=OwnerPatterns(("ana",))),
        Partition("main", default=True),
    )
)
JOB = "name: j\nrun: 'true'\nresources: {cpus: 2, memory: 1GiB}\n"


def parse(
    text: str, owner: str = "bo", *, anywhere: bool = False, parts: Partitions = PARTS
) -> str:
    placement = Placement(parts, lambda spec: parts.chosen(spec, None), anywhere)
    return parse_job(
        text, file_name="job.yaml", owner=owner, catalog=CATALOG, workdir=None, placement=placement
    ).partition


def test_a_job_file_names_a_partition() -> None:
    assert parse(JOB) == "main"
    assert parse(f"{JOB}partition: ours\n", "ana") == "ours"
    assert parse(f"{JOB}partition: ours\n", anywhere=True) == "ours"
    assert parse(JOB, parts=Partitions()) == ""


@pytest.mark.parametrize(
    ("name", "error", "key", "words"),
    [
        ("our", InvalidJob, "partition", "did you mean 'ours'?"),
        ("ours", InvalidJob, "partition", "bo may not run jobs in partition 'ours'"),
        ("gpus", Unplaceable, "resources", "in partition gpus, no instance type"),
        ("[x]", InvalidJob, "partition", ""),
    ],
)
def test_a_job_that_cannot_run_there_is_refused(
    name: str, error: type[EvaError], key: str, words: str
) -> None:
    with pytest.raises(error) as refused:
        parse(f"{JOB}partition: {name}\n")
    told = [(it.line, it.key, f"{it.message} {it.hint}") for it in refused.value.problems]
    assert any(at in (3, 4) and key in where and words in what for at, where, what in told), told


def test_a_cluster_that_is_not_divided_has_no_partitions_to_name() -> None:
    with pytest.raises(InvalidJob, match=r":4:1: partition: there is no partition 'main'"):
        parse(f"{JOB}partition: main\n", parts=Partitions())
