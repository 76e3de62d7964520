"""Carries out all missing runs of an experiment, on all cores or on a cluster."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from joblib import Parallel, delayed, parallel_config

from eva_lab.experiments.execution import execute
from eva_lab.experiments.runs import Cell, Result, Results, Run
from eva_wire.values.errors import InvalidConfig

_LOCAL = "loky"
_LISTED_AT_ONCE = ("ray",)
"""Backends that return results only when all are done."""
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class RunExecutor:
    """Where runs are carried out.

    Attributes:
        jobs: Number of concurrent runs; -1 for one per core.
        backend: A backend of joblib: ``loky`` for processes of this machine, ``dask`` or ``ray``.
        options: Options of the backend, such as ``scheduler_host`` of dask.
    """

    jobs: int = -1
    backend: str = _LOCAL
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """The progress of a sweep; `error` is that of the run that has just ended."""

    done: int
    total: int
    error: str = ""


def missing(cells: Sequence[Cell], results: Results, *, fresh: bool = False) -> list[Run]:
    """Runs that have no result yet, or all if `fresh`; each once, reference bounds first."""
    by_digest = {cell.digest: cell.run for cell in cells}
    runs = [run for digest, run in by_digest.items() if fresh or results.find(digest) is None]
    return sorted(runs, key=lambda run: run.kind != "reference")


def sweep(
    runs: Sequence[Run], results: Results, crew: RunExecutor, watch: Callable[[SweepProgress], None]
) -> list[Result]:
    """Carry out runs and keep each result at once.

    Returns:
        The results of failed runs, which are not kept.

    Raises:
        InvalidConfig: There is no such backend.
    """
    failed = []
    watch(SweepProgress(0, len(runs)))
    for done, result in enumerate(_carried_out(runs, crew), start=1):
        if "error" in result:
            failed.append(result)
        else:
            results.keep(result)
        watch(SweepProgress(done, len(runs), result.get("error", "")))
    return failed


def _carried_out(runs: Sequence[Run], crew: RunExecutor) -> Iterator[Result]:
    _register(crew.backend)
    options = dict(crew.options or {})
    if crew.backend == _LOCAL:
        options |= {"initializer": _end_with, "initargs": (os.getpid(),)}
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(parallel_config(crew.backend, n_jobs=crew.jobs, **options))
        except (ValueError, TypeError, ImportError) as error:
            raise InvalidConfig(f"backend {crew.backend}: {error}") from error
        once = crew.backend in _LISTED_AT_ONCE
        parallel = Parallel(return_as="list" if once else "generator_unordered", batch_size=1)
        yield from parallel(delayed(execute)(run) for run in runs)


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, which may have been killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _register(backend: str) -> None:
    """Register a backend that joblib does not know by itself."""
    try:
        if backend == "ray":
            import_module("ray.util.joblib").register_ray()
        elif backend == "dask":
            import_module("distributed")
    except ImportError as error:
        hint = f"pip install {'distributed' if backend == 'dask' else backend}"
        raise InvalidConfig(f"backend {backend}: {error}", hint=hint) from error
