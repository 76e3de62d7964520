"""Data-parallel training on scikit-learn's handwritten digits with PyTorch, started by torchrun.

Every process trains on its share of each mini-batch; DistributedDataParallel averages the gradients
over TCP (gloo). Environment: STEPS (mini-batches to train), BATCH (images in each, over all
processes), HIDDEN (width of both layers).
"""

import os
import signal
import sys
import threading
from pathlib import Path

import eva_iterator
import torch
import torch.distributed as dist
from eva_iterator import EvaIterator
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

STEPS = int(os.environ.get("STEPS", "6000"))
BATCH = int(os.environ.get("BATCH", "256"))
HIDDEN = int(os.environ.get("HIDDEN", "256"))
SEED = 17


class Remaining:
    """A batch sampler that draws batch `step` from `step` alone, and takes this process's share."""

    def __init__(self, size, first, last):
        self.size, self.first, self.last = size, first, last

    def __len__(self):
        return self.last - self.first

    def __iter__(self):
        for step in range(self.first, self.last):
            generator = torch.Generator().manual_seed(SEED + step)
            batch = torch.randint(self.size, (BATCH,), generator=generator)
            yield batch[dist.get_rank() :: dist.get_world_size()].tolist()


class Trainer:
    """Everything that a checkpoint must hold: weights, optimiser, step."""

    def __init__(self):
        torch.manual_seed(SEED)
        self.model = nn.Sequential(
            nn.Linear(64, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, 10),
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.step = 0

    def share(self):
        """Makes all processes continue from the state of process 0, whatever they restored."""
        state = [self.model.state_dict(), self.optimizer.state_dict(), self.step]
        dist.broadcast_object_list(state)
        self.model.load_state_dict(state[0])
        self.optimizer.load_state_dict(state[1])
        self.step = state[2]

    def train(self, ddp, images, labels):
        """Train on one mini-batch of digits."""
        # DDP averages what the processes have, so each adds its part of the whole batch's mean.
        loss = nn.functional.cross_entropy(ddp(images), labels, reduction="sum")
        self.optimizer.zero_grad()
        (loss * dist.get_world_size() / BATCH).backward()
        self.optimizer.step()
        self.step += 1

    @torch.no_grad()
    def evaluate(self, images, labels):
        """Returns the mean cross-entropy and the share of images recognised."""
        logits = self.model(images)
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
        state = torch.load(directory / "state.pt", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]


def anyone(flag):
    """Whether a condition holds on any process; all processes must call it at the same step."""
    flags = torch.tensor([float(flag)])
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    return bool(flags.item())


def main():
    torch.set_num_threads(int(os.environ.get("EVA_CPU_COUNT", "1")))
    dist.init_process_group("gloo")
    first = dist.get_rank() == 0
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16.0, dtype=torch.float32)
    labels = torch.tensor(labels)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED))
    training, test = order[:1400], order[1400:]

    trainer = Trainer()
    if first and (checkpoint := eva_iterator.latest_checkpoint()):
        trainer.restore(checkpoint)
    trainer.share()
    if trainer.step:
        print(f"resumed at step {trainer.step}", flush=True)
    loader = DataLoader(
        TensorDataset(images[training], labels[training]),
        batch_sampler=Remaining(len(training), trainer.step, STEPS),
    )

    # The SDK takes SIGTERM over first, so that this handler stays: when to stop is up to us.
    asked = threading.Event()
    eva_iterator.stopping()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    ddp = DistributedDataParallel(trainer.model)
    saving = {"checkpoint": trainer.save, "checkpoint_every_s": 10} if first else {}
    for batch_images, batch_labels in EvaIterator(loader, total=len(loader), **saving):
        # Processes are asked to stop at slightly different times: all leave before the same step.
        if anyone(asked.is_set()):
            break
        trainer.train(ddp, batch_images, batch_labels)
        if first and trainer.step % max(1, STEPS // 20) == 0:
            loss, accuracy = trainer.evaluate(images[test], labels[test])
            eva_iterator.report(loss=loss, accuracy=accuracy)
            print(f"step {trainer.step} loss {loss:.4f} accuracy {accuracy:.4f}", flush=True)
    if trainer.step < STEPS:
        if first:
            eva_iterator.publish(trainer.save)
        # Another process may have been asked first. An end before this one is asked too would
        # look as if its work were done.
        if not asked.wait(float(os.environ.get("EVA_GRACE_SECONDS", "30"))):
            sys.exit(f"process {dist.get_rank()} stops because another one was stopped")
    elif first:
        loss, accuracy = trainer.evaluate(images[test], labels[test])
        print(f"done: loss {loss!r} accuracy {accuracy:.4f}", flush=True)
        if storage := os.environ.get("EVA_STORAGE"):
            torch.save(trainer.model.state_dict(), Path(storage, "outputs", "model.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
