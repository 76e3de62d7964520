"""Prints worlds and what became of them."""

from __future__ import annotations

import yaml

from tests.worlds.records import Story
from tests.worlds.world import World


def shown(world: World) -> str:
    """The files of a world."""
    lines = [
        f"# {world.title}: catalog, minimum {world.minimum_s} s, beside another {world.shared}"
    ]
    lines += [f"{kind.name}: {kind.entry}" for kind in world.kinds]
    lines += [f"own node {name}: {kind.entry}" for name, kind in world.nodes.items()]
    lines.append("# settings")
    lines.append(yaml.safe_dump(dict(world.settings)).strip())
    lines.append("# jobs: when submitted, true seconds alone, speeds, job file")
    for job in world.jobs:
        more = f" fails {job.failures} times" if job.failures else ""
        true = f"{list(job.seconds)} s {dict(job.speeds) or ''}{more}"
        lines.append(f"{job.at_s:7.1f} s {job.owner} {true} {job.file}")
    lines += [f"{it.at_s:7.1f} s order: {it.verb} {it.subject} {it.to}" for it in world.orders]
    return "\n".join(lines)


def told(story: Story) -> str:
    """What happened in a world, in order."""
    lines = [f"# {story.world.title} --policy {story.policy}"]
    lines += [f"{at / 1000:9.1f} {said}" for at, said in story.told]
    lines.append(
        f"# ended after {story.end_ms / 1000:.0f} s, ${story.cost():.4f},"
        f" {sum(1 for _ in story.bought())} launches, {len(story.attempts)} attempts"
    )
    return "\n".join(lines)
