"""Streaming k-means over bytes that the instance's data server sends as fast as it can.

Every iteration reads one chunk from $EVA_DATA_SERVER, cuts it into records of 16 bytes and moves
the nearest centroids towards them; it also counts how often each byte occurs. The server is shared
by all tasks of the instance, so two of these slow each other down. Without a server the chunks
are generated here. Environment: STEPS (chunks to read), CHUNK_KIB (size of each).
"""

import os
import urllib.request
from pathlib import Path

# BLAS reads this when numpy is imported: use the CPUs that the task was given, no more.
os.environ.setdefault("OMP_NUM_THREADS", os.environ.get("EVA_CPU_COUNT", "1"))

import eva_iterator
import numpy as np
from eva_iterator import EvaIterator

STEPS = int(os.environ.get("STEPS", "2000"))
CHUNK_BYTES = int(os.environ.get("CHUNK_KIB", "1024")) * 1024
SERVER = os.environ.get("EVA_DATA_SERVER")
CLUSTERS, RECORD, SEED = 8, 16, 41


def generated(step):
    """A chunk of records scattered around eight points, the same one for the same step."""
    centres = np.random.default_rng(SEED).integers(32, 224, (CLUSTERS, RECORD))
    rng = np.random.default_rng((SEED, step))
    size = CHUNK_BYTES // RECORD
    records = centres[rng.integers(CLUSTERS, size=size)] + rng.integers(-16, 17, (size, RECORD))
    return records.astype(np.uint8)


def received():
    """The next chunk from the data server. A broken connection fails the task; Eva retries it."""
    with urllib.request.urlopen(f"{SERVER}/read?bytes={CHUNK_BYTES}", timeout=60) as response:
        chunk = response.read()
    if len(chunk) != CHUNK_BYTES:
        raise OSError(f"{SERVER} sent {len(chunk)} bytes of {CHUNK_BYTES}")
    return np.frombuffer(chunk, np.uint8).reshape(-1, RECORD)


def spread_out(records):
    """Picks first centroids by going to the record farthest from all those picked so far."""
    picked = [records[0]]
    while len(picked) < CLUSTERS:
        distances = [((records - centroid) ** 2).sum(axis=1) for centroid in picked]
        picked.append(records[np.min(distances, axis=0).argmax()])
    return np.array(picked)


class Stream:
    """State learned from the chunks so far: all that a checkpoint must hold."""

    def __init__(self):
        self.step = 0
        self.centroids = np.zeros((0, RECORD))
        self.weights = np.zeros(CLUSTERS)
        self.histogram = np.zeros(256, np.int64)

    def learn(self, chunk):
        """Mini-batch k-means: every centroid stays the mean of the records it has drawn.

        Returns:
            The mean squared distance of a record to its centroid.
        """
        records = chunk.astype(np.float32)
        if not len(self.centroids):
            self.centroids = spread_out(records[:4096])
        # |r - c|^2 = |r|^2 - 2 r.c + |c|^2, and |r|^2 does not change which is nearest.
        centroids = self.centroids.astype(np.float32)
        distances = (centroids**2).sum(axis=1) - 2.0 * records @ centroids.T
        drawn = np.eye(CLUSTERS, dtype=np.float32)[distances.argmin(axis=1)]
        inertia = (np.einsum("rd,rd->r", records, records) + distances.min(axis=1)).mean()
        members = drawn.sum(axis=0, dtype=np.float64)
        self.weights += members
        shift = drawn.T @ records - members[:, None] * self.centroids
        self.centroids += shift / np.maximum(self.weights, 1.0)[:, None]
        self.histogram += np.bincount(chunk.ravel(), minlength=256)
        self.step += 1
        return float(inertia)

    def entropy(self):
        """Bits per byte of the stream, from the frequencies of the bytes."""
        share = self.histogram[self.histogram > 0] / self.histogram.sum()
        return float(-(share * np.log2(share)).sum())

    def save(self, directory: Path):
        """Writes a checkpoint; the SDK publishes the directory once this returns."""
        np.savez(directory / "state.npz", **vars(self))

    def restore(self, directory: Path):
        """Takes up where `save` was called."""
        with np.load(directory / "state.npz") as state:
            vars(self).update(state)
        self.step = int(self.step)


def main():
    stream = Stream()
    if checkpoint := eva_iterator.latest_checkpoint():
        stream.restore(checkpoint)
        print(f"resumed at step {stream.step}", flush=True)

    # On SIGTERM the iterator saves after the running step and ends the program.
    steps = range(stream.step, STEPS)
    for step in EvaIterator(steps, total=len(steps), checkpoint=stream.save, checkpoint_every_s=10):
        inertia = stream.learn(received() if SERVER else generated(step))
        if (step + 1) % max(1, STEPS // 20) == 0:
            eva_iterator.report(inertia=inertia, entropy=stream.entropy())
            print(f"step {step + 1} inertia {inertia:.1f}", flush=True)

    total = int(stream.histogram.sum())
    print(f"done: {total} bytes, {stream.entropy():.4f} bits per byte", flush=True)
    if storage := os.environ.get("EVA_STORAGE"):
        np.savez(Path(storage, "outputs", "statistics.npz"), **vars(stream))


if __name__ == "__main__":
    main()
