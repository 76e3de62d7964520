"""Small worlds for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

JOB: dict[str, Any] = {
    "tenant": 0,
    "arrival_slot": 1,
    "epochs": 2,
    "chunks": 2,
    "minibatches": 1,
    "minibatch_h": 0.5,
    "update_h": 0.5,
    "gradient_mb": 0.0,
    "k": -2.0,
    "g": 100.0,
    "e": 100.0,
    "kappa": 1.0,
    "requested_gpus": 1,
}
"""4 hours of one worker, for two at most."""


def world(*jobs: dict[str, Any], servers: tuple[int, ...] = (2, 2)) -> dict[str, Any]:
    """A world in which each server is a tenant's; jobs differ from `JOB` by what is given."""
    return {
        "servers": [{"workers": gpus, "ps": 1} for gpus in servers],
        "worker_mbps": 1000.0,
        "ps_mbps": 10000.0,
        "tenants": [
            {"servers": [number], "workers": gpus, "ps": 1} for number, gpus in enumerate(servers)
        ],
        "jobs": [{**JOB, **job} for job in jobs],
    }


def written(folder: Path, content: object) -> Path:
    """A file with a world."""
    path = folder / "small.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
