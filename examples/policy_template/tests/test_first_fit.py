"""First fit keeps to what every policy must, and does what its name says."""

from __future__ import annotations

from eva_first_fit import POLICY

from eva_master.model.planning.plan import Plan
from eva_master.testing.policy_suite import PolicySuite, variants_of
from eva_master.testing.snapshots import Cluster, carried_out, offer, task


class TestPolicy(PolicySuite):
    """First fit with its defaults, and with each of its presets."""

    variants = variants_of(POLICY)


def decide(cluster: Cluster, **options: int) -> Plan:
    plan, _ = POLICY.build(POLICY.config(**options)).plan(cluster.snapshot(), None)
    return plan


def four_tasks() -> Cluster:
    cluster = Cluster(offer("small", (0, 2, 4), 0.1), offer("large", (0, 8, 16), 0.3))
    cluster.instance("a", "large").instance("b", "large")
    cluster.job("0", task(any=(0, 4, 8)), on=["a"]).job("1", task(any=(0, 2, 4)), on=["b"])
    return cluster.job("2", task(any=(0, 4, 8))).job("3", task(any=(0, 2, 4)))


def test_tasks_join_the_first_instance_with_room() -> None:
    plan = decide(four_tasks())
    assert {entry.run: entry.on for entry in plan.entries} == {"2/0": "a", "3/0": "b"}


def test_an_instance_is_shared_by_no_more_than_the_setting_says() -> None:
    plan = decide(four_tasks(), most_tasks=1)
    assert sorted(launch.offering.type.name for launch in plan.launches) == ["large", "small"]
    after = carried_out(four_tasks().snapshot(), plan)
    assert {len(instance.residents) for instance in after.instances} == {1}
