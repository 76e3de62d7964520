"""Scaling in: instances that are hardly used are cleared (Stratus, section 4.4)."""

from __future__ import annotations

from eva_master.packing.bins.plan_builder import JointMove, joint_move
from eva_policies.stratus.bins import Bins
from eva_policies.stratus.packer import pack
from eva_wire.values.ids import MILLIS_PER_HOUR


def clear(bins: Bins, below_percent: int) -> list[JointMove]:
    """Move the tasks of hardly used instances elsewhere where that pays; the dearest first.

    Args:
        bins: The instances with their tasks, which are changed.
        below_percent: An instance counts if less than this is used of every resource it has.

    Returns:
        The moves, each with the task runs that move together.
    """
    joint_moves: list[JointMove] = []
    improved = True
    while improved:
        improved = False
        for row in _hardly_used(bins, below_percent):
            done = _cleared(bins, row)
            if done is not None:
                joint_moves.append(done)
                improved = True
    return joint_moves


def _hardly_used(bins: Bins, below_percent: int) -> list[int]:
    """Rows that may be cleared, the dearest first."""
    capacity = bins.capacity()
    used = capacity - bins.free()
    hardly = ((100 * used < below_percent * capacity) | (capacity == 0)).all(axis=1)
    rows = [
        row
        for row in hardly.nonzero()[0].tolist()
        if bins.residents[row] and not any(bins.runs[run].pinned for run in bins.residents[row])
    ]
    return sorted(rows, key=lambda row: (-bins.offerings[row].price, row))


def _cleared(bins: Bins, row: int) -> JointMove | None:
    """Try to do without an instance; `None` if it is left as it was.

    The saving until the last of its tasks ends must exceed the cost of the moves.
    """
    runs = sorted(bins.residents[row])
    if not runs:
        return None
    lasting = int(bins.longest()[row])
    empty = {other for other in range(len(bins)) if not bins.residents[other]}
    bought, mark = len(bins), bins.mark()
    for run in runs:
        bins.take(run)
    pack(bins, runs)
    if all(run in bins.row_of for run in runs):
        targets = sorted({bins.row_of[run] for run in runs})
        opened = [
            target for target in targets if target in empty or target == row or target >= bought
        ]
        saved = bins.offerings[row].price - sum(bins.offerings[target].price for target in opened)
        new = [target for target in opened if target >= bins.live]
        moves = joint_move(bins, runs, saved, new)
        if saved > 0 and saved * lasting > moves.cost * MILLIS_PER_HOUR:
            return moves
    bins.back(mark)
    return None
