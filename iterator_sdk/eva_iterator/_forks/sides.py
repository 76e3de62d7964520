"""The two sides of a fork: the program, which has the weights, and its session with an agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from eva_iterator._forks.parts import ForkPart
    from eva_iterator._progress import Progress
    from eva_iterator._stop import Stop


class Weights(Protocol):
    """How the program's state is written, averaged and taken over; see `Forked`."""

    save: Callable[[Path], object]
    load: Callable[[Path], object]
    average: Callable[[Sequence[ForkPart], Path], object] | None
    check: Callable[[], float] | None
    patience_s: float


class Host(Protocol):
    """The process's connection to its agent."""

    progress: Progress
    stop: Stop

    def wake(self) -> None:
        """Asks for a report now."""
