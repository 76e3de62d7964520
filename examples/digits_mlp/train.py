"""A multi-layer perceptron on images of digits: SGD with momentum, in numpy.

Environment: STEPS (mini-batches to train), BATCH (images in each), HIDDEN (width of both layers).
"""

import json
import os
from pathlib import Path

# BLAS reads this when numpy is imported: use the CPUs that the task was given, no more.
os.environ.setdefault("OMP_NUM_THREADS", os.environ.get("EVA_CPU_COUNT", "1"))

import eva_iterator
import numpy as np
from eva_iterator import EvaIterator

STEPS = int(os.environ.get("STEPS", "12000"))
BATCH = int(os.environ.get("BATCH", "128"))
HIDDEN = int(os.environ.get("HIDDEN", "256"))
LEARNING_RATE, MOMENTUM, NOISE, BLUR, SEED = 0.05, 0.9, 0.1, 0.25, 17
DIGITS = 31599, 11415, 29671, 29647, 23497, 31183, 31215, 29257, 31727, 31695
"""Each digit in 5 rows of 3 pixels, as bits."""


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


class Trainer:
    """Everything that a checkpoint must hold: weights, optimiser, random numbers, step."""

    def __init__(self):
        self.rng = np.random.default_rng(SEED)
        self.step = 0
        self.weights = {}
        for layer, (fan_in, fan_out) in enumerate([(64, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 10)]):
            scale = np.sqrt(2.0 / fan_in)
            self.weights[f"w{layer}"] = self.rng.normal(0.0, scale, (fan_in, fan_out))
            self.weights[f"b{layer}"] = np.zeros(fan_out)
        self.velocity = {name: np.zeros_like(value) for name, value in self.weights.items()}

    def forward(self, images):
        """Returns the input of every layer and the probabilities of the classes."""
        w = self.weights
        first = np.maximum(images @ w["w0"] + w["b0"], 0.0)
        second = np.maximum(first @ w["w1"] + w["b1"], 0.0)
        logits = second @ w["w2"] + w["b2"]
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        return (images, first, second), exponentials / exponentials.sum(axis=1, keepdims=True)

    def train(self, images, labels):
        """One mini-batch: gradient by back-propagation, then a momentum step."""
        pick = self.rng.integers(len(images), size=BATCH)
        noisy = images[pick] + self.rng.normal(0.0, NOISE, (BATCH, images.shape[1]))
        inputs, error = self.forward(noisy)
        error[np.arange(BATCH), labels[pick]] -= 1.0
        error /= BATCH
        gradients = {}
        for layer in (2, 1, 0):
            gradients[f"w{layer}"] = inputs[layer].T @ error
            gradients[f"b{layer}"] = error.sum(axis=0)
            if layer:
                error = (error @ self.weights[f"w{layer}"].T) * (inputs[layer] > 0.0)
        for name, gradient in gradients.items():
            self.velocity[name] = MOMENTUM * self.velocity[name] - LEARNING_RATE * gradient
            self.weights[name] += self.velocity[name]
        self.step += 1

    def evaluate(self, images, labels):
        """Returns the mean cross-entropy and the share of images recognised."""
        _, probability = self.forward(images)
        loss = -np.log(probability[np.arange(len(labels)), labels] + 1e-300).mean()
        return float(loss), float((probability.argmax(axis=1) == labels).mean())

    def save(self, directory: Path):
        """Writes a checkpoint; the SDK publishes the directory once this returns."""
        velocity = {f"velocity_{name}": value for name, value in self.velocity.items()}
        np.savez(directory / "arrays.npz", **self.weights, **velocity)
        progress = {"step": self.step, "rng": self.rng.bit_generator.state}
        (directory / "progress.json").write_text(json.dumps(progress))

    def restore(self, directory: Path):
        """Takes up exactly where `save` was called."""
        with np.load(directory / "arrays.npz") as arrays:
            self.weights = {name: arrays[name] for name in self.weights}
            self.velocity = {name: arrays[f"velocity_{name}"] for name in self.weights}
        progress = json.loads((directory / "progress.json").read_text())
        self.step, self.rng.bit_generator.state = progress["step"], progress["rng"]


def main():
    images, labels, test_images, test_labels = load()
    trainer = Trainer()
    if checkpoint := eva_iterator.latest_checkpoint():
        trainer.restore(checkpoint)
        print(f"resumed at step {trainer.step}", flush=True)

    # On SIGTERM the iterator saves after the running step and ends the program.
    steps = range(trainer.step, STEPS)
    for step in EvaIterator(
        steps, total=len(steps), checkpoint=trainer.save, checkpoint_every_s=10
    ):
        trainer.train(images, labels)
        if (step + 1) % max(1, STEPS // 20) == 0:
            loss, accuracy = trainer.evaluate(test_images, test_labels)
            eva_iterator.report(loss=loss, accuracy=accuracy)
            print(f"step {step + 1} loss {loss:.4f} accuracy {accuracy:.4f}", flush=True)

    loss, accuracy = trainer.evaluate(test_images, test_labels)
    print(f"done: loss {loss!r} accuracy {accuracy:.4f}", flush=True)
    if storage := os.environ.get("EVA_STORAGE"):
        np.savez(Path(storage, "outputs", "model.npz"), **trainer.weights)


if __name__ == "__main__":
    main()
