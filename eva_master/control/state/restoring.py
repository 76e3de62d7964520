"""How a state is made of what the journal has: in which order, and what cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eva_master.control.state.derived.dags import Dags
from eva_master.learning.knowledge import Knowledge
from eva_master.model.planning.plan import Json
from eva_master.model.records import Instance, Job
from eva_wire.values.errors import StorageError
from eva_wire.values.ids import job_order


def knowledge(document: Mapping[str, Json], dags: Dags) -> Knowledge:
    """Read the learned figures from the journal.

    Args:
        document: The document of the journal.
        dags: DAGs of all jobs; the ended stages are added to them.

    Raises:
        StorageError: The document is damaged.
    """
    try:
        learned = Knowledge.from_json(document)
        stale = dags.restore(
            {name: owner_dags.ended for name, owner_dags in learned.dags.owners.items()}
        )
        return replace(learned, dags=learned.dags.without(stale)) if stale else learned
    except ValueError as error:
        raise StorageError(
            f"the journal's record of what was learned cannot be read: {error}",
            hint="start the release that wrote it; or delete the row 'learned' of the table "
            "'documents', and everything is learned anew",
        ) from error


def submission(job: Job) -> tuple[int, str]:
    """When a job was submitted among all jobs."""
    return job_order(job.id)


def launch(instance: Instance) -> tuple[int, int, str]:
    """When an instance was asked for; those of one plan are numbered."""
    return instance.requested_ms, len(instance.id), instance.id
