"""Takes the pictures of the README from a real run: ``python -m benchmarks.pictures``.

A cluster of emulated instances and a node of its own runs jobs that pretend to train. A browser
(Debian's chromium) takes the pages Cluster and Overview once the fleet has settled.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import end_children_at_sigterm
from tests.e2e.browser.browsing import Visitor, visitor
from tests.e2e.cluster import EVA, Cluster, until
from tests.fakes.paths import PYTHON, short_tempdir

IMAGES = Path(__file__).parents[1] / "docs" / "images"
MOST_BYTES = 200_000
_STEP_S = 0.5
_TYPES = (
    *("p3.2xlarge", "p3.8xlarge", "p3.16xlarge", "c7i.large", "c7i.xlarge", "c7i.2xlarge"),
    *("c7i.4xlarge", "r7i.large", "r7i.xlarge", "r7i.2xlarge", "r7i.4xlarge"),
)
_QUICK = {"acquisition": "1s", "setup": "1s"}
_SETTINGS: Mapping[str, Any] = {
    "cluster": "atlas",
    "round_min_interval": "1s",
    "nodes": {
        "rack1": {
            "type": "own.rack",
            "capacity": {"gpus": 2, "gpu": "V100", "cpus": 2, "memory": "8GiB"},
            "usd_per_hour": 0,
            "fence_after": "60s",
        }
    },
}
_JOBS: tuple[tuple[str, int, Mapping[str, Any], str], ...] = (
    ("llama-tune", 2, {"gpus": 4, "cpus": 14, "memory": "120GiB"}, "nlp"),
    ("resnet50", 1, {"gpus": 2, "cpus": 12, "memory": "80GiB"}, "vision"),
    ("sdxl-lora", 1, {"gpus": 2, "cpus": 8, "memory": "60GiB"}, "vision"),
    ("unet3d", 1, {"gpus": 2, "cpus": 10, "memory": "110GiB"}, "medical"),
    ("whisper-eval", 1, {"gpus": 1, "cpus": 6, "memory": "30GiB"}, "speech"),
    ("bert-distill", 1, {"gpus": 1, "cpus": 3, "memory": "40GiB"}, "nlp"),
    ("vit-b16", 1, {"gpus": 1, "cpus": 4, "memory": "24GiB"}, "vision"),
    ("graph-rank", 1, {"cpus": 9, "memory": "70GiB"}, "search"),
    ("etl-clicks", 1, {"cpus": 5, "memory": "6GiB"}, "data"),
    ("tokenize", 2, {"cpus": 6, "memory": "10GiB"}, "nlp"),
    ("notebook", 1, {"gpus": 1, "cpus": 1, "memory": "5GiB"}, "search"),
)


def submit(cluster: Cluster) -> None:
    """Submit all jobs, and one that fails."""
    for number, (name, tasks, resources, team) in enumerate(_JOBS):
        train(
            cluster,
            name,
            resources=resources,
            labels={"team": team},
            envs={"STEPS": str(1_500 + 350 * number)},
            total_steps=1_500 + 350 * number,
            **({"tasks": tasks} if tasks > 1 else {}),
        )
    small = {"cpus": 1, "memory": "1GiB"}
    train(cluster, "bad-config", resources=small, envs={"FAIL_AT": "4"}, retries=0)


def train(cluster: Cluster, name: str, *, envs: Mapping[str, str], **keys: Any) -> str:
    """Submit a job that pretends to train."""
    return cluster.submit(
        name,
        run=f"exec {PYTHON} trainer.py",
        throughput=1 / _STEP_S,
        delays={"checkpoint": "1s", "launch": "1s"},
        envs={"STEP_S": str(_STEP_S), **envs},
        **keys,
    )


@contextmanager
def joined(cluster: Cluster) -> Iterator[None]:
    """Have the cluster's own node join, until the block ends."""
    token = cluster.home / "rack1.token"
    cluster.eva("node", "token", "rack1", "--out", str(token))
    place = ("--type", "own.rack", "--state-dir", str(cluster.home / "rack1"))
    command = [*EVA, "worker", "--join", str(token), *place, "--emulated"]
    with subprocess.Popen(command) as node:
        try:
            yield
        finally:
            node.terminate()


def take(user: Visitor, images: Path) -> None:
    """Take the pictures that the README shows."""
    for name, path, theme, height in (
        ("cluster", "/cluster", "light", 930),
        ("overview", "/", "dark", 960),
    ):
        page = user.context("dark" if theme == "dark" else "light", 1_280).new_page()
        page.set_viewport_size({"width": 1_280, "height": height})
        page.goto(path)
        page.wait_for_load_state("load")
        file = images / f"{name}.png"
        page.screenshot(path=file)
        size = file.stat().st_size
        print(f"{file}: {size:,} bytes")
        assert size < MOST_BYTES, f"{file} is larger than {MOST_BYTES:,} bytes"


def main() -> None:
    """Run the cluster, and take pictures of it."""
    end_children_at_sigterm()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settle", type=float, default=90.0, help="seconds before the pictures")
    parser.add_argument("--to", type=Path, default=IMAGES, help="directory of the pictures")
    chosen = parser.parse_args()
    chosen.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="eva-pictures-", dir=short_tempdir(), ignore_cleanup_errors=True
    ) as home:
        catalog = {"types": dict.fromkeys(_TYPES, _QUICK)}
        cluster = Cluster(Path(home), settings=_SETTINGS, catalog=catalog)
        with ExitStack() as stack:
            stack.callback(cluster.close)
            cluster.start()
            stack.enter_context(joined(cluster))
            until(lambda: "rack1" in cluster.instances(), "the node joins")
            submit(cluster)
            time.sleep(chosen.settle)
            take(stack.enter_context(visitor(cluster)), chosen.to)


if __name__ == "__main__":
    main()
