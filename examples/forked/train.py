"""A small neural network on scikit-learn's digits that several forks can train at once, in numpy.

Environment: STEPS (mini-batches of all forks together), BATCH (images in each), RATE (of learning).
"""

import json
import os
from pathlib import Path

# BLAS reads this when numpy is imported: use the CPUs that the task was given, no more.
os.environ.setdefault("OMP_NUM_THREADS", os.environ.get("EVA_CPU_COUNT", "1"))

import numpy as np
from eva_iterator import EvaIterator, Forked, latest_checkpoint, report, shard
from sklearn.datasets import load_digits

STEPS = int(os.environ.get("STEPS", "4000"))
BATCH = int(os.environ.get("BATCH", "32"))
RATE = float(os.environ.get("RATE", "0.05"))
HIDDEN, MOMENTUM, SEED = 48, 0.9, 17

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(SEED).permutation(len(images))
images, labels = images[order] / 16.0, labels[order]
train_images, train_labels = images[:1400], labels[:1400]
held_out, answers = images[1400:], labels[1400:]

# All forks begin with the same weights, and draw different batches.
first = np.random.default_rng(SEED)
weights = {
    "inner": first.normal(0.0, 0.15, (64, HIDDEN)),
    "outer": first.normal(0.0, 0.15, (HIDDEN, 10)),
}
speed = {name: np.zeros_like(value) for name, value in weights.items()}
fork, forks = shard()
rng = np.random.default_rng([SEED, fork])


def forward(batch):
    """Returns the hidden layer and the probabilities of the classes."""
    hidden = np.maximum(batch @ weights["inner"], 0.0)
    raised = np.exp((out := hidden @ weights["outer"]) - out.max(axis=1, keepdims=True))
    return hidden, raised / raised.sum(axis=1, keepdims=True)


def train():
    """Makes one step, on one mini-batch."""
    pick = rng.integers(len(train_images), size=BATCH)
    batch = train_images[pick]
    hidden, error = forward(batch)
    error[np.arange(BATCH), train_labels[pick]] -= 1.0
    error /= BATCH
    inner = batch.T @ ((error @ weights["outer"].T) * (hidden > 0.0))
    for name, gradient in (("inner", inner), ("outer", hidden.T @ error)):
        speed[name] = MOMENTUM * speed[name] + gradient
        weights[name] -= RATE * speed[name]


def loss():
    """The mean cross-entropy on images that are not trained on."""
    _, probability = forward(held_out)
    return float(-np.log(probability[np.arange(len(answers)), answers] + 1e-300).mean())


def save(directory: Path):
    """Writes what is to be averaged: the weights, and the momentum that goes with them."""
    np.savez(directory / "weights.npz", **weights)
    np.savez(directory / "speed.npz", **speed)
    (directory / "progress.json").write_text(json.dumps({"step": step}))


def load(directory: Path):
    """Takes over what `save`, or the average of several forks, has written, but for the step."""
    for name, state in (("weights.npz", weights), ("speed.npz", speed)):
        with np.load(directory / name, allow_pickle=False) as found:
            state.update({key: found[key] for key in state})


step = 0
if checkpoint := latest_checkpoint():
    load(checkpoint)
    step = json.loads((checkpoint / "progress.json").read_text())["step"]
steps = range(step + 1, STEPS + 1)  # A fork makes fewer: its loop ends when all are made together.
forked = Forked(save, load, check=loss)
for step in EvaIterator(steps, total=len(steps), checkpoint=save, forked=forked):
    train()
    if step % 100 == 0:
        report(loss=loss())
        print(f"step {step} of fork {fork}: loss {loss():.4f}", flush=True)
right = (forward(held_out)[1].argmax(axis=1) == answers).mean()
print(f"loss {loss():.4f}, accuracy {right:.3f}")
if outputs := os.environ.get("EVA_STORAGE"):
    np.savez(Path(outputs, "outputs", "weights.npz"), **weights)
