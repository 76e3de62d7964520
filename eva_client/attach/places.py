"""The task that a user names, or the pages."""

from __future__ import annotations

from dataclasses import dataclass

from eva_wire._proto import attach_pb2 as pb


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run of a task, as the user names it.

    Attributes:
        job: Id or name of the job.
        task: Index of the task; `None` for the only one.
        replica: Number of the run; `None` for the first that runs.
    """

    job: str
    task: int | None = None
    replica: int | None = None

    def opening(self, kind: pb.Kind) -> pb.Input:
        """The first frame."""
        wanted = pb.Open(job=self.job, task=self.task, replica=self.replica, kind=kind)
        return pb.Input(open=wanted)

    def port(self, port: int) -> pb.Input:
        """The first frame of a connection to a port of the task."""
        return self.opening(pb.Kind(forward=pb.Forward(port=port)))


def pages() -> pb.Input:
    """The first frame of a connection to the pages of the master."""
    return pb.Input(open=pb.Open(kind=pb.Kind(ui=pb.Ui())))
