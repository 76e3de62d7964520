"""Data-parallel training whose members do unequal parts of each mini-batch: softmax regression.

Eva says in EVA_BATCH_SHARE which part this member does: more of it where it runs faster. At the
start the members tell each other their shares, so all know which images of a batch are whose.
Member 0 adds up what the others compute and sends them the sum. The result is the same, but for
rounding, however a batch is divided.

Environment: STEPS (mini-batches to train), BATCH (images in each, over all members), ROW_US (so
many microseconds more for each image, to play a slower machine). Started by hand, it trains alone.
"""

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import eva_iterator
import numpy as np
from eva_iterator import EvaIterator
from sklearn.datasets import load_digits

STEPS = int(os.environ.get("STEPS", "4000"))
BATCH = int(os.environ.get("BATCH", "512"))
ROW_S = float(os.environ.get("ROW_US", "0")) / 1e6
RANK, SIZE = int(os.environ.get("NODE_RANK", "0")), int(os.environ.get("NNODES", "1"))
# Without the variable the members do equal parts.
SHARE = float(os.environ.get("EVA_BATCH_SHARE") or 1 / SIZE)
RATE, SEED, WAIT_S = 0.5, 11, 120


class Members:
    """Sums arrays over the members of a gang, all of them at member 0."""

    def __init__(self):
        self.peers = []
        if SIZE == 1:
            return
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if RANK == 0:
            with socket.create_server(("", place[1])) as server:
                server.settimeout(WAIT_S)
                self.peers = [server.accept()[0] for _ in range(SIZE - 1)]
        else:
            self.peers = [dial(place)]
        for peer in self.peers:
            peer.settimeout(WAIT_S)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def sum(self, array):
        """Returns the sum of everyone's array of floats, which all have the same size."""
        if RANK == 0:
            for peer in self.peers:
                array = array + receive(peer, array)
        for peer in self.peers:
            peer.sendall(array.tobytes())
        return receive(self.peers[0], array) if RANK else array

    def close(self):
        """Closes the connections, so that the others notice the end at once."""
        for peer in self.peers:
            peer.close()


def dial(place):
    """Connects to member 0, which may start a little later."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return socket.create_connection(place, timeout=WAIT_S)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def receive(peer, like):
    """Reads an array of a known size."""
    data = bytearray()
    while len(data) < like.nbytes:
        part = peer.recv(like.nbytes - len(data))
        if not part:
            raise ConnectionResetError("a member is gone")
        data += part
    return np.frombuffer(bytes(data)).reshape(like.shape)


def rows_of(members):
    """Which images of each batch are this member's; those of all members are the whole batch."""
    shares = np.zeros(SIZE)
    shares[RANK] = SHARE
    shares = members.sum(shares)
    ends = np.rint(np.cumsum(shares) / shares.sum() * BATCH).astype(int)
    return slice(ends[RANK - 1] if RANK else 0, ends[RANK])


class Trainer:
    """The contents of a checkpoint: weights and step."""

    def __init__(self, members, asked):
        self.members, self.asked = members, asked
        self.step, self.stopping, self.weights = 0, False, np.zeros((65, 10))
        self.rows = rows_of(members)

    def remaining(self):
        """The steps from here on, until the members agree to stop."""
        while self.step < STEPS and not self.stopping:
            yield self.step

    def share(self):
        """Has all members go on from what member 0 restored."""
        state = np.append(self.weights.ravel(), self.step)
        state = self.members.sum(state if RANK == 0 else np.zeros_like(state))
        self.weights, self.step = state[:-1].reshape(65, 10), int(state[-1])

    def train(self, images, labels):
        """One mini-batch: the gradient of this member's images, everyone's sum, a step."""
        # The batch follows from the step alone: the same for all members, after every restart.
        pick = np.random.default_rng((SEED, self.step)).integers(len(images), size=BATCH)
        mine = pick[self.rows]
        error = probabilities(images[mine], self.weights)
        error[np.arange(len(mine)), labels[mine]] -= 1.0
        time.sleep(ROW_S * len(mine))
        # A stopped process says so in the sum: all of them stop after the same step.
        vote = float(self.asked.is_set())
        total = self.members.sum(np.append((images[mine].T @ error / BATCH).ravel(), vote))
        self.weights = self.weights - RATE * total[:-1].reshape(65, 10)
        self.stopping = total[-1] > 0
        self.step += 1

    def save(self, directory):
        """Writes a checkpoint; the SDK publishes the directory once this returns."""
        np.savez(directory / "state.npz", weights=self.weights, step=self.step)

    def restore(self, directory):
        """Takes up exactly where `save` was called."""
        with np.load(directory / "state.npz") as state:
            self.weights, self.step = state["weights"], int(state["step"])


def probabilities(images, weights):
    logits = images @ weights
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def load():
    """Returns images, with a column of ones for the bias, and labels."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(images))
    return np.hstack([images / 16.0, np.ones((len(images), 1))])[order], labels[order]


def train(members):
    images, labels = load()
    asked = threading.Event()
    trainer = Trainer(members, asked)
    if RANK == 0 and (checkpoint := eva_iterator.latest_checkpoint()):
        trainer.restore(checkpoint)
    trainer.share()
    if trainer.step:
        print(f"resumed at step {trainer.step}", flush=True)
    size = trainer.rows.stop - trainer.rows.start
    print(f"does {size} of {BATCH} images", flush=True)

    # The SDK takes SIGTERM over first, so that this handler stays: when to stop is up to us.
    eva_iterator.stopping()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    saving = {"checkpoint": trainer.save, "checkpoint_every_s": 10} if RANK == 0 else {}
    for step in EvaIterator(trainer.remaining(), total=STEPS - trainer.step, **saving):
        trainer.train(images[:1400], labels[:1400])
        if RANK == 0 and (step + 1) % max(1, STEPS // 20) == 0:
            right = (images[1400:] @ trainer.weights).argmax(axis=1) == labels[1400:]
            eva_iterator.report(accuracy=float(right.mean()))
            print(f"step {step + 1} accuracy {right.mean():.4f}", flush=True)
    if trainer.step < STEPS:
        if RANK == 0:
            eva_iterator.publish(trainer.save)
        # An end before this one is asked, too, would look as if its work were done.
        if not asked.wait(float(os.environ.get("EVA_GRACE_SECONDS", "30"))):
            sys.exit(f"member {RANK} stops because another one was stopped")
        return
    if RANK == 0:
        right = (images[1400:] @ trainer.weights).argmax(axis=1) == labels[1400:]
        if storage := os.environ.get("EVA_STORAGE"):
            np.savez(Path(storage, "outputs", "model.npz"), weights=trainer.weights)
        print(f"done: accuracy {right.mean():.4f} after {trainer.step} steps", flush=True)


def main():
    try:
        members = Members()
        try:
            train(members)
        finally:
            members.close()
    except OSError as error:
        sys.exit(f"stopped: {error}")


if __name__ == "__main__":
    main()
