"""Users are told of keys of their job files that the policies of the partition do not read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eva_master.adapters.resolving.parse import parse_job
from eva_master.app.config import MasterConfig
from eva_master.app.master import partitions_of
from eva_master.app.policy_registry import policies
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.fleet.job_keys import DECLARED, OPTIONAL, SIZES, KeysRead
from eva_master.model.fleet.partitions import Partition
from eva_master.model.job import JobSpec
from eva_master.model.resources import Resources
from eva_master.policies import eva
from eva_master.ports import PolicyKind
from eva_wire.values.ids import Family, Price

SOLD = Offering(InstanceType("c.9", Family("c"), Resources(1, 9_000, 9_000)), Price(1))
JOB = "name: a\nrun: 'true'\nresources: {cpus: 1, memory: 1GiB}\n"
ARRAY = "kind: array\ntasks: 6\n"
STATED = {
    "pilots": ARRAY + "pilots: 2\n",
    "value": "value: {worth: $5}\n",
    "ps": "ps: {minibatch: 1s, update: 5ms, gradient: 1MiB}\n",
    "batch_size": "batch_size: 8\n",
    "model_size": "model_size: high\n",
    "dataset_size": "dataset_size: L\n",
    "dag": "dag: nightly\n",
    "latency": "latency: short\n",
    "tasks": "tasks: {least: 1, most: 4}\n",
}
EVA = {"name": "eva"}
SHORT = {"name": "cloudcoaster", "below": "90s"}
SLEARN, ASTRAEA = {"name": "slearn"}, {"name": "astraea"}
IN_FORCE: list[tuple[dict[str, Any], set[str]]] = [
    (EVA, {SIZES}),
    ({"name": "no_packing"}, set()),
    ({**EVA, "short": SHORT}, {SIZES, "latency"}),
    ({**SLEARN, "back": EVA}, {"pilots", "dag"}),
    ({"name": "slearn", "preset": "fifo"}, set()),
    ({**EVA, "short": {**SLEARN, "below": "90s"}}, {SIZES, "latency", "pilots", "dag"}),
    (ASTRAEA, {SIZES, "value"}),
    ({"name": "astraea_published", "options": {"ps_per_server": 4}}, {SIZES, "value", "ps"}),
    ({"name": "hadar_published"}, set()),
    (
        {"name": "hadar_published", "preset": "hadare"},
        {"batch_size", "model_size", "dataset_size"},
    ),
]


def spec(text: str) -> JobSpec:
    return parse_job(JOB + text, file_name="j", owner="me", catalog=(SOLD,), workdir=None)


def whole(policy: dict[str, Any]) -> Partition:
    return partitions_of(MasterConfig.model_validate({"policy": policy})).default


def test_every_optional_key_is_tried() -> None:
    assert STATED.keys() == OPTIONAL.keys()


@pytest.mark.parametrize(("policy", "read"), IN_FORCE, ids=[str(it) for it, _ in IN_FORCE])
@pytest.mark.parametrize("key", STATED)
def test_a_key_is_told_of_unless_a_policy_in_force_reads_it(
    policy: dict[str, Any], read: set[str], key: str
) -> None:
    home = whole(policy)
    notes = home.unread(spec(STATED[key]))
    assert len(notes) == (key not in read)
    assert home.keys is not None
    assert all(f"`{key}`" in note and home.keys.policy in note for note in notes)


def test_those_of_one_kind_are_told_together_and_what_is_not_stated_not_at_all() -> None:
    home = whole(EVA)
    assert home.unread(spec("")) == ()
    assert home.unread(spec("batch_size: 1\nmodel_size: small\ntasks: {least: 2, most: 2}\n")) == ()
    (note,) = home.unread(spec(STATED["pilots"] + STATED["value"]))
    assert note.startswith("`pilots`, `value`: the policy eva does not read these keys")


def test_forks_go_by_what_is_trained_under_every_policy() -> None:
    assert whole(EVA).unread(spec("forks: 2\ntotal_steps: 9\nbatch_size: 8\n")) == ()


def test_each_partition_has_its_own() -> None:
    parts = {
        "queue": {"policy": {**SLEARN, "back": EVA}},
        "main": {"policy": EVA, "default": True},
    }
    divided = partitions_of(MasterConfig.model_validate({"partitions": parts}))
    queue, main = (divided.home(name).unread(spec(STATED["pilots"])) for name in parts)
    assert (len(queue), len(main)) == (0, 1)


def test_a_policy_that_declares_nothing_gets_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = replace(eva.POLICY, reads=PolicyKind(name="", config=object, build=object).reads)
    monkeypatch.setattr(eva, "POLICY", kind)
    assert whole(EVA).unread(spec(STATED["pilots"])) == ()
    assert whole({**EVA, "short": SHORT}).unread(spec(STATED["latency"])) == ()


def test_the_policies_that_come_with_eva_all_declare() -> None:
    for name, kind in policies().items():
        assert kind.reads(kind.config()) is not None, name


def test_what_is_declared_are_keys() -> None:
    assert OPTIONAL.keys() > DECLARED
    assert KeysRead("p", frozenset(OPTIONAL)).policy == "p"
