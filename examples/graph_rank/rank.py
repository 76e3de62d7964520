"""Topic-sensitive PageRank on a scale-free graph that fills memory rather than the CPU.

Each topic has pages of its own to which a bored reader returns; power iteration finds where that
reader spends the time. Environment: STEPS (power iterations, 20 to a topic), NODES (pages of the
graph: about 400 bytes of memory each).
"""

import os
from pathlib import Path

# BLAS reads this when numpy is imported: use the CPUs that the task was given, no more.
os.environ.setdefault("OMP_NUM_THREADS", os.environ.get("EVA_CPU_COUNT", "1"))

import eva_iterator
import numpy as np
from eva_iterator import EvaIterator

STEPS = int(os.environ.get("STEPS", "1000"))
NODES = int(os.environ.get("NODES", "500000"))
LINKS_PER_NODE, ITERATIONS_PER_TOPIC, DAMPING, SEED = 12, 20, 0.85, 53


def links():
    """Returns source and target of every link.

    Half of them lead to a page nearby, half to a page of popularity rank r with a probability
    that falls off as r ** -0.5, so that the number of links to a page follows a power law.
    """
    rng = np.random.default_rng(SEED)
    sources = np.repeat(np.arange(NODES), LINKS_PER_NODE)
    nearby = (sources + rng.integers(-50, 51, len(sources))) % NODES
    popular = rng.permutation(NODES)[(NODES * rng.random(len(sources)) ** 2).astype(np.int64)]
    return sources, np.where(rng.random(len(sources)) < 0.5, nearby, popular)


def home(topic):
    """The pages that the reader of `topic` returns to: a run of 1 in 1000, with equal odds."""
    size = max(1, NODES // 1000)
    first = np.random.default_rng((SEED, topic)).integers(NODES - size)
    start = np.zeros(NODES)
    start[first : first + size] = 1.0 / size
    return start


class Ranking:
    """The topic being ranked and those that are done. The graph is generated again at a restart."""

    def __init__(self):
        self.step = 0
        self.rank = np.zeros(NODES)
        self.best = np.zeros(0, np.int64)

    def iterate(self, sources, targets):
        """One power iteration of the current topic.

        Returns:
            How much of the reader's time moved elsewhere, from 0 to 2.
        """
        topic, iteration = divmod(self.step, ITERATIONS_PER_TOPIC)
        start = home(topic)
        before = start if iteration == 0 else self.rank
        flow = (before / LINKS_PER_NODE)[sources]
        arrived = np.bincount(targets, weights=flow, minlength=NODES)
        self.rank = (1.0 - DAMPING) * start + DAMPING * arrived
        self.step += 1
        if iteration == ITERATIONS_PER_TOPIC - 1:
            self.best = np.append(self.best, self.rank.argmax())
        return float(np.abs(self.rank - before).sum())

    def save(self, directory: Path):
        """Writes a checkpoint; the SDK publishes the directory once this returns."""
        np.savez(directory / "state.npz", **vars(self))

    def restore(self, directory: Path):
        """Takes up exactly where `save` was called."""
        with np.load(directory / "state.npz") as state:
            vars(self).update(state)
        self.step = int(self.step)


def main():
    sources, targets = links()
    ranking = Ranking()
    if checkpoint := eva_iterator.latest_checkpoint():
        ranking.restore(checkpoint)
        print(f"resumed at step {ranking.step}", flush=True)

    # On SIGTERM the iterator saves after the running step and ends the program.
    steps = range(ranking.step, STEPS)
    for step in EvaIterator(
        steps, total=len(steps), checkpoint=ranking.save, checkpoint_every_s=10
    ):
        residual = ranking.iterate(sources, targets)
        if (step + 1) % max(1, STEPS // 20) == 0:
            eva_iterator.report(residual=residual, topics=len(ranking.best))
            print(f"step {step + 1} residual {residual:.3e}", flush=True)

    print(f"done: best pages by topic {ranking.best.tolist()}", flush=True)
    if storage := os.environ.get("EVA_STORAGE"):
        np.savez(Path(storage, "outputs", "ranks.npz"), best=ranking.best, rank=ranking.rank)


if __name__ == "__main__":
    main()
