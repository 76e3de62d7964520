"""The program's part in training by several forks at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eva_iterator._forks.parts import ForkPart

PATIENCE_S = 600.0
"""How long a fork waits for a merge, in seconds, before it trains on without."""


class Forked:
    """How the state of a forked program is written, averaged and taken over.

    A forked job runs as several copies of its program, on nodes of their own. Each trains from the
    same weights for a while, then one of them averages the weights of all, and each goes on from
    the average. `EvaIterator(..., forked=...)` does all of it between two steps. Outside Eva, and
    in a job without forks, it does nothing.
    """

    def __init__(
        self,
        save: Callable[[Path], object],
        load: Callable[[Path], object],
        *,
        average: Callable[[Sequence[ForkPart], Path], object] | None = None,
        check: Callable[[], float] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Describes the state.

        Args:
            save: Writes the state into the given directory, as a checkpoint does. Unless `average`
                is given, weights must be in `.npz`, `.npy`, `.pt` or `.pth` files: what is
                floating-point in them is averaged, weighted by steps; integers, and `.json`,
                `.txt`, `.yaml`, `.toml` and `.csv` files, are those of the fork that made most
                steps.
            load: Takes over the state from a directory that holds such files.
            average: Writes the average of `parts` into the given directory, in place of the above.
                Each part has `path`, `steps`, `fork` and `check`. The contents of `path` were
                written by another process: read them without unpickling.
            check: Computes a metric of the present weights, such as the loss on held-out data.
                With it Eva notices if averaging does harm. Without it, the metric that the job
                file names is looked up among those that were reported.
            patience_s: How long to wait for a merge before training on without, if that is longer
                than the cluster takes to have another fork merge.

        Raises:
            ValueError: `patience_s` is not positive.
        """
        if not patience_s > 0:
            raise ValueError(f"patience_s must be positive: {patience_s}")
        self.save = save
        self.load = load
        self.average = average
        self.check = check
        self.patience_s = patience_s
