"""A convolutional network on scikit-learn's handwritten digits: Adam, in numpy.

Two 3x3 convolutions, each followed by ReLU and 2x2 max pooling, then a linear classifier; images
are shifted at random while training. Environment: STEPS (mini-batches), BATCH (images in each).
"""

import json
import os
from pathlib import Path

# BLAS reads this when numpy is imported: use the CPUs that the task was given, no more.
os.environ.setdefault("OMP_NUM_THREADS", os.environ.get("EVA_CPU_COUNT", "1"))

import eva_iterator
import numpy as np
from eva_iterator import EvaIterator
from sklearn.datasets import load_digits

STEPS = int(os.environ.get("STEPS", "10000"))
BATCH = int(os.environ.get("BATCH", "64"))
LEARNING_RATE, BETA1, BETA2, SEED = 2e-3, 0.9, 0.999, 29
SHAPES = {"conv1": (9, 16), "conv2": (9 * 16, 32), "dense": (2 * 2 * 32, 10)}


def load():
    """Returns training images (8x8x1) and labels, then test images and labels."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(images))
    images, labels = images[order].reshape(-1, 8, 8, 1) / 16.0, labels[order]
    return images[:1400], labels[:1400], images[1400:], labels[1400:]


def patches(x):
    """The 3x3 neighbourhood of every pixel, zeros outside: (n, h, w, c) to (n, h, w, 9c)."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    height, width = x.shape[1:3]
    shifted = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return np.concatenate(shifted, axis=3)


def scatter(columns):
    """The transpose of `patches`: adds every neighbourhood's gradient back to its pixels."""
    n, height, width, depth = columns.shape
    padded = np.zeros((n, height + 2, width + 2, depth // 9))
    for index, part in enumerate(np.split(columns, 9, axis=3)):
        i, j = divmod(index, 3)
        padded[:, i : i + height, j : j + width] += part
    return padded[:, 1:-1, 1:-1]


def pool(x):
    """ReLU and 2x2 max pooling; also the mask that says where the gradient flows."""
    n, height, width, depth = x.shape
    blocks = x.reshape(n, height // 2, 2, width // 2, 2, depth)
    top = blocks.max(axis=(2, 4), keepdims=True)
    mask = (blocks == top) & (top > 0.0)
    return np.maximum(top[:, :, 0, :, 0], 0.0), mask


def unpool(gradient, mask):
    """Sends the gradient of a pooled pixel to the pixels it came from."""
    spread = gradient[:, :, None, :, None] * mask
    n, height, _, width, _, depth = mask.shape
    return spread.reshape(n, 2 * height, 2 * width, depth)


class Trainer:
    """Everything that a checkpoint must hold: weights, Adam's moments, random numbers, step."""

    def __init__(self):
        self.rng = np.random.default_rng(SEED)
        self.step = 0
        self.weights = {
            name: self.rng.normal(0.0, np.sqrt(2.0 / shape[0]), shape)
            for name, shape in SHAPES.items()
        }
        self.mean = {name: np.zeros(shape) for name, shape in SHAPES.items()}
        self.square = {name: np.zeros(shape) for name, shape in SHAPES.items()}

    def forward(self, images):
        """Returns what the backward pass needs and the probabilities of the classes."""
        columns1 = patches(images)
        pooled1, mask1 = pool(columns1 @ self.weights["conv1"])
        columns2 = patches(pooled1)
        pooled2, mask2 = pool(columns2 @ self.weights["conv2"])
        features = pooled2.reshape(len(images), -1)
        logits = features @ self.weights["dense"]
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        probability = exponentials / exponentials.sum(axis=1, keepdims=True)
        return (columns1, mask1, columns2, mask2, features), probability

    def gradients(self, images, labels):
        """Back-propagates the cross-entropy of one mini-batch."""
        (columns1, mask1, columns2, mask2, features), error = self.forward(images)
        error[np.arange(len(labels)), labels] -= 1.0
        error /= len(labels)
        dense = features.T @ error
        pooled2 = (error @ self.weights["dense"].T).reshape(len(labels), 2, 2, -1)
        error2 = unpool(pooled2, mask2)
        conv2 = np.tensordot(columns2, error2, axes=((0, 1, 2), (0, 1, 2)))
        error1 = unpool(scatter(error2 @ self.weights["conv2"].T), mask1)
        conv1 = np.tensordot(columns1, error1, axes=((0, 1, 2), (0, 1, 2)))
        return {"conv1": conv1, "conv2": conv2, "dense": dense}

    def train(self, images, labels):
        """One mini-batch, moved by up to a pixel each way, and one step of Adam."""
        pick = self.rng.integers(len(images), size=BATCH)
        batch = np.roll(images[pick], self.rng.integers(-1, 2, size=2), axis=(1, 2))
        self.step += 1
        for name, gradient in self.gradients(batch, labels[pick]).items():
            self.mean[name] = BETA1 * self.mean[name] + (1 - BETA1) * gradient
            self.square[name] = BETA2 * self.square[name] + (1 - BETA2) * gradient**2
            mean = self.mean[name] / (1 - BETA1**self.step)
            deviation = np.sqrt(self.square[name] / (1 - BETA2**self.step))
            self.weights[name] -= LEARNING_RATE * mean / (deviation + 1e-8)

    def evaluate(self, images, labels):
        """Returns the mean cross-entropy and the share of images recognised."""
        _, probability = self.forward(images)
        loss = -np.log(probability[np.arange(len(labels)), labels] + 1e-300).mean()
        return float(loss), float((probability.argmax(axis=1) == labels).mean())

    def save(self, directory: Path):
        """Writes a checkpoint; the SDK publishes the directory once this returns."""
        np.savez(directory / "weights.npz", **self.weights)
        np.savez(directory / "mean.npz", **self.mean)
        np.savez(directory / "square.npz", **self.square)
        progress = {"step": self.step, "rng": self.rng.bit_generator.state}
        (directory / "progress.json").write_text(json.dumps(progress))

    def restore(self, directory: Path):
        """Takes up exactly where `save` was called."""
        self.weights = dict(np.load(directory / "weights.npz"))
        self.mean = dict(np.load(directory / "mean.npz"))
        self.square = dict(np.load(directory / "square.npz"))
        progress = json.loads((directory / "progress.json").read_text())
        self.step, self.rng.bit_generator.state = progress["step"], progress["rng"]


def main():
    images, labels, test_images, test_labels = load()
    trainer = Trainer()
    if checkpoint := eva_iterator.latest_checkpoint():
        trainer.restore(checkpoint)
        print(f"resumed at step {trainer.step}", flush=True)
    print(f"GPUs assigned: {os.environ.get('CUDA_VISIBLE_DEVICES') or 'none'}", flush=True)

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
