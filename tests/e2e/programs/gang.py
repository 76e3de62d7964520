"""Runs the example ring_digits, slowly, and writes down what every member does; see `record`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import train
from eva_iterator import EvaIterator
from record import Record

STEP_S = float(os.environ.get("STEP_S", "0.05"))
CHECKPOINT_S = float(os.environ.get("CHECKPOINT_S", "1"))


class Recorded(train.Trainer):  # type: ignore[misc]
    """A member of the gang that keeps a record."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.record = Record()

    def share(self) -> None:
        """Agree where to begin."""
        super().share()
        self.record.say("start" if self.record.alone else "overlap", self.step)

    def train(self, images: Any, labels: Any) -> None:
        """Make a step."""
        super().train(images, labels)
        time.sleep(STEP_S)
        loss, _ = self.evaluate(images[:256], labels[:256])
        self.record.say("step", self.step, loss=loss)

    def save(self, directory: Path) -> None:
        """Write a checkpoint."""
        super().save(directory)
        self.record.say("checkpoint", self.step)


def often(loader: Iterable[Any], **options: Any) -> EvaIterator[Any]:
    """The example's loop, with checkpoints sooner than a user wants them."""
    if "checkpoint" in options:
        options["checkpoint_every_s"] = CHECKPOINT_S
    return EvaIterator(loader, **options)


train.Trainer = Recorded
train.EvaIterator = often
train.main()
