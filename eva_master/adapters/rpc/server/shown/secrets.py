"""Words about secrets that jobs wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eva_master.adapters.rpc.server.shown.part import Part
from eva_master.model.job import JobSpec
from eva_master.model.records import Job
from eva_master.ports import Secrets
from eva_master.ports.reading import ReadModel
from eva_wire.values.states import JobState


def why_it_lacks(names: Sequence[str]) -> str:
    """Reason of a task whose job waits for secrets."""
    first, more = names[0], len(names) - 1
    rest = f" and {more} other{'' if more == 1 else 's'}" if more else ""
    return f"it waits for the secret {first}{rest}: eva secret set {first}"


def notes_on_secrets(spec: JobSpec, secrets: Secrets | None) -> Iterator[str]:
    """Tell the user of a job which of its secrets are not set."""
    if secrets is None or spec.needed_secrets is None:
        return
    for name in secrets.missing(spec.needed_secrets):
        yield f"the secret {name} is not set, and the job waits for it: eva secret set {name}"


def _waits(_: ReadModel, job: Job) -> str:
    lacks = job.missing_secrets and job.state in (JobState.PENDING, JobState.RUNNING)
    return why_it_lacks(job.missing_secrets) if lacks else ""


PART = Part(waits=_waits)
