"""Laws of every policy, as tests over any of its variants."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from eva_master.control.rounds.rules.claimed_room import kept_off
from eva_master.model.planning.plan import Assign, Hold, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.claims.asking import ask
from eva_master.packing.claims.making import Rules, with_claims
from eva_master.packing.elastic.fixed import built
from eva_master.packing.plan_effect import PlanEffect
from eva_master.ports import Planned, Policy, PolicyKind
from eva_master.testing.claim_checks import check_claims
from eva_master.testing.clusters import clusters
from eva_master.testing.found import FOUND
from eva_master.testing.plan_checks import check, quiet
from eva_master.testing.snapshots import Amounts, Cluster, carried_out, ended, offer, table, task
from eva_master.testing.turns import check_turns, lease_ms
from eva_wire.values.ids import InstanceId, Millis, RunId

FEW = 5
"""Rounds in which a cluster has to come to rest."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A policy with options of its own.

    Attributes:
        options: Over the policy's defaults.
    """

    kind: PolicyKind
    options: Mapping[str, Any] = field(default_factory=dict)

    def make(self, **more: Any) -> Policy:
        """Build the policy, with more options than its own if there are any."""
        return built(self.kind, self.kind.config(**{**self.options, **more}))

    def takes_turns(self, snapshot: Snapshot, *, event: bool) -> bool:
        """Check the law of policies that time-share, if this is one; see `turns.check_turns`."""
        if not self.kind.time_shares:
            return False
        lease = lease_ms(self.kind.config(**self.options))
        check_turns(self.make(), settled(snapshot), lease, event=event)
        return True

    def takes(self, option: str) -> bool:
        """Whether the policy has an option of this name."""
        return option in {option_field.name for option_field in fields(self.kind.config)}


def variants_of(kind: PolicyKind) -> dict[str, Variant]:
    """A policy with its defaults, and with each of its presets."""
    presets = kind.presets.items()
    named = {f"{kind.name}:{preset}": Variant(kind, options) for preset, options in presets}
    return {kind.name: Variant(kind), **named}


def later(snapshot: Snapshot, *, event: bool = False, minutes: int = 5) -> Snapshot:
    """The next round of a cluster in which nothing changed.

    Args:
        snapshot: The last round's.
        event: Whether a job came and went.
        minutes: From one to the other.
    """
    return replace(
        snapshot,
        now_ms=Millis(snapshot.now_ms + minutes * 60_000),
        arrivals=snapshot.arrivals + event,
        completions=snapshot.completions + event,
    )


def settled(snapshot: Snapshot) -> Snapshot:
    """The cluster a little later: by then everything is available that ever will be."""
    return later(snapshot)


def at_rest(
    policy: Policy, snapshot: Snapshot, memory: PolicyMemory | None = None, *, event: bool
) -> tuple[Snapshot, PolicyMemory | None]:
    """The cluster once a round changes nothing.

    Args:
        policy: Plans the rounds.
        snapshot: Where they begin.
        memory: Of the round before.
        event: Whether a job comes and goes between any two of them.

    Raises:
        AssertionError: There is no such round soon.
    """
    for _ in range(FEW):
        plan, memory = policy.plan(snapshot, memory)
        if quiet(plan):
            return snapshot, memory
        snapshot = later(carried_out(snapshot, plan), event=event)
    raise AssertionError(f"after {FEW} rounds there is still this to do: {plan}")


def limited(snapshot: Snapshot) -> Snapshot:
    """A cluster whose every offering is limited, to one more than there are at most."""
    used = Counter(view.offering.id for view in snapshot.instances)
    catalog = (
        replace(
            offering,
            limit=used[offering.id] + number % 2 if offering.limit is None else offering.limit,
        )
        for number, offering in enumerate(snapshot.catalog)
    )
    return replace(snapshot, catalog=tuple(catalog))


def planned(policy: Policy, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
    """The plan for a snapshot with claims, and what is left of it by the stage that checks them."""
    plan, memory = ask(policy, snapshot, memory)
    return kept_off(PlanEffect(snapshot, plan), snapshot.claims).plan, memory


def journalled(memory: PolicyMemory | None) -> PolicyMemory | None:
    """A memory as it comes back from the journal."""
    return memory and replace(memory, data=json.loads(json.dumps(memory.data)))


def types(*sizes: Amounts) -> Cluster:
    """An empty cluster that sells a type of each size, the first for a dollar, then for more."""
    return Cluster(*(offer(f"t{n}", size, 1.0 + n) for n, size in enumerate(sizes)))


def drawn(examples: int) -> settings:
    """Settings of a test over clusters that are drawn; a subclass may run the same test again."""
    suppressed = [*settings().suppress_health_check, HealthCheck.differing_executors]
    return settings(deadline=None, max_examples=examples, suppress_health_check=suppressed)


def with_found(test: Callable[..., None]) -> Callable[..., None]:
    """Have a test over clusters begin with those that policies once failed on, by their names.

    Hypothesis writes down each example before it is tried, which for a whole cluster takes longer
    than most policies' plans.
    """

    @wraps(test)
    def over(*arguments: Any, snapshot: Snapshot | str, **more: Any) -> None:
        cluster = FOUND[snapshot] if isinstance(snapshot, str) else snapshot
        test(*arguments, snapshot=cluster, **more)

    begins: Callable[..., None] = over
    for name in FOUND:
        begins = example(snapshot=name)(begins)
    return begins


class PolicySuite:
    """The tests; a subclass says over what, and is named ``Test...``.

    Attributes:
        variants: By a name that reports use; see `variants_of`.
    """

    variants: ClassVar[Mapping[str, Variant]] = {}

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test for every variant that it applies to."""
        if "variant" in metafunc.fixturenames:
            names = sorted(self.variants)
        elif "explained" in metafunc.fixturenames:
            names = sorted(
                name for name, variant in self.variants.items() if variant.takes("explained")
            )
        else:
            return
        argument = "variant" if "variant" in metafunc.fixturenames else "explained"
        metafunc.parametrize(argument, [self.variants[name] for name in names], ids=names)

    # -- what it is --------------------------------------------------------------------------------

    def test_a_policy_says_who_it_is_and_its_config_has_defaults(self, variant: Variant) -> None:
        """Name, frozen config and defaults are as `ports.PolicyKind` says."""
        kind = variant.kind
        assert kind.build(kind.config()).name == kind.name
        assert kind.config.__dataclass_params__.frozen

    def test_options_are_of_the_types_that_the_config_declares(self, variant: Variant) -> None:
        """Settings are checked by the config's types, so presets have to pass that check."""
        checked = TypeAdapter(variant.kind.config).validate_python(dict(variant.options))
        assert checked == variant.kind.config(**variant.options)

    # -- plans over a cluster's life ---------------------------------------------------------------

    @drawn(8)
    @given(snapshot=clusters())
    @with_found
    def test_plans_are_lawful_over_a_cluster_s_life(
        self, variant: Variant, snapshot: Snapshot
    ) -> None:
        """Every plan keeps to the rules of `plan_checks.check` while jobs come and go."""
        policy = variant.make()
        memory: PolicyMemory | None = None
        for step in range(3):
            plan, memory = policy.plan(snapshot, memory)
            check(snapshot, plan)
            snapshot = carried_out(snapshot, plan)
            first = [job.id for job in snapshot.jobs][:1] if step else []
            snapshot = ended(replace(snapshot, now_ms=Millis(snapshot.now_ms + 300_000)), *first)

    @drawn(6)
    @given(snapshot=clusters())
    def test_a_limit_of_the_moment_counts_for_what_was_bought_without(
        self, variant: Variant, snapshot: Snapshot
    ) -> None:
        """A quota of the cloud limits types that had no limit when their instances came."""
        snapshot = limited(snapshot)
        limits = {offering.id: offering.limit for offering in snapshot.catalog}
        bought = tuple(
            replace(
                view,
                offering=replace(
                    view.offering, limit=limits.get(view.offering.id, view.offering.limit)
                ),
            )
            for view in snapshot.instances
        )
        plan, _ = variant.make().plan(snapshot, None)
        with_limits, _ = variant.make().plan(replace(snapshot, instances=bought), None)
        assert plan.entries == with_limits.entries
        assert plan.launches == with_limits.launches

    @drawn(8)
    @given(snapshot=clusters())
    @with_found
    def test_a_plan_that_was_carried_out_is_followed_by_none(
        self, variant: Variant, snapshot: Snapshot
    ) -> None:
        """Planning again at once changes nothing more; who time-shares keeps to its leases."""
        if variant.takes_turns(snapshot, event=False):
            return
        policy = variant.make()
        plan, memory = policy.plan(snapshot, None)
        placed = carried_out(snapshot, plan)
        again, _ = policy.plan(placed, memory)
        assert quiet(again), again

    @drawn(8)
    @given(snapshot=clusters())
    @with_found
    def test_an_unchanging_cluster_comes_to_rest_and_stays_at_rest(
        self, variant: Variant, snapshot: Snapshot
    ) -> None:
        """After a few rounds nothing moves any more, however much time passes.

        Policies that time-share rest while everybody has a place.
        """
        if variant.takes_turns(snapshot, event=False):
            return
        policy = variant.make()
        still, memory = at_rest(policy, settled(snapshot), event=False)
        for minutes in (5, 60, 7 * 24 * 60):
            still = later(still, minutes=minutes)
            plan, memory = policy.plan(still, memory)
            assert quiet(plan), plan

    @drawn(8)
    @given(snapshot=clusters())
    @with_found
    def test_a_cluster_comes_to_rest_while_jobs_come_and_go(
        self, variant: Variant, snapshot: Snapshot
    ) -> None:
        """Events that leave the jobs as they were never move tasks back and forth.

        How much happens may change what pays, so there may be moves after a long time, but few.
        """
        if variant.takes_turns(snapshot, event=True):
            return
        policy = variant.make()
        still, memory = at_rest(policy, settled(snapshot), event=True)
        for minutes in (5, 60, 7 * 24 * 60):
            still = later(still, event=True, minutes=minutes)
            still, memory = at_rest(policy, still, memory, event=True)
            # A round that finds nothing to do does so not by luck alone.
            still = later(still, event=True)
            plan, memory = policy.plan(still, memory)
            assert quiet(plan), plan

    # -- claims ----------------------------------------------------------------------------------

    @drawn(6)
    @given(snapshot=clusters().map(limited), patient=st.booleans())
    def test_claimed_room_is_used_by_its_claimants_alone(
        self, variant: Variant, snapshot: Snapshot, *, patient: bool
    ) -> None:
        """No other task run comes to room that is kept, unless the plan serves the claim."""
        claimed = with_claims(snapshot, Rules(patience_ms=0 if patient else None))
        plan, _ = planned(variant.make(), claimed, None)
        check(snapshot, plan, explained=False)
        check_claims(claimed, plan)

    @drawn(6)
    @given(snapshot=clusters().map(limited), patient=st.booleans())
    def test_a_cluster_with_an_open_claim_comes_to_rest(
        self, variant: Variant, snapshot: Snapshot, *, patient: bool
    ) -> None:
        """Room that is kept has no policy plan for ever, be there events or none."""
        if variant.kind.time_shares:
            return
        policy, still = variant.make(), settled(snapshot)
        rules = Rules(patience_ms=0 if patient else None)
        memory: PolicyMemory | None = None
        for _ in range(2 * FEW):
            claimed = with_claims(still, rules)
            plan, memory = planned(policy, claimed, memory)
            if quiet(plan):
                return
            still = later(replace(carried_out(claimed, plan), claims=()), event=True)
        raise AssertionError(f"after {2 * FEW} rounds there is still this to do: {plan}")

    @drawn(8)
    @given(snapshot=clusters())
    def test_what_would_be_as_good_elsewhere_stays(
        self, variant: Variant, snapshot: Snapshot
    ) -> None:
        """Types that are exactly like those in use are no reason to move."""
        if variant.takes_turns(snapshot, event=True):
            return
        policy = variant.make()
        still, memory = at_rest(policy, settled(snapshot), event=True)
        twins = tuple(
            replace(offering, type=replace(offering.type, name=f"a-{offering.type.name}"))
            for offering in still.catalog
            if offering.limit is None
        )
        plan, _ = policy.plan(
            replace(later(still, event=True), catalog=(*twins, *still.catalog)), memory
        )
        moved = [entry.run for entry in plan.entries if isinstance(entry, Assign)]
        waited = {run.id for run in still.runs if run.instance is None}
        assert set(moved) <= waited, plan

    @drawn(7)
    @given(snapshot=clusters())
    @with_found
    def test_reasons_decide_nothing(self, explained: Variant, snapshot: Snapshot) -> None:
        """Where reasons can be left out, the plan is the same without them."""
        policy, terse = explained.make(explained=True), explained.make(explained=False)
        memory: PolicyMemory | None = None
        other: PolicyMemory | None = None
        for _ in range(2):
            plan, memory = policy.plan(snapshot, memory)
            same, other = terse.plan(snapshot, other)
            assert (plan.launches, plan.entries) == (same.launches, same.entries)
            snapshot = later(carried_out(snapshot, plan), event=True)

    @drawn(7)
    @given(snapshot=clusters(), seed=st.integers(0, 1000))
    def test_the_same_cluster_gets_the_same_plan_in_whatever_order_it_was_built(
        self, variant: Variant, snapshot: Snapshot, seed: int
    ) -> None:
        """Plans hang on the snapshot and the memory alone."""
        catalog, runs = list(snapshot.catalog), list(snapshot.runs)
        shuffled = random.Random(seed)  # noqa: S311 - not for secrets
        shuffled.shuffle(catalog)
        shuffled.shuffle(runs)
        other = replace(
            snapshot, catalog=tuple(catalog), runs=tuple(sorted(runs, key=lambda run: run.id))
        )
        # Whether it has planned before or not: what matters it has from its memory.
        policy = variant.make()
        first = policy.plan(snapshot, None)
        assert policy.plan(snapshot, None) == first
        again = policy.plan(other, None)
        assert again == first
        assert again[0].reasons == first[0].reasons
        assert variant.make().plan(other, None) == first

    @drawn(6)
    @given(snapshot=clusters())
    def test_plans_reach_the_master_and_memories_the_journal(
        self, variant: Variant, snapshot: Snapshot
    ) -> None:
        """A policy plans in a process of its own, and its memory is written as JSON."""
        policy = variant.make()
        plan, memory = policy.plan(snapshot, None)
        assert pickle.loads(pickle.dumps((plan, memory))) == (plan, memory)  # noqa: S301 - ours
        assert json.loads(json.dumps(dict(plan.figures))) == dict(plan.figures)
        after = later(carried_out(snapshot, plan), event=True)
        assert variant.make().plan(after, journalled(memory)) == policy.plan(after, memory)

    # -- clusters that are out of the ordinary -----------------------------------------------------

    def test_an_empty_cluster_needs_nothing(self, variant: Variant) -> None:
        """Without jobs nothing is bought, whether or not something is on sale."""
        policy = variant.make()
        assert quiet(policy.plan(types((0, 4, 16)).snapshot(), None)[0])
        assert quiet(policy.plan(Cluster().snapshot(), None)[0])

    def test_a_cluster_that_nothing_is_on_sale_for_holds_its_tasks(self, variant: Variant) -> None:
        """With an empty catalog tasks are held, with a reason."""
        plan, _ = variant.make().plan(Cluster().job("a", task(any=(0, 1, 1))).snapshot(), None)
        assert [type(entry) for entry in plan.entries] == [Hold]

    def test_tasks_that_ask_for_no_memory_or_for_nothing_are_placed(self, variant: Variant) -> None:
        """Amounts of zero are amounts."""
        cluster = types((0, 4, 16))
        for number in range(10):
            cluster.job(f"cpu-{number}", task(any=(0, 1, 0)))
            cluster.job(f"no-{number}", task(any=(0, 0, 0)))
        snapshot = cluster.snapshot()
        plan, _ = variant.make().plan(snapshot, None)
        check(snapshot, plan)
        assert _all_placed(snapshot, plan)

    @pytest.mark.parametrize("usd", [0, 0.000001, 90_000])
    def test_absurd_prices_and_amounts_are_reckoned_with(
        self, variant: Variant, usd: float
    ) -> None:
        """Free, nearly free and very dear types are bought as needed."""
        cluster = Cluster(
            offer("little", (0, 1, 1), usd / 2),
            offer("vast", (1_000, 100_000, 1_000_000), usd),
            offer("some", (1, 4, 16), usd / 2),
        )
        for number in range(12):
            cluster.job(f"a{number}", task("a", any=(1, 2, 8)), left_s=5_000)
        cluster.job("gang", *[task("b", any=(10, 500, 20_000))] * 20, left_s=10**9)
        self._all_placed_at_once(variant, cluster)

    def test_a_task_as_large_as_a_type_gets_one(self, variant: Variant) -> None:
        """The whole of an instance can be used."""
        cluster = types((0, 4, 16), (2, 8, 32)).job("a", task(any=(2, 8, 32)))
        plan, _ = variant.make().plan(cluster.snapshot(), None)
        assert [launch.offering.type.name for launch in plan.launches] == ["t1"]

    def test_a_task_of_one_family_stays_within_it(self, variant: Variant) -> None:
        """A family that the task does not name cannot host it."""
        cluster = Cluster(
            offer("c", (0, 8, 16), 0.3, family="c"), offer("r", (0, 8, 64), 0.5, family="r")
        ).job("a", task(r=(0, 8, 16)))
        plan, _ = variant.make().plan(cluster.snapshot(), None)
        assert [launch.offering.type.name for launch in plan.launches] == ["r"]

    def test_hundreds_of_equal_types_are_told_apart(self, variant: Variant) -> None:
        """Of types that differ in name alone the first ones are bought, within their limits."""
        cluster = Cluster(*(offer(f"t{n:03}", (0, 4, 16), 1.0, limit=1) for n in range(300)))
        for number in range(20):
            cluster.job(f"j{number:02}", task(any=(0, 4, 16)))
        snapshot = cluster.snapshot()
        policy = variant.make()
        plan, memory = policy.plan(snapshot, None)
        check(snapshot, plan)
        names = [launch.offering.type.name for launch in plan.launches]
        assert sorted(names) == [f"t{n:03}" for n in range(20)]
        assert quiet(policy.plan(carried_out(snapshot, plan), memory)[0])

    def test_types_of_equal_price_are_told_apart_by_what_they_hold(self, variant: Variant) -> None:
        """Price alone does not identify a type."""
        cluster = Cluster(
            *(offer(f"t{n}", (0, 2 * n, 8 * n), 1.0) for n in (1, 2, 3)),
            *(offer(f"u{n}", (0, 2 * n, 8 * n), 1.0, family="c") for n in (1, 2, 3)),
        )
        for number in range(6):
            cluster.job(f"j{number}", task(any=(0, 2, 8), c=(0, 2, 8)))
        self._all_placed_at_once(variant, cluster)

    @pytest.mark.parametrize("value", [0.000001, 0.999999, 1.0])
    def test_throughput_at_its_edges(self, variant: Variant, value: float) -> None:
        """Tasks that all but stop in company, and those that lose nothing, are placed."""
        cluster = Cluster(offer("box", (0, 8, 16), 1.0), offer("half", (0, 4, 8), 0.6))
        cluster.throughput = table({("w", ("w",)): value, ("w", ("w", "w", "w")): 1.0})
        cluster.job("gang", *[task("w", any=(0, 2, 4))] * 3)
        for number in range(4):
            cluster.job(f"j{number}", task("w", any=(0, 2, 4)))
        self._all_placed_at_once(variant, cluster)

    def test_where_everything_is_pinned_nothing_is_touched(self, variant: Variant) -> None:
        """Pinned task runs stay where they are, and wait where they wait."""
        cluster = Cluster(offer("t", (0, 4, 16), 1.0), offer("s", (0, 2, 8), 0.1))
        for number in range(5):
            cluster.instance(f"i{number}", "t", ready=number % 2 == 0)
            cluster.job(f"a{number}", task(any=(0, 2, 8)), on=[f"i{number}"], pinned=True)
        cluster.job("waits", task(any=(0, 2, 8)), pinned=True)
        snapshot, policy = cluster.snapshot(), variant.make()
        plan, memory = policy.plan(snapshot, None)
        assert (plan.launches, plan.entries) == ((), ())
        assert quiet(policy.plan(later(snapshot, event=True), memory)[0])

    def test_pinned_task_runs_keep_their_room(self, variant: Variant) -> None:
        """Room that a pinned task run holds is not given to another."""
        cluster = Cluster(offer("t", (0, 4, 16), 1.0, limit=1)).instance("i", "t", ready=False)
        cluster.job("a", task(any=(0, 4, 16)), on=["i"], running=False, pinned=True)
        cluster.job("b", task(any=(0, 4, 16)))
        plan, _ = variant.make().plan(cluster.snapshot(), None)
        assert [(type(entry), entry.run) for entry in plan.entries] == [(Hold, RunId("b/0"))]

    def test_a_task_run_whose_instance_is_gone_is_placed_again(self, variant: Variant) -> None:
        """An instance that is not in the snapshot holds nothing."""
        cluster = types((0, 4, 16)).job("a", task(any=(0, 4, 16)), on=[InstanceId("gone")])
        snapshot = cluster.snapshot()
        plan, _ = variant.make().plan(snapshot, None)
        assert _all_placed(snapshot, plan)

    def _all_placed_at_once(self, variant: Variant, cluster: Cluster) -> None:
        snapshot, policy = cluster.snapshot(), variant.make()
        plan, memory = policy.plan(snapshot, None)
        check(snapshot, plan)
        assert _all_placed(snapshot, plan)
        assert quiet(policy.plan(carried_out(snapshot, plan), memory)[0])


def _all_placed(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether everybody has a place once a plan has been carried out and lines were served."""
    after = carried_out(snapshot, plan)
    instances = {view.id for view in after.instances}
    return all(run.instance in instances for run in after.runs)
