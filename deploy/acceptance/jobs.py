"""Files of the trial's jobs."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from eva_master.app.demo.jobs import FIRST_WAVE, SECOND_WAVE

_TOP = Path(__file__).parents[2]
_IMAGE = """\
FROM public.ecr.aws/docker/library/python:3.11-slim
COPY iterator_sdk /sdk
RUN pip install --no-cache-dir numpy /sdk
"""
"""An image that has what the demo's programs import."""
_PLAIN: dict[str, dict[str, Any]] = {
    "steady": {"run": "sleep 7200", "resources": {"cpus": 1, "memory": "1GiB"}},
    "array": {
        "kind": "array",
        "tasks": 6,
        "concurrency": 3,
        "run": 'echo "task $EVA_TASK_INDEX"',
        "reports_steps": False,
        "resources": {"cpus": 1, "memory": "1GiB"},
    },
    "spot": {
        "run": "echo on spot",
        "spot": "only",
        "resources": {"cpus": 1, "memory": "1GiB"},
    },
    "gpu": {
        "run": 'nvidia-smi -L || [ -n "$EVA_PLAIN" ]',
        "resources": {"gpus": 1, "cpus": 1, "memory": "4GiB"},
    },
}
"""Jobs that need nothing of their image but a shell."""
_EMULATED: dict[str, dict[str, Any]] = {"gpu": {"run": 'test -n "$CUDA_VISIBLE_DEVICES"'}}


def plain(name: str, work: Path, *, emulated: bool) -> Path:
    """Write the file of a job that a shell runs.

    Args:
        name: One of `_PLAIN`.
        work: Where.
        emulated: Whether GPUs are names alone, as on a stand-in.
    """
    file = work / f"{name}.yaml"
    document = {"name": name, **_PLAIN[name]}
    if emulated:
        document |= _EMULATED.get(name, {})
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def of_the_demo(work: Path, *, shorter: int, emulated: bool) -> list[Path]:
    """Write the demo's jobs, one of each kind, with their programs.

    Args:
        work: Where.
        shorter: How many times fewer steps they make than in the demo.
        emulated: Whether workers run plain processes, which have all that they import.
    """
    kinds = {job.example: job for job in (*SECOND_WAVE, *FIRST_WAVE)}
    if not emulated:
        image = work / "image"
        shutil.copytree(_TOP / "iterator_sdk", image / "iterator_sdk", dirs_exist_ok=True)
        (image / "Dockerfile").write_text(_IMAGE, encoding="utf-8")
    files = []
    for job in kinds.values():
        steps = max(1, int(job.envs["STEPS"]) // shorter)
        wanted = replace(job, envs={**job.envs, "STEPS": str(steps)})
        document = yaml.safe_load(wanted.file())
        document["envs"] = {**document.get("envs", {}), **wanted.envs}
        if not emulated:
            document["build"] = {"context": "../image"}
        folder = work / job.name
        shutil.copytree(job.folder, folder, dirs_exist_ok=True)
        files.append(folder / "trial.yaml")
        files[-1].write_text(yaml.safe_dump(document), encoding="utf-8")
    return files
