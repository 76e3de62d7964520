"""The partition that a job file names, or that a rule chooses for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from eva_master.model.catalog import Catalog
from eva_master.model.fleet.partitions import WHOLE, Partitions
from eva_master.model.job import JobSpec
from eva_wire.jobfile.schema import JobFile
from eva_wire.text import yamlfile
from eva_wire.text.yamlfile import Document
from eva_wire.values.errors import Problem

KEY = "partition"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where jobs of whoever submits one may run.

    Attributes:
        partitions: How the cluster is divided.
        choose: Returns the partition of a job that names none.
        anywhere: Whether they may use every partition, as operators may.
    """

    partitions: Partitions = WHOLE
    choose: Callable[[JobSpec], str] = lambda spec: spec.partition
    anywhere: bool = False

    def problems(self, document: Document, job: JobFile, owner: str) -> Iterator[Problem]:
        """Problems of the partition that a file names."""
        name = job.partition
        if name is None:
            return
        names = [part.name for part in self.partitions.parts]
        if name not in names:
            about = f"known: {', '.join(names)}" if names else "leave it out: there are none here"
            hint = yamlfile.suggestion(name, names) or about
            yield document.problem((KEY,), f"there is no partition {name!r}", hint)
        elif not self.anywhere and not self.partitions.home(name).admits(owner):
            yield document.problem(
                (KEY,),
                f"{owner} may not run jobs in partition {name!r}",
                "name another one, or ask an operator; see: eva partitions",
            )

    def placed(self, spec: JobSpec, job: JobFile) -> JobSpec:
        """A job with the partition that it runs in."""
        if not self.partitions.divided:
            return spec
        return replace(spec, partition=job.partition or self.choose(spec))

    def catalog(self, spec: JobSpec, catalog: Catalog) -> Catalog:
        """Offerings on sale where a job runs."""
        if not self.partitions.divided:
            return catalog
        return self.partitions.home(spec.partition).sold(catalog)

    def named(self, spec: JobSpec, problems: list[Problem]) -> list[Problem]:
        """Complaints about a job that say of which partition they are true."""
        where = f"in partition {spec.partition}, "
        return [replace(problem, message=where + problem.message) for problem in problems]


ANYWHERE = Placement()
"""The cluster is not divided."""
