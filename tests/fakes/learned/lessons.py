"""Lessons of jobs, in clusters whose jobs all belong to one owner."""

from __future__ import annotations

from eva_master.control.state.store import State
from eva_master.learning.voices.lessons import NOTHING, Lessons
from eva_master.learning.voices.names import voice_of


def lessons_of(state: State) -> Lessons:
    """Lessons of the only owner's jobs."""
    assert len(state.learned.voices) <= 1, list(state.learned.voices)
    return next(iter(state.learned.voices.values()), NOTHING)


def owner_of(state: State) -> str:
    """The only owner of the jobs."""
    (owner,) = {voice_of(job.spec) for job in state.jobs.values()} or {""}
    return owner


def teach(state: State, lessons: Lessons, owner: str = "") -> None:
    """Have the state know what an owner's jobs have taught."""
    state.teach(owner, lessons)
