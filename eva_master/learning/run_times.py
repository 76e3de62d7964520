"""How long the tasks of a workload usually take, from those that have finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eva_master.learning.bounds import ENTRIES_KEPT
from eva_master.learning.delays import two_digits
from eva_master.model.ids import Millis, Workload
from eva_master.model.planning.plan import Json

_RUN_TIMES_KEPT = 9
"""So many of a workload's last finished tasks say what is usual."""
_ENOUGH = 3
"""With fewer nobody can say what is usual."""
_ALIKE_PERCENT = 150
"""So many per cent of the shortest the longest may take, a fifth at either end left out. Otherwise
what such tasks took says nothing of how long the next one will take."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The last tasks of one workload that finished.

    Attributes:
        took_ms: Standalone time of each, the last one last.
        at_ms: When the last one finished.
        usual_ms: What follows of the next one, see `RunTimes.usual_ms`.
    """

    took_ms: tuple[int, ...]
    at_ms: Millis
    usual_ms: int | None

    @staticmethod
    def of(took_ms: tuple[int, ...], at: Millis) -> Finished:
        """What the last tasks of a workload tell, of which all took some time."""
        return Finished(took_ms, at, _usual_ms(sorted(took_ms)))


def _usual_ms(took: Sequence[int]) -> int | None:
    end = len(took) // 5
    if len(took) < _ENOUGH or took[-1 - end] * 100 > took[end] * _ALIKE_PERCENT:
        return None
    return two_digits(took[len(took) // 2])


@dataclass(frozen=True, slots=True)
class RunTimes:
    """What was seen of each workload.

    Attributes:
        finished: By workload; those that finished longest ago stand first.
    """

    finished: Mapping[Workload, Finished] = field(default_factory=dict)

    def usual_ms(self, workload: Workload) -> int | None:
        """The median of a workload's last finished tasks, in milliseconds.

        It has two significant digits, so that one more task is hardly ever news. Of an even number
        of tasks the longer one of the middle counts.

        Returns:
            `None` if fewer than three have finished, or if one took more than half as long again
            as another; a fifth of them at either end is left out of this.
        """
        known = self.finished.get(workload)
        return None if known is None else known.usual_ms

    def observe(self, workload: Workload, took_ms: int, at: Millis) -> RunTimes:
        """Take in a task that has finished.

        Args:
            workload: The task's.
            took_ms: Its standalone time; nothing is learned from a task that took none.
            at: When it finished.
        """
        if took_ms <= 0:
            return self
        finished = dict(self.finished)
        before = finished.pop(workload, None)
        took = (*(before.took_ms if before else ()), took_ms)[-_RUN_TIMES_KEPT:]
        finished[workload] = Finished.of(took, at)
        if len(finished) > ENTRIES_KEPT:
            del finished[next(iter(finished))]
        return RunTimes(finished)

    def to_json(self) -> Json:
        """The journal's form: a list of [workload, times, when], in their order."""
        return [[name, list(it.took_ms), it.at_ms] for name, it in self.finished.items()]

    @staticmethod
    def from_json(data: Json) -> RunTimes:
        """Read what `to_json` wrote.

        Raises:
            ValueError: The data has another form.
        """
        if not isinstance(data, list):
            raise ValueError("learned run times are a list")
        finished: dict[Workload, Finished] = {}
        for row in data:
            match row:
                case [str(name), [_, *_] as times, int(at)] if all(
                    isinstance(one, int) and one > 0 for one in times
                ):
                    took = tuple(int(str(one)) for one in times[-_RUN_TIMES_KEPT:])
                    finished[Workload(name)] = Finished.of(took, Millis(at))
                case _:
                    raise ValueError(f"not learned run times: {row!r}")
        return RunTimes(finished)
