"""A world: what is sold, what is submitted when, and what is ordered or goes wrong meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Kind:
    """A type of instances.

    Attributes:
        name: ``FAMILY.SIZE``.
        price: Micro-dollars per hour on demand.
        acquisition_s: From the request until it is up and billed.
        setup_s: From then until its worker is there.
        limit: How many there may be at a time; `None` for any number.
        disk_gib: Disk for tasks: of each instance, or at most where `sized_disk`.
        sized_disk: Whether an instance gets as much disk as its first tasks need.
    """

    name: str
    cpus: int
    memory_gib: int
    price: int
    acquisition_s: int = 10
    setup_s: int = 60
    limit: int | None = None
    gpus: int = 0
    disk_gib: int = 0
    sized_disk: bool = False

    @property
    def family(self) -> str:
        """The part of the name before the dot."""
        return self.name.partition(".")[0]

    @property
    def boot_s(self) -> int:
        """From the request until a task may start there."""
        return self.acquisition_s + self.setup_s

    @property
    def entry(self) -> dict[str, Any]:
        """The type as a catalog file has it."""
        entry: dict[str, Any] = {
            "cpus": self.cpus,
            "memory": f"{self.memory_gib}GiB",
            "price": f"${self.price / 1e6:.6f}/h",
            "acquisition": f"{self.acquisition_s}s",
            "setup": f"{self.setup_s}s",
        }
        if self.gpus:
            entry["gpus"] = self.gpus
        if self.limit is not None:
            entry["limit"] = self.limit
        return entry


@dataclass(frozen=True)
class Job:
    """A job file, when it is submitted, and what its tasks really are.

    Attributes:
        at_s: When it is submitted.
        seconds: How long its tasks take alone at speed 1, one by one; of an elastic gang the work
            of all members together.
        keys: The job file, but for its name.
        speeds: How fast its tasks really are on a family; 1 on others.
        failures: How many attempts of each task fail, which then goes on from its checkpoint.
        tells_steps: Whether its program reports steps; `tells_total` whether it says of how many.
    """

    name: str
    at_s: float
    seconds: tuple[float, ...]
    keys: Mapping[str, Any]
    owner: str = "ana"
    speeds: Mapping[str, float] = field(default_factory=dict)
    failures: int = 0
    tells_steps: bool = True
    tells_total: bool = True
    rate: float = 10.0

    @property
    def file(self) -> dict[str, Any]:
        """The whole job file."""
        return {"name": self.name, "run": "work", **self.keys}

    @property
    def array(self) -> bool:
        """Whether its tasks are independent."""
        return self.keys.get("kind") == "array"

    @property
    def elastic(self) -> bool:
        """Whether the scheduler chooses how many of its members run."""
        return isinstance(self.keys.get("tasks"), dict)

    @property
    def size(self) -> int:
        """Its tasks, of an elastic gang at most."""
        tasks = self.keys.get("tasks", 1)
        return int(tasks["most"] if isinstance(tasks, dict) else tasks)

    @property
    def disk_gib(self) -> int:
        """Disk that each of its tasks needs."""
        return int(str(self.keys["resources"].get("disk", "0GiB")).removesuffix("GiB"))

    @property
    def priority(self) -> int:
        """Larger is more urgent."""
        return int(self.keys.get("priority", 0))

    @property
    def after(self) -> tuple[str, ...]:
        """Names of the jobs that have to succeed before."""
        return tuple(self.keys.get("after", ()))

    def work_s(self, index: int) -> float:
        """How long a task takes alone at speed 1."""
        return self.seconds[index % len(self.seconds)]


@dataclass(frozen=True)
class Order:
    """An order by somebody, or an act of the cloud, while the world goes on.

    Attributes:
        verb: ``suspend``, ``resume``, ``cancel`` or ``move`` a job; ``set`` or ``unset`` the secret
            of its owner; ``drain`` an instance, or ``interrupt`` one on the spot market;
            ``restart`` the master; ``sold-out`` for spot.
        subject: Name of the job; of instances the number among those that live, by age.
        to: The partition that a job moves to; of ``sold-out`` the seconds for which it lasts.
    """

    at_s: float
    verb: str
    subject: str = ""
    to: str = ""


@dataclass(frozen=True)
class World:
    """A small world.

    Attributes:
        settings: The master's settings, but for the policy, the catalog and the nodes.
        policy: The world's changes to the policy's section.
        nodes: Owned machines by name, with the name of the type whose capacity they have.
        shared: How fast a task is beside one other task, and again for each further one.
        minimum_s: Least time that an instance is billed.
    """

    seed: int
    flavour: str
    kinds: tuple[Kind, ...]
    jobs: tuple[Job, ...]
    orders: tuple[Order, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    nodes: Mapping[str, Kind] = field(default_factory=dict)
    shared: float = 1.0
    minimum_s: int = 0

    @property
    def title(self) -> str:
        """Its flavour and seed, as the command takes them."""
        return f"--flavour {self.flavour} --seed {self.seed}"

    def job(self, name: str) -> Job:
        """A job by its name."""
        return next(job for job in self.jobs if job.name == name)

    def kind(self, name: str) -> Kind:
        """A type by its name, owned ones included."""
        return next(kind for kind in (*self.kinds, *self.nodes.values()) if kind.name == name)
