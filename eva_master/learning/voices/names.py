"""Names of voices, and of workloads where those of several voices meet.

A voice is a tenant, or an owner whose jobs are accounted to no tenant. Each teaches the cluster by
figures that its own programs report, so each has tables of its own. In such a table the voice's own
workloads have their plain names; those of a neighbour that belongs to another voice carry that
voice's name behind a mark.
"""

from __future__ import annotations

from typing import Protocol

from eva_wire.values.bounds import DEFAULT_TENANT
from eva_wire.values.ids import VOICE_MARK, Workload

Voice = str
"""Name of an owner, or of a tenant behind a sign with which no owner's name begins."""
OTHERS: Voice = ""
"""Figures of journals that did not tell voices apart: those of others, to everybody."""

_TENANT_SIGN = "@"


class Accounted(Protocol):
    """A job, as far as it tells to whom it belongs."""

    @property
    def owner(self) -> str:
        """Name of the user who submitted it."""
        ...

    @property
    def tenant(self) -> str:
        """The tenant to which it is accounted."""
        ...


def voice_of(job: Accounted) -> Voice:
    """The voice of a job: its tenant's, else its owner's."""
    return voice_of_owner(job.owner, job.tenant)


def voice_of_owner(owner: str, tenant: str) -> Voice:
    """The voice of an owner who belongs to a tenant."""
    return owner if tenant == DEFAULT_TENANT else _TENANT_SIGN + tenant


def marked(workload: Workload, voice: Voice) -> Workload:
    """The name of a workload of one voice where another voice's may have the same name."""
    return Workload(f"{plain(workload)}{VOICE_MARK}{voice}")


def split(name: Workload) -> tuple[Workload, Voice | None]:
    """A workload's plain name, and the voice behind the mark; `None` if there is no mark."""
    workload, mark, voice = name.partition(VOICE_MARK)
    return Workload(workload), voice if mark else None


def plain(workload: Workload) -> Workload:
    """A workload's name as a user wrote it, without marks, which no user may set."""
    return Workload(workload.replace(VOICE_MARK, " ")) if VOICE_MARK in workload else workload
