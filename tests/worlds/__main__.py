"""Runs random worlds, or tells the story of one: `python -m tests.worlds --help`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import yaml

from tests.worlds.drawing import FLAVOURS, draw
from tests.worlds.oracles import findings, findings_beside
from tests.worlds.records import Story
from tests.worlds.running import POLICIES, run
from tests.worlds.world import World

_HELP = """Runs small random worlds through the production control loop; tells what oracles find.

Each world is drawn from a flavour and a seed. --count runs so many seeds from --seed on; --trace
tells the story of each world, --show prints its catalog, settings and job files."""


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; the exit code is 1 if an oracle found anything."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.worlds",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--flavour", action="append", choices=[*FLAVOURS], help="by default all")
    parser.add_argument("--policy", action="append", choices=[*POLICIES], help="by default eva")
    parser.add_argument("--seed", type=int, default=0, help="of the first world; by default 0")
    parser.add_argument("--count", type=int, default=1, help="how many seeds; by default 1")
    parser.add_argument("--oracle", action="append", default=[], help="only findings of this one")
    parser.add_argument(
        "--beside", action="store_true", help="also beside no_packing, and with equal priorities"
    )
    parser.add_argument("--trace", action="store_true", help="tell what happens in each world")
    parser.add_argument("--show", action="store_true", help="print the files of each world")
    parser.add_argument("--quiet", action="store_true", help="print the sums alone")
    chosen = parser.parse_args(arguments)
    sums: Counter[str] = Counter()
    for seed in range(chosen.seed, chosen.seed + chosen.count):
        for flavour in chosen.flavour or FLAVOURS:
            world = draw(seed, flavour)
            if chosen.show:
                print(shown(world))
            for policy in chosen.policy or ["eva"]:
                story = run(world, policy, trace=chosen.trace)
                if chosen.trace:
                    print(told(story))
                sums["worlds"] += 1
                sums["launches"] += sum(1 for _ in story.bought())
                seen = findings(story)
                if chosen.beside:
                    seen += findings_beside(story, run)
                seen = [it for it in seen if not chosen.oracle or it.oracle in chosen.oracle]
                sums.update({it.oracle for it in seen})
                sums["worlds with findings"] += bool(seen)
                if not chosen.quiet:
                    print(*seen, sep="\n" if seen else "", end="\n" if seen else "")
    print(", ".join(f"{count} {name}" for name, count in sums.items()))
    return int(bool(sums["worlds with findings"]))


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
    """Events in a world, in order."""
    lines = [f"# {story.world.title} --policy {story.policy}"]
    lines += [f"{at / 1000:9.1f} {said}" for at, said in story.told]
    lines.append(
        f"# ended after {story.end_ms / 1000:.0f} s, ${story.cost():.4f},"
        f" {sum(1 for _ in story.bought())} launches, {len(story.attempts)} attempts"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
