"""Files of jobs that tests make themselves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

PODS_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time"
)


def published() -> Path:
    """Where the published traces are on this machine; for tests marked ``published``."""
    return Path(os.environ["EVA_TEST_DATA"])


def task(**fields: Any) -> dict[str, Any]:
    """A task of the JSON form."""
    return {"demand": {"any": [1, 8, 16]}, **fields}


def job(**fields: Any) -> dict[str, Any]:
    """A job of the JSON form."""
    return {
        "name": "gcn[0]",
        "arrival_time": 60,
        "duration": 3_600,
        "tasks": {"0": task()},
        **fields,
    }


def write_jobs(path: Path, **jobs: Any) -> Path:
    """Write jobs by number: ``_0=job()``."""
    rows = {number.removeprefix("_"): row for number, row in jobs.items()}
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def write_pods(path: Path, *rows: str) -> Path:
    """Write a pod list."""
    path.write_text("\n".join((PODS_HEADER, *rows)) + "\n", encoding="utf-8")
    return path


def pod(
    name: str,
    *,
    gpus: object = 1,
    cpus: object = 8_000,
    mib: object = 16_384,
    phase: str = "Running",
    created: object = 0,
    deleted: object = 3_600,
) -> str:
    """A line of a pod list."""
    return f"{name},{cpus},{mib},{gpus},1000,,LS,{phase},{created},{deleted},{created}"
