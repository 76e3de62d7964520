"""Carries out all missing runs of an experiment, on all cores or on a cluster."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import Any

from joblib import Parallel, delayed, effective_n_jobs, parallel_config

from eva_lab.experiments.execution import execute
from eva_lab.experiments.pace import Pace
from eva_lab.experiments.runs import Cell, Result, Results, Run
from eva_wire.values.errors import InvalidConfig, Unreachable

_LOCAL = "loky"
_LISTED_AT_ONCE = ("ray",)
"""Backends that return results only when all are done."""
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class RunExecutor:
    """Where runs are carried out.

    Attributes:
        jobs: Number of concurrent runs; -1 for one per core.
        backend: A backend of joblib: ``loky`` for processes of this machine, or ``ray``.
        dask: Address of the scheduler of a dask cluster, in place of a backend.
    """

    jobs: int = -1
    backend: str = _LOCAL
    dask: str = ""


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """The progress of a sweep.

    Attributes:
        done: Runs that have ended.
        total: All runs.
        error: Of the run that has just ended.
        left_s: Seconds until the last run ends; `None` if not known yet.
    """

    done: int
    total: int
    error: str = ""
    left_s: float | None = None


def missing(cells: Sequence[Cell], results: Results, *, fresh: bool = False) -> list[Run]:
    """Runs that have no result yet, or all if `fresh`; each once, reference bounds first."""
    by_digest = {cell.digest: cell.run for cell in cells}
    runs = [run for digest, run in by_digest.items() if fresh or results.find(digest) is None]
    return sorted(runs, key=lambda run: run.kind != "reference")


def sweep(
    runs: Sequence[Run],
    results: Results,
    crew: RunExecutor,
    watch: Callable[[SweepProgress], None],
    earlier: Iterable[tuple[Run, float]] = (),
) -> list[Result]:
    """Carry out runs and keep each result at once.

    Args:
        runs: The runs.
        results: The folder of results.
        crew: Where they are carried out.
        watch: Called when a run has ended.
        earlier: Runs that have ended before, with their seconds.

    Returns:
        The results of failed runs, which are not kept.

    Raises:
        InvalidConfig: There is no such backend.
        Unreachable: The cluster does not answer, or is lost. The results so far are kept.
    """
    failed, pace = [], Pace(runs, earlier, time.monotonic)
    watch(SweepProgress(0, len(runs)))
    with _dask(crew.dask) if crew.dask else _joblib(crew) as place:
        for done, result in enumerate(place.carried_out(pace.longest_first()), start=1):
            if "error" in result:
                failed.append(result)
                pace.ended(result["digest"], None)
            else:
                results.keep(result)
                pace.ended(result["digest"], result["made"]["wall_s"])
            left_s = pace.left_s(place.workers())
            watch(SweepProgress(done, len(runs), result.get("error", ""), left_s))
    return failed


@dataclass(frozen=True, slots=True)
class _Place:
    """A place for runs.

    Attributes:
        workers: Returns how many runs it carries out at a time.
        carried_out: Takes a run when a worker is free, and yields results as runs end.
    """

    workers: Callable[[], int]
    carried_out: Callable[[Iterator[Run]], Iterable[Result]]


@contextlib.contextmanager
def _joblib(crew: RunExecutor) -> Iterator[_Place]:
    """A backend of joblib."""
    _register(crew.backend)
    options: dict[str, Any] = {}
    if crew.backend == _LOCAL:
        options = {"initializer": _end_with, "initargs": (os.getpid(),)}
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(parallel_config(crew.backend, n_jobs=crew.jobs, **options))
        except (ValueError, TypeError, ImportError) as error:
            raise InvalidConfig(f"backend {crew.backend}: {error}") from error
        parallel = Parallel(
            return_as="list" if crew.backend in _LISTED_AT_ONCE else "generator_unordered",
            batch_size=1,
            pre_dispatch="n_jobs",
        )
        yield _Place(effective_n_jobs, lambda runs: parallel(delayed(execute)(run) for run in runs))


@contextlib.contextmanager
def _dask(address: str) -> Iterator[_Place]:
    """A dask cluster, which may lose workers and get others meanwhile."""
    try:
        distributed = import_module("distributed")
    except ImportError as error:
        hint = "pip install 'eva-lab[sim,dask]'"
        raise InvalidConfig("distributed is not installed", hint=hint) from error
    try:
        client = distributed.Client(address, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise _lost(address, error) from error

    def workers() -> int:
        return max(1, sum(map(int, client.ncores().values())))

    def carried_out(runs: Iterator[Run]) -> Iterator[Result]:
        ended, under_way = distributed.as_completed(loop=client.loop), 0
        while True:
            try:
                for run in islice(runs, max(0, workers() - under_way)):
                    ended.add(client.submit(execute, run, pure=False))
                    under_way += 1
                if not under_way:
                    return
                result = next(ended).result()
            except (OSError, CancelledError, distributed.KilledWorker) as error:
                raise _lost(address, error) from error
            under_way -= 1
            yield result

    with client:
        yield _Place(workers, carried_out)


def _lost(address: str, error: BaseException) -> Unreachable:
    why = str(error) or type(error).__name__
    hint = "finished runs are kept: the same command goes on from there"
    return Unreachable(f"the dask cluster at {address}: {why}", hint=hint)


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, which may have been killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _register(backend: str) -> None:
    """Register a backend that joblib does not know by itself."""
    if backend != "ray":
        return
    try:
        import_module("ray.util.joblib").register_ray()
    except ImportError as error:
        raise InvalidConfig(f"backend {backend}: {error}", hint="pip install ray") from error
