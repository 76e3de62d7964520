"""Data-parallel training on images of digits: a gang of any size, in numpy.

Every member computes the gradient of its share of each mini-batch; the shares are summed over TCP
(`ring.py`), and all members take the same step. Started without a gang, it trains alone.
Environment: STEPS (mini-batches to train), BATCH (images in each, over all members), HIDDEN (width
of the hidden layer).
"""

import os
import signal
import sys
import threading
from pathlib import Path

# BLAS reads this when numpy is imported: shares this small are slower with more threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import eva_iterator
import numpy as np
from eva_iterator import EvaIterator
from ring import PeerLost, Ring

STEPS = int(os.environ.get("STEPS", "18000"))
BATCH = int(os.environ.get("BATCH", "256"))
HIDDEN = int(os.environ.get("HIDDEN", "256"))
LEARNING_RATE, MOMENTUM, NOISE, BLUR, SEED = 0.05, 0.9, 0.1, 0.25, 17
DIGITS = 31599, 11415, 29671, 29647, 23497, 31183, 31215, 29257, 31727, 31695
"""Each digit in 5 rows of 3 pixels, as bits."""
SHAPES = [(64, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,)]
ENDS = np.cumsum([np.prod(shape) for shape in SHAPES])


def load():
    """Returns training images and labels, then test ones: digits on 8 by 8 pixels."""
    rng, bits = np.random.default_rng(SEED), np.arange(14, -1, -1)
    glyphs = (np.array(DIGITS)[:, np.newaxis] >> bits & 1).reshape(10, 5, 3)
    labels, rows, columns = rng.integers((0, 1, 2), (10, 3, 4), size=(1800, 3)).T
    images = np.zeros((1800, 8, 8))
    for image, label, row, column in zip(images, labels, rows, columns, strict=True):
        image[row : row + 5, column : column + 3] = glyphs[label]
    images = np.clip(images + rng.normal(0.0, BLUR, images.shape), 0.0, 1.0).reshape(1800, 64)
    return images[:1400], labels[:1400], images[1400:], labels[1400:]


def layers(vector):
    """Views of a vector as the weights and biases of both layers."""
    parts = np.split(vector, ENDS[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, SHAPES, strict=True)]


class Trainer:
    """Everything that a checkpoint must hold: parameters, momentum, step."""

    def __init__(self, ring, asked):
        self.ring, self.asked = ring, asked
        self.step, self.stopping = 0, False
        self.parameters = np.random.default_rng(SEED).normal(0.0, 0.1, ENDS[-1])
        self.velocity = np.zeros_like(self.parameters)

    def remaining(self):
        """The steps from here on, until the members agree to stop."""
        while self.step < STEPS and not self.stopping:
            yield self.step

    def share(self):
        """Makes all members continue from the state of member 0, whatever checkpoint they have."""
        state = np.concatenate([self.parameters, self.velocity, [self.step]])
        # Added to nothing but zeros, it arrives as it is.
        state = self.ring.sum(state if self.ring.rank == 0 else np.zeros_like(state))
        self.parameters, self.velocity, (step,) = np.split(state, [ENDS[-1], 2 * ENDS[-1]])
        self.step = int(step)

    def forward(self, images):
        """Returns the hidden layer and the probabilities of the classes."""
        w0, b0, w1, b1 = layers(self.parameters)
        hidden = np.maximum(images @ w0 + b0, 0.0)
        logits = hidden @ w1 + b1
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        return hidden, exponentials / exponentials.sum(axis=1, keepdims=True)

    def train(self, images, labels):
        """One mini-batch: this member's share of the gradient, everyone's sum, a momentum step."""
        # The batch follows from the step alone: the same after every restart, on every member.
        rng = np.random.default_rng((SEED, self.step))
        pick = rng.integers(len(images), size=BATCH)
        noisy = images[pick] + rng.normal(0.0, NOISE, (BATCH, images.shape[1]))
        share = slice(self.ring.rank, None, self.ring.size)
        hidden, error = self.forward(noisy[share])
        error[np.arange(len(error)), labels[pick][share]] -= 1.0
        error /= BATCH
        back = (error @ layers(self.parameters)[2].T) * (hidden > 0.0)
        parts = (noisy[share].T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0))
        # Members are asked to stop at slightly different times. A vote in the sum has all of them
        # stop after the same step: one that waited for a member that has left would be lost.
        vote = [float(self.asked.is_set())]
        total = self.ring.sum(np.concatenate([*(part.ravel() for part in parts), vote]))
        self.velocity = MOMENTUM * self.velocity - LEARNING_RATE * total[:-1]
        self.parameters += self.velocity
        self.stopping = total[-1] > 0
        self.step += 1

    def evaluate(self, images, labels):
        """Returns the mean cross-entropy and the share of images recognised."""
        _, probability = self.forward(images)
        loss = -np.log(probability[np.arange(len(labels)), labels] + 1e-300).mean()
        return float(loss), float((probability.argmax(axis=1) == labels).mean())

    def save(self, directory: Path):
        """Writes a checkpoint; the SDK publishes the directory once this returns."""
        state = {"parameters": self.parameters, "velocity": self.velocity, "step": self.step}
        np.savez(directory / "state.npz", **state)

    def restore(self, directory: Path):
        """Takes up exactly where `save` was called."""
        with np.load(directory / "state.npz") as state:
            self.parameters, self.velocity = state["parameters"], state["velocity"]
            self.step = int(state["step"])


def train(ring):
    images, labels, test_images, test_labels = load()
    asked = threading.Event()
    trainer = Trainer(ring, asked)
    if ring.rank == 0 and (checkpoint := eva_iterator.latest_checkpoint()):
        trainer.restore(checkpoint)
    trainer.share()
    if trainer.step:
        print(f"resumed at step {trainer.step}", flush=True)

    # The SDK takes SIGTERM over first, so that this handler stays: when to stop is up to us.
    eva_iterator.stopping()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    saving = {"checkpoint": trainer.save, "checkpoint_every_s": 10} if ring.rank == 0 else {}
    for step in EvaIterator(trainer.remaining(), total=STEPS - trainer.step, **saving):
        trainer.train(images, labels)
        if ring.rank == 0 and (step + 1) % max(1, STEPS // 20) == 0:
            loss, accuracy = trainer.evaluate(test_images, test_labels)
            eva_iterator.report(loss=loss, accuracy=accuracy)
            print(f"step {step + 1} loss {loss:.4f} accuracy {accuracy:.4f}", flush=True)
    if trainer.step < STEPS:
        if ring.rank == 0:
            eva_iterator.publish(trainer.save)
        # Another member may have been asked first. An end before this one is asked too would
        # look as if its work were done.
        if not asked.wait(float(os.environ.get("EVA_GRACE_SECONDS", "30"))):
            sys.exit(f"member {ring.rank} stops because another one was stopped")
    elif ring.rank == 0:
        loss, accuracy = trainer.evaluate(test_images, test_labels)
        print(f"done: loss {loss!r} accuracy {accuracy:.4f}", flush=True)
        if storage := os.environ.get("EVA_STORAGE"):
            np.savez(Path(storage, "outputs", "model.npz"), *layers(trainer.parameters))


def main():
    try:
        ring = Ring()
        try:
            train(ring)
        finally:
            ring.close()
    except PeerLost as error:
        sys.exit(f"stopped: {error}")


if __name__ == "__main__":
    main()
