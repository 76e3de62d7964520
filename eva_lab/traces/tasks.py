"""Traces of jobs that recur, after past ones: a job a line, with how long its tasks take.

Words are separated by blanks, times are seconds. Lines of two kinds follow each other:

- ``H``, the six features of a job that has ended, and the mean run time of its tasks, in the order
  in which they ended;
- ``J``, the arrival of a job to run, its six features, its number of tasks, and the run time of
  each, in the order of arrivals.

The features are job name, user, application, hour of the submission, CPUs and memory. Of these the
user becomes the owner and the application the workload. The name becomes a part of the job's own
name (see `Features.base`). The others are checked and left out, since the control loop derives its
own: every task takes a whole slot, so CPUs and memory are the same for all jobs, past ones too; and
the hour is that of the submission on the simulated clock, which no past job has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eva_lab.traces.lines import arrival_ms, duration_ms, durations_ms, number, read_lines, telling
from eva_lab.traces.rows import refusal
from eva_wire.values.errors import Problem
from eva_wire.values.users import is_owner

SUFFIXES = (".txt", ".txt.gz")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
"""A name or an application: a job's own name, which is longer, is to remain one of a job file."""
_FEATURES = 6
_HOURS = 24


@dataclass(frozen=True, slots=True)
class TraceFeatures:
    """Features that a job shares with others, as far as the control loop sees them.

    Attributes:
        name: The job's.
        user: Submitting user.
        application: Application that its tasks run.
    """

    name: str
    user: str
    application: str

    @property
    def base(self) -> str:
        """The part of the jobs' own names that those of one name share.

        The name ends with a letter, since numbers at the end of a name are not looked at (see
        `eva_master.learning.runtimes.Traits`): ``40-job`` for ``40``.
        """
        return f"{self.name}-job"


@dataclass(frozen=True, slots=True)
class EndedLine:
    """A job that has ended.

    Attributes:
        features: Its features.
        mean_ms: How long its tasks took on average, at least 1.
    """

    features: TraceFeatures
    mean_ms: int


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job to run.

    Attributes:
        features: Its features.
        at_ms: When it arrives, after the beginning of the trace.
        durations_ms: How long each of its tasks takes, at least 1.
    """

    features: TraceFeatures
    at_ms: int
    durations_ms: tuple[int, ...]

    @property
    def mean_ms(self) -> int:
        """How long its tasks take on average, at least 1."""
        return max(1, round(sum(self.durations_ms) / len(self.durations_ms)))


@dataclass(frozen=True, slots=True)
class Recurring:
    """Jobs of such a trace.

    Attributes:
        ended: Jobs that ended before the trace begins, in the order of their ends.
        jobs: Jobs to run, in the order of their arrivals.
    """

    ended: tuple[EndedLine, ...]
    jobs: tuple[JobLine, ...]


def read_tasks(path: Path) -> Recurring:
    """Read a trace.

    Args:
        path: Of the file, which may be compressed with gzip.

    Raises:
        InvalidTrace: The file cannot be read or is wrong; names the line of each problem.
    """
    problems: list[Problem] = []
    ended: list[EndedLine] = []
    jobs: list[JobLine] = []
    for place, line in telling(read_lines(path)):
        kind, *words = line.split() or [""]
        try:
            if kind == "H":
                if jobs:
                    raise ValueError("a past job (H) stands after a job to run (J)")
                ended.append(_ended(words))
            elif kind == "J":
                job = _job(words)
                if jobs and job.at_ms < jobs[-1].at_ms:
                    raise ValueError("it arrives before the job in a line above")
                jobs.append(job)
            else:
                raise ValueError(f"{kind[:40]!r} is neither H, a past job, nor J, a job to run")
        except ValueError as error:
            problems.append(Problem(str(error), line=place, column=1))
    if not jobs and not problems:
        problems.append(Problem("there is no job to run in it, whose line begins with J"))
    if problems:
        raise refusal(path, problems)
    return Recurring(tuple(ended), tuple(jobs))


def _ended(words: Sequence[str]) -> EndedLine:
    """A past job of the words of a line; raises `ValueError`, which says what is wrong."""
    if len(words) != _FEATURES + 1:
        raise ValueError(f"it has {len(words):,} words after H, not six features and a run time")
    return EndedLine(_features(words[:_FEATURES]), _positive_ms(words[_FEATURES]))


def _job(words: Sequence[str]) -> JobLine:
    """A job to run of the words of a line; raises `ValueError`, which says what is wrong."""
    if len(words) < _FEATURES + 2:
        raise ValueError("it lacks arrival, one of six features or number of tasks")
    at, features, count = words[0], words[1 : _FEATURES + 1], words[_FEATURES + 1]
    times = durations_ms(count, words[_FEATURES + 2 :], _positive_ms)
    return JobLine(_features(features), arrival_ms(at), times)


def _features(words: Sequence[str]) -> TraceFeatures:
    name, user, application, hour, cpus, memory = words
    for word, what in ((name, "the name of a job"), (application, "an application")):
        if not _WORD.fullmatch(word):
            raise ValueError(f"{word[:40]!r} is not {what}: at most 40 letters, digits and ._-")
    if not is_owner(user):
        raise ValueError(f"{user[:40]!r} is not a user: at most 63 letters, digits and ._@-")
    value = number(hour, "an hour of the day")
    if value != int(value) or value >= _HOURS:
        raise ValueError(f"{hour!r} is not an hour of the day, from 0 to 23")
    number(cpus, "a number of CPUs")
    number(memory, "an amount of memory")
    return TraceFeatures(name, user, application)


def _positive_ms(word: str) -> int:
    """A run time as milliseconds, at least 1; raises `ValueError` if it is none."""
    if number(word, "a run time") == 0:
        raise ValueError(f"{word[:40]!r} is not a run time, which is more than 0")
    return duration_ms(word)
