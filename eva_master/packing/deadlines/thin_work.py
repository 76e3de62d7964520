"""How much work with little time to lose is in each spot pool, since a pool is one risk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from eva_master.learning.market.pools import SpotPool
from eva_wire.values.ids import MILLION, JobId


class ThinWork:
    """The work of jobs that have time to lose for no second change, wherever they run.

    Sums are kept, so that nothing here takes longer for more jobs.
    """

    def __init__(self) -> None:
        self._jobs: dict[JobId, tuple[frozenset[SpotPool], int]] = {}
        self._pools: Counter[SpotPool] = Counter()
        self._total = 0

    def put(self, job: JobId, pools: Collection[SpotPool], work: int) -> None:
        """Record the place of a job.

        Args:
            job: The job.
            pools: The spot pools in which its tasks are; none if they are elsewhere.
            work: Its remaining work, in any unit that is equal for all jobs.
        """
        self.drop(job)
        self._jobs[job] = frozenset(pools), work
        self._total += work
        for pool in pools:
            self._pools[pool] += work

    def drop(self, job: JobId) -> None:
        """Forget a job, which has ended or has more time to lose again."""
        pools, work = self._jobs.pop(job, (frozenset(), 0))
        self._total -= work
        for pool in pools:
            self._pools[pool] -= work
            if not self._pools[pool]:
                del self._pools[pool]

    def is_crowded(self, pool: SpotPool, share_ppm: int, more: int = 0) -> bool:
        """Whether more than a share of all such work is in a pool.

        Args:
            pool: Which.
            share_ppm: The share, in millionths.
            more: Work that is counted elsewhere, if it were there.
        """
        return (self._pools[pool] + more) * MILLION > share_ppm * self._total
