"""The cost that a world may have: each task alone, on the cheapest type that it may have then."""

from __future__ import annotations

from collections.abc import Iterator

from tests.worlds.life import ENDING_MS, START_MS, STOP_MS
from tests.worlds.oracles.waiting import Task, Waits
from tests.worlds.records import HOUR_MS, Attempt, Finding, Launch, Story, objection
from tests.worlds.world import Job, Kind

MOST = 1.05
_SPOT = 0.4
"""Of the price on demand: what worlds say of the spot market."""


def costs(story: Story, waits: Waits) -> Iterator[Finding]:
    """The whole costs at most a twentieth more than each task alone, with a boot each."""
    if story.pools:
        return
    bound = apart(story, waits)
    if story.cost() > MOST * bound + 1e-9:
        yield objection(
            story,
            "cost",
            f"${story.cost():.4f} is {story.cost() / bound:.3f} times what each task alone costs"
            f" (${bound:.4f})"
            if bound
            else f"${story.cost():.4f} though nothing was to be paid",
        )


def apart(story: Story, waits: Waits) -> float:
    """The cost of all tasks, each of them alone, in dollars."""
    return sum(_alone(story, waits, task) for task in waits.tasks)


def boots(story: Story, waits: Waits) -> float:
    """The cost of a boot of the cheapest instance for each job, in dollars."""
    total = 0.0
    for job in {it.job.name: it.job for it in waits.tasks}.values():
        attempts = story.of(job.name)
        if attempts:
            had = story.launches[attempts[0].instance]
            options = list(_options(story, job, had, had.asked_ms))
            total += min((price * kind.boot_s / 3600 for kind, price in options), default=0.0)
    return total


def _alone(story: Story, waits: Waits, task: Task) -> float:
    attempts = waits.attempts(task)
    if not attempts:
        return _never_started(story, task)
    first = min(attempts, key=lambda it: it.from_ms)
    had = story.launches[first.instance]
    # A task chose what was there before it, and was not bought for it, when it began.
    chosen_ms = had.asked_ms if had.asked_ms >= waits.ready_ms(task) else first.from_ms
    options = [
        (kind, price)
        for kind, price in _options(story, task.job, had, chosen_ms)
        if kind.name == had.kind.name or _within_quota(story, task, kind, chosen_ms)
    ]
    if not options:
        return 0.0
    job, minimum = task.job, story.world.minimum_s
    ended = all(attempt.to_ms is not None for attempt in attempts)

    def cost(kind: Kind, price: float) -> float:
        seconds = job.work_s(task.index) / job.speeds.get(kind.family, 1.0)
        if not any(map(_well, attempts)):
            # A task that was cancelled, or has not ended, counts for as long as it was there.
            seconds = sum((it.to_ms or story.end_ms) - it.from_ms for it in attempts) / 1000
            seconds /= max(1, task.members)
        elif job.elastic:
            held = sum((it.to_ms or story.end_ms) - it.from_ms for it in attempts) / 1000
            seconds = max(seconds, held)
        return price * max(seconds + kind.boot_s, minimum) / 3600

    members = 1 if job.elastic else job.size if not job.array else 1
    kind, price = min(options, key=lambda it: cost(*it))
    total = members * cost(kind, price)
    boots = sum(
        it.verb in ("drain", "interrupt", "restart")
        or (it.verb in ("suspend", "unset", "move") and story.concerns(it, job))
        for it in story.orders
    )
    failures = sum(not _well(it) and not it.stopped for it in attempts)
    total += (boots + failures) * members * price * max(kind.boot_s, minimum) / 3600
    for attempt in attempts:
        held = story.launches[attempt.instance]
        total += held.price / 1e6 * (START_MS + STOP_MS + ENDING_MS) / HOUR_MS
        total += price * _lost_ms(attempt, attempts) / HOUR_MS if ended else 0.0
        if not held.spot and _is_sold_out(story, held.asked_ms):
            # A task that had a place on the spot market goes on on demand.
            on_demand = kind.price / 1e6 - price
            ran_ms = (attempt.to_ms or story.end_ms) - attempt.from_ms
            total += on_demand * (ran_ms + kind.boot_s * 1000) / HOUR_MS
    extra = [attempt for attempt in story.of(job.name) if attempt.extra]
    return total + sum(
        price * ((attempt.to_ms or 0) - attempt.from_ms) / HOUR_MS for attempt in extra
    )


def _is_sold_out(story: Story, at_ms: int) -> bool:
    """Whether nothing can be bought on the spot market."""
    orders = (order for order in story.orders if order.verb == "sold-out")
    return any(0 <= at_ms - order.at_ms < float(order.to) * 1000 for order in orders)


def _never_started(story: Story, task: Task) -> float:
    """Boots for a task until its user suspends or cancels it: nobody could know of that.

    A task that waits for other jobs is left out, since nothing boots for it.
    """
    job, since, total = task.job, task.job.at_s * 1000, 0.0
    if "after" in job.keys:
        return 0.0
    least = min((kind for kind in story.world.kinds if _fits(kind, job)), key=_price, default=None)
    for order in sorted(story.orders, key=lambda it: it.at_ms) if least is not None else ():
        if least is None or not story.concerns(order, job):
            continue
        if order.verb in ("resume", "set"):
            since = order.at_ms
        elif order.verb in ("suspend", "unset", "cancel") and order.at_ms > since:
            booted = max(min((order.at_ms - since) / 1000, least.boot_s), story.world.minimum_s)
            total += task.members * least.price / 1e6 * booted / 3600
            since = float("inf")
    return total


def _price(kind: Kind) -> int:
    return kind.price


def _fits(kind: Kind, job: Job) -> bool:
    needs = job.keys["resources"]
    memory = int(str(needs["memory"]).removesuffix("GiB"))
    enough = needs["cpus"] <= kind.cpus and memory <= kind.memory_gib
    return enough and needs.get("gpus", 0) <= kind.gpus and job.disk_gib <= kind.disk_gib


def _well(attempt: Attempt) -> bool:
    return attempt.code == 0 and not attempt.stopped


def _lost_ms(attempt: Attempt, attempts: list[Attempt]) -> float:
    """The work of an attempt that the next one had to do again."""
    later = [it for it in attempts if it.index == attempt.index and it.number > attempt.number]
    if not later:
        return 0.0
    return max(0.0, attempt.done_ms - min(later, key=lambda it: it.number).resumed_ms)


def _within_quota(story: Story, task: Task, kind: Kind, at_ms: int) -> bool:
    """Whether its tenant has so much of its quota left beside what its other tasks have then."""
    needs, owner = task.job.keys["resources"].get("gpus", 0), task.job.owner
    quota = story.world.settings.get("tenants", {}).get(owner, {}).get("quota")
    if quota is None or not needs:
        return True
    runs: dict[tuple[str, int], int] = {}
    for place in (*story.attempts, *story.headed):
        job = story.world.job(place.job)
        mine = job is task.job and (not job.array or place.index == task.index)
        end_ms = story.end_ms if place.to_ms is None else place.to_ms
        alike = story.launches[place.instance].kind.family == kind.family
        if alike and job.owner == owner and not mine and place.from_ms <= at_ms < end_ms:
            runs[job.name, place.index] = job.keys["resources"].get("gpus", 0)
    return bool(sum(runs.values()) + needs * task.members <= quota.get(kind.family, 0))


def _options(story: Story, job: Job, had: Launch, at: int) -> Iterator[tuple[Kind, float]]:
    """The types that fit a job and that it could have, each with its price in dollars per hour.

    Args:
        story: The story.
        job: The job.
        had: The instance that it had.
        at: The time at which it could choose.
    """
    spot = job.keys.get("spot", "never")
    market = "spot" in story.world.settings.get("local", {})
    for kind in story.world.kinds:
        if not _fits(kind, job):
            continue
        others = [
            launch
            for launch in story.bought()
            if launch.kind.name == kind.name
            and not launch.spot
            and launch is not had
            and launch.asked_ms <= at
            and (launch.gone_ms is None or launch.gone_ms >= at)
        ]
        if kind.limit is not None and len(others) >= kind.limit and had.kind.name != kind.name:
            continue
        if spot != "only":
            yield kind, kind.price / 1e6
        if had.spot or (market and spot == "only"):
            yield kind, kind.price / 1e6 * _SPOT
