"""Records of a world, all that oracles know: by the cloud, the workers, and what users are told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.worlds.world import Job, Kind, World

HOUR_MS = 3_600_000


@dataclass
class Launch:
    """An instance; times in milliseconds, `None` for what has not happened.

    Attributes:
        price: Micro-dollars per hour.
        asked_ms: When it was ordered; 0 for an owned node.
        up_ms: Since when it was billed. ready_ms: Since when tasks could start there.
        ending_ms: When its end was ordered. gone_ms: When the cloud stopped to bill it.
        why_gone: The reason of its end that the product gives, for people alone.
        taken: Whether the cloud took it away.
        drained: Whether an operator gave it up.
        disk_gib: Disk that it was launched with.
    """

    id: str
    kind: Kind
    offering: str
    price: int
    spot: bool
    owned: bool
    partition: str
    asked_ms: int
    up_ms: int | None = None
    ready_ms: int | None = None
    ending_ms: int | None = None
    gone_ms: int | None = None
    failed: bool = False
    taken: bool = False
    drained: bool = False
    pool: str = ""
    why_gone: str = ""
    disk_gib: int = 0

    @property
    def end_ms(self) -> int:
        """When nothing can start there any more; far away while it is there."""
        ends = [at for at in (self.ending_ms, self.gone_ms) if at is not None]
        return min(ends, default=10**15)

    def cost(self, minimum_s: int, now_ms: int) -> float:
        """The cost of the instance, in dollars."""
        if self.up_ms is None or self.owned:
            return 0.0
        gone = now_ms if self.gone_ms is None else self.gone_ms
        return self.price / 1e6 * max(gone - self.up_ms, minimum_s * 1000) / HOUR_MS


@dataclass
class Attempt:
    """An attempt of a task.

    Attributes:
        from_ms: Since when it took room. ran_ms: Since when it made progress.
        to_ms: When its room was free.
        code: Its exit code, `None` if it was lost with its instance.
        stopped: Whether it was told to end.
    """

    run: str
    job: str
    index: int
    number: int
    instance: str
    from_ms: int
    ran_ms: int | None = None
    to_ms: int | None = None
    code: int | None = None
    stopped: bool = False
    resumed_ms: float = 0.0
    done_ms: float = 0.0

    @property
    def extra(self) -> bool:
        """Whether it is a second run of a task that has one."""
        return "+" in self.run


@dataclass
class Fate:
    """The fate of a job.

    Attributes:
        refused: Why it was refused at submission; empty if it was not.
        state: As the product says.
    """

    name: str
    id: str = ""
    submitted_ms: int = 0
    ended_ms: int | None = None
    state: str = ""
    refused: str = ""


@dataclass(frozen=True)
class Told:
    """A report to users of the end of a task while it ran.

    Attributes:
        part: How much of its work was done.
        eta_ms: When it was to end; `None` if nothing was told.
    """

    run: str
    job: str
    number: int
    at_ms: int
    part: float
    eta_ms: int | None


@dataclass
class Preview:
    """A preview of a job, and what its submission then did.

    Attributes:
        places: By task the instance or offering where it would start, or why it waits.
        became: Preview of the task after the first plan; empty where something came in between.
    """

    job: str
    at_ms: int
    places: dict[str, str]
    became: dict[str, str] = field(default_factory=dict)


@dataclass
class Headed:
    """An instance to which a task that waits is on its way, as users are told.

    Attributes:
        from_ms: Since when. to_ms: Until when.
    """

    run: str
    job: str
    index: int
    instance: str
    from_ms: int
    to_ms: int = 10**15


@dataclass(frozen=True)
class Ordered:
    """An order that was carried out, on what."""

    at_ms: int
    verb: str
    subject: str
    to: str = ""


@dataclass
class Story:
    """A world under a policy, from its first submission until nothing is left.

    Attributes:
        gap_ms: A round: from one plan to the next at least.
        quiet: Whether everything ended in time.
        told: Events in order, for people.
    """

    world: World
    policy: str
    gap_ms: int
    launches: dict[str, Launch] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    fates: dict[str, Fate] = field(default_factory=dict)
    orders: list[Ordered] = field(default_factory=list)
    etas: list[Told] = field(default_factory=list)
    previews: list[Preview] = field(default_factory=list)
    headed: list[Headed] = field(default_factory=list)
    end_ms: int = 0
    quiet: bool = False
    rounds: int = 0
    pools: bool = False
    told: list[tuple[int, str]] = field(default_factory=list)

    def concerns(self, order: Ordered, job: Job) -> bool:
        """Whether an order is about a job, or about a secret that the job uses."""
        if order.verb in ("set", "unset"):
            return "secrets" in job.keys and self.world.job(order.subject).owner == job.owner
        return order.subject == job.name

    def cost(self) -> float:
        """The cost of all instances, in dollars."""
        return sum(it.cost(self.world.minimum_s, self.end_ms) for it in self.launches.values())

    def bought(self) -> Iterator[Launch]:
        """All instances that were launched."""
        return (it for it in self.launches.values() if not it.owned)

    def of(self, job: str) -> list[Attempt]:
        """The attempts of a job's tasks, in order."""
        return [it for it in self.attempts if it.job == job]

    def on(self, instance: str) -> list[Attempt]:
        """The attempts on an instance, in order."""
        return [it for it in self.attempts if it.instance == instance]

    def completion_s(self) -> float:
        """Mean time from the submission of a job to its end, of those that succeeded."""
        times = [
            (fate.ended_ms - fate.submitted_ms) / 1000
            for fate in self.fates.values()
            if fate.ended_ms is not None and fate.state == "succeeded"
        ]
        return sum(times) / len(times) if times else 0.0


@dataclass(frozen=True)
class Finding:
    """An objection of an oracle.

    Attributes:
        oracle: Its name.
        from_ms: Since when. to_ms: Until when; 0 for a moment.
        said: The objection in a sentence.
    """

    world: str
    policy: str
    oracle: str
    from_ms: int
    to_ms: int
    said: str

    def __str__(self) -> str:
        until = f" to {self.to_ms / 1000:.1f}" if self.to_ms else ""
        at = f"{self.oracle} at {self.from_ms / 1000:.1f}{until} s"
        return f"{self.world} --policy {self.policy}: {at}: {self.said}"


def objection(
    story: Story, oracle: str, said: str, from_ms: float = 0, to_ms: float = 0
) -> Finding:
    """A finding about a story."""
    return Finding(story.world.title, story.policy, oracle, round(from_ms), round(to_ms), said)


def merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that touch each other joined, in order."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def without(span: tuple[int, int], taken: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of a span that no other one covers."""
    parts, at = [], span[0]
    for start, end in merged(taken):
        if start > at:
            parts.append((at, min(start, span[1])))
        at = max(at, end)
        if at >= span[1]:
            break
    if at < span[1]:
        parts.append((at, span[1]))
    return [(start, end) for start, end in parts if end > start]
