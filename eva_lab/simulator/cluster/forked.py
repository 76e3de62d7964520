"""The programs of simulated forks: they train as they are told, give their parts, and merge.

Nothing is stored, so digests say what would be there. That of a part is FORK.ATTEMPT.STEPS@BASE,
that of a merge ID:PART+PART..., its id and a base are EPOCH.FORK.ATTEMPT of who merged.
"""

from __future__ import annotations

from collections.abc import Callable

from eva_lab.simulator.cluster.clock import Timeline
from eva_lab.simulator.cluster.progress_model import ProgressModel
from eva_lab.simulator.cluster.work import ForkProgram, SimulatedAttempt
from eva_master.model.events import Event, PartGiven, PartsMerged, Phase
from eva_master.model.forks.merging import GivenWeights, MergeRound, PartFate


class Forks:
    """The forks on one simulated worker.

    Args:
        timeline: The virtual time.
        progress: Advances the programs.
        merge_ms: How long a merge that begins now takes, from the last part to the next epoch.
        post: Sends an event about an attempt, if there is a session: it is made from its number.
        leave: Ends a program with 0.
    """

    def __init__(
        self,
        timeline: Timeline,
        progress: ProgressModel,
        merge_ms: Callable[[], int],
        *,
        post: Callable[[Callable[[int], Event]], None],
        leave: Callable[[SimulatedAttempt], None],
    ) -> None:
        self._timeline = timeline
        self._progress = progress
        self._merge_ms = merge_ms
        self._post = post
        self._leave = leave

    def hear(self, attempt: SimulatedAttempt, told: MergeRound) -> None:
        """Do what a fork is told; it may be told again, or late."""
        fork = attempt.fork
        if fork is None or attempt.phase is not Phase.RUNNING or attempt.stopping:
            return
        if told.epoch < fork.epoch or not fork.gives:
            if not fork.gives and told.finished:
                self._timeline.after(0, lambda: self._leave(attempt))
            return
        if told.finished:
            self._timeline.after(0, lambda: self._leave(attempt))
        elif told.average:
            self._merge(attempt, fork, told)
        elif (told.epoch > fork.epoch and told.quota) or (told.whole and not fork.alone):
            self._begin(attempt, fork, told)
        elif told.epoch == fork.epoch:
            self._go_on(attempt, fork, told)

    def _begin(self, attempt: SimulatedAttempt, fork: ForkProgram, told: MergeRound) -> None:
        """Train in an epoch, from the merge before it, or its own if it has made one."""
        own = fork.done is not None and fork.epoch == told.epoch - 1
        fork.weights = (fork.made if own else told.merge).partition(":")[0]
        fork.epoch, fork.given, fork.merging, fork.done = told.epoch, None, False, None
        fork.alone, fork.last = told.whole, told.forks == 1
        fork.base_ms = attempt.done(self._timeline.now())
        attempt.until_ms = fork.base_ms + told.quota * 1000 / attempt.work.steps_per_s
        self._progress.pause(attempt, on=False)

    def _go_on(self, attempt: SimulatedAttempt, fork: ForkProgram, told: MergeRound) -> None:
        fork.last = told.forks == 1  # the newest word counts
        if fork.given is None and told.give:
            self._give_soon(attempt, fork)
        elif fork.given is not None:
            self._say_given(attempt, fork)

    def _give_soon(self, attempt: SimulatedAttempt, fork: ForkProgram) -> None:
        """Give the part once it holds a step."""
        if self._made(attempt, fork):
            self.give(attempt)
            return
        attempt.until_ms = fork.base_ms + 1000 / attempt.work.steps_per_s
        self._progress.pause(attempt, on=True)
        self._progress.pause(attempt, on=False)

    def _made(self, attempt: SimulatedAttempt, fork: ForkProgram) -> int:
        """Steps made in this epoch."""
        return attempt.work.steps(attempt.done(self._timeline.now()) - fork.base_ms)

    def share_done(self, attempt: SimulatedAttempt) -> None:
        """Go on from the end of a share."""
        fork = attempt.fork
        assert fork is not None
        if fork.last:
            self._leave(attempt)
        else:
            self.give(attempt)

    def give(self, attempt: SimulatedAttempt) -> None:
        """Stop training, and give the part."""
        fork = attempt.fork
        assert fork is not None
        if fork.alone:
            self._leave(attempt)
            return
        self._progress.pause(attempt, on=True)
        fork.given = self._made(attempt, fork)
        self._say_given(attempt, fork)

    def give_last(self, attempt: SimulatedAttempt) -> None:
        """Give what has been done of a share, before the program is stopped."""
        fork = attempt.fork
        if fork is None or not fork.gives or not fork.epoch or fork.alone:
            return
        if fork.given is None and self._made(attempt, fork):
            self.give(attempt)

    def _say_given(self, attempt: SimulatedAttempt, fork: ForkProgram) -> None:
        order, epoch, steps = attempt.order, fork.epoch, fork.given or 0
        digest = f"{_name(attempt)}.{steps}@{fork.weights}"
        self._post(
            lambda session: PartGiven(
                attempt.instance, session, order.run, order.attempt, epoch, steps, digest
            )
        )

    def _merge(self, attempt: SimulatedAttempt, fork: ForkProgram, told: MergeRound) -> None:
        """Merge the parts of an epoch, be it that one of them is its own or not."""
        if told.epoch > fork.epoch:
            fork.epoch, fork.given, fork.merging, fork.done = told.epoch, 0, False, None
        if fork.done is not None:
            self._say_merged(attempt, fork)
        elif not fork.merging:
            fork.merging = True
            epoch, parts = fork.epoch, told.parts
            self._timeline.after(self._merge_ms(), lambda: self._merged(attempt, epoch, parts))

    def _merged(
        self, attempt: SimulatedAttempt, epoch: int, parts: tuple[GivenWeights, ...]
    ) -> None:
        fork = attempt.fork
        if fork is not None and fork.epoch == epoch and attempt.phase is Phase.RUNNING:
            fork.done = tuple(PartFate(part.fork, kept=True) for part in parts)
            what = "+".join(part.digest for part in parts)
            fork.made = f"{epoch}.{_name(attempt)}:{what}"
            self._say_merged(attempt, fork)

    def _say_merged(self, attempt: SimulatedAttempt, fork: ForkProgram) -> None:
        order, epoch, kept, made = attempt.order, fork.epoch, fork.done or (), fork.made
        self._post(
            lambda session: PartsMerged(
                attempt.instance, session, order.run, order.attempt, epoch, kept, digest=made
            )
        )


def _name(attempt: SimulatedAttempt) -> str:
    number = 0 if attempt.order.fork is None else attempt.order.fork.number
    return f"{number}.{attempt.order.attempt}"
