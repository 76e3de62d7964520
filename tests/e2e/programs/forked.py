"""A forked program: its weights count the steps; it writes down what it has in the end.

A step sleeps in the place of computing: a thousand of them outlast some merges. Nothing is waited
for in that way.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path

import numpy as np
from eva_iterator import EvaIterator, Forked

STEP_S = 0.02
STATE = {"weights": np.zeros(4), "made": np.array(0.0)}


def save(directory: Path) -> None:
    np.savez(directory / "state.npz", **STATE)


def load(directory: Path) -> None:
    with np.load(directory / "state.npz") as stored:
        STATE.update(weights=stored["weights"], made=stored["made"])


for _ in EvaIterator(itertools.count(), forked=Forked(save, load)):
    STATE["weights"] = STATE["weights"] + 1
    time.sleep(STEP_S)
print("ended with", STATE["weights"].tolist(), flush=True)
outputs = Path(os.environ["EVA_STORAGE"]) / "outputs"
(outputs / "weights.json").write_text(json.dumps(STATE["weights"].tolist()))
