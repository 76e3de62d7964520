"""The heat equation on a square plate, by explicit finite differences on a five-point stencil.

The plate starts as a sum of sine waves and its edges are kept cold, so the exact solution is
known: each wave fades at its own rate. The program ends with its error against that solution.
Environment: STEPS (iterations), SIZE (grid points per side), SWEEPS (time steps per iteration).
"""

import os
from pathlib import Path

# BLAS reads this when numpy is imported: use the CPUs that the task was given, no more.
os.environ.setdefault("OMP_NUM_THREADS", os.environ.get("EVA_CPU_COUNT", "1"))

import eva_iterator
import numpy as np
from eva_iterator import EvaIterator

STEPS = int(os.environ.get("STEPS", "5000"))
SIZE = int(os.environ.get("SIZE", "320"))
SWEEPS = int(os.environ.get("SWEEPS", "20"))
RATIO = 0.2  # diffusivity * time step / spacing^2; stable up to 0.25
WAVES = {(1, 1): 1.0, (3, 2): 0.6, (1, 5): -0.4}  # half-waves along x and y: amplitude


def exact(time):
    """The temperatures at `time`, in units where diffusivity and side are 1."""
    x = np.linspace(0.0, 1.0, SIZE)
    plate = np.zeros((SIZE, SIZE))
    for (across, down), amplitude in WAVES.items():
        fading = np.exp(-(across**2 + down**2) * np.pi**2 * time)
        wave = np.outer(np.sin(across * np.pi * x), np.sin(down * np.pi * x))
        plate += amplitude * fading * wave
    return plate


class Solver:
    """The plate and how many iterations it has seen: all that a checkpoint must hold."""

    def __init__(self):
        self.step = 0
        self.plate = exact(0.0)
        self.change = np.empty((SIZE - 2, SIZE - 2))

    @property
    def time(self):
        """The simulated time so far, in seconds."""
        return self.step * SWEEPS * RATIO / (SIZE - 1) ** 2

    def sweep(self):
        """Moves every inner point towards the mean of its four neighbours."""
        plate, change = self.plate, self.change
        np.multiply(plate[1:-1, 1:-1], -4.0, out=change)
        change += plate[:-2, 1:-1]
        change += plate[2:, 1:-1]
        change += plate[1:-1, :-2]
        change += plate[1:-1, 2:]
        change *= RATIO
        plate[1:-1, 1:-1] += change

    def advance(self):
        """Do one iteration, which has several sweeps."""
        for _ in range(SWEEPS):
            self.sweep()
        self.step += 1

    def save(self, directory: Path):
        """Writes a checkpoint; the SDK publishes the directory once this returns."""
        np.savez(directory / "state.npz", plate=self.plate, step=self.step)

    def restore(self, directory: Path):
        """Takes up exactly where `save` was called."""
        with np.load(directory / "state.npz") as state:
            self.plate, self.step = state["plate"], int(state["step"])


def main():
    solver = Solver()
    if checkpoint := eva_iterator.latest_checkpoint():
        solver.restore(checkpoint)
        print(f"resumed at step {solver.step}", flush=True)

    # On SIGTERM the iterator saves after the running step and ends the program.
    steps = range(solver.step, STEPS)
    for step in EvaIterator(steps, total=len(steps), checkpoint=solver.save, checkpoint_every_s=10):
        solver.advance()
        if (step + 1) % max(1, STEPS // 20) == 0:
            energy = float((solver.plate**2).mean())
            residual = float(np.abs(solver.change).max())
            eva_iterator.report(energy=energy, residual=residual)
            print(f"step {step + 1} energy {energy:.6f} residual {residual:.3e}", flush=True)

    error = float(np.abs(solver.plate - exact(solver.time)).max())
    print(f"done: time {solver.time:.5f} error {error!r}", flush=True)
    if storage := os.environ.get("EVA_STORAGE"):
        np.savez(Path(storage, "outputs", "plate.npz"), plate=solver.plate)


if __name__ == "__main__":
    main()
