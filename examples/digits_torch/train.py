"""A multi-layer perceptron on scikit-learn's handwritten digits, in PyTorch with a DataLoader.

Runs on the GPU that the task was given, on the CPU otherwise. Environment: STEPS (mini-batches
to train), BATCH (images in each), HIDDEN (width of both layers).
"""

import os
from pathlib import Path

import eva_iterator
import torch
from eva_iterator import EvaIterator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = int(os.environ.get("STEPS", "8000"))
BATCH = int(os.environ.get("BATCH", "128"))
HIDDEN = int(os.environ.get("HIDDEN", "256"))
SEED = 17


class Remaining:
    """A batch sampler that draws batch `step` from `step` alone: a resumed run sees the same."""

    def __init__(self, size, first, last):
        self.size, self.first, self.last = size, first, last

    def __len__(self):
        return self.last - self.first

    def __iter__(self):
        for step in range(self.first, self.last):
            generator = torch.Generator().manual_seed(SEED + step)
            yield torch.randint(self.size, (BATCH,), generator=generator).tolist()


class Trainer:
    """Everything that a checkpoint must hold: weights, optimiser, step."""

    def __init__(self, device):
        torch.manual_seed(SEED)
        self.device = device
        self.model = nn.Sequential(
            nn.Linear(64, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, 10),
        ).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.step = 0

    def train(self, images, labels):
        """Train on one mini-batch of digits."""
        logits = self.model(images.to(self.device))
        loss = nn.functional.cross_entropy(logits, labels.to(self.device))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1

    @torch.no_grad()
    def evaluate(self, images, labels):
        """Returns the mean cross-entropy and the share of images recognised."""
        logits, labels = self.model(images.to(self.device)), labels.to(self.device)
        accuracy = (logits.argmax(dim=1) == labels).float().mean()
        return nn.functional.cross_entropy(logits, labels).item(), accuracy.item()

    def save(self, directory: Path):
        """Writes a checkpoint; the SDK publishes the directory once this returns."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
        }
        torch.save(state, directory / "state.pt")

    def restore(self, directory: Path):
        """Takes up exactly where `save` was called."""
        state = torch.load(directory / "state.pt", map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]


def main():
    torch.set_num_threads(int(os.environ.get("EVA_CPU_COUNT", "1")))
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16.0, dtype=torch.float32)
    labels = torch.tensor(labels)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED))
    training, test = order[:1400], order[1400:]

    trainer = Trainer(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    if checkpoint := eva_iterator.latest_checkpoint():
        trainer.restore(checkpoint)
        print(f"resumed at step {trainer.step}", flush=True)
    loader = DataLoader(
        TensorDataset(images[training], labels[training]),
        batch_sampler=Remaining(len(training), trainer.step, STEPS),
    )

    # On SIGTERM the iterator saves after the running step and ends the program.
    wrapped = EvaIterator(loader, total=len(loader), checkpoint=trainer.save, checkpoint_every_s=10)
    for batch_images, batch_labels in wrapped:
        trainer.train(batch_images, batch_labels)
        if trainer.step % max(1, STEPS // 20) == 0:
            loss, accuracy = trainer.evaluate(images[test], labels[test])
            eva_iterator.report(loss=loss, accuracy=accuracy)
            print(f"step {trainer.step} loss {loss:.4f} accuracy {accuracy:.4f}", flush=True)

    loss, accuracy = trainer.evaluate(images[test], labels[test])
    print(f"done: loss {loss!r} accuracy {accuracy:.4f}", flush=True)
    if storage := os.environ.get("EVA_STORAGE"):
        torch.save(trainer.model.state_dict(), Path(storage, "outputs", "model.pt"))


if __name__ == "__main__":
    main()
