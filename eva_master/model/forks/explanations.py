"""Explanations of forks for users."""

from __future__ import annotations

from collections.abc import Callable

from eva_master.model.forks.merging import Merging


def explain_forks(
    forks: int, total: int | None, now: Merging | None, name: Callable[[int], str]
) -> tuple[str, ...]:
    """Progress and problems of the forks of a job, in lines; none if it has no forks.

    Args:
        forks: The most forks that it may have.
        total: Its steps.
        now: The state of its merges, if there is any.
        name: The id of a fork's run.
    """
    if forks == 1 or now is None or total is None:
        return ()
    epochs = "one merge" if now.merged == 1 else f"{now.merged:,} merges"
    took = f"; the last one took {now.took_ms / 1000:.1f} s" if now.merged else ""
    lines = [f"up to {forks} forks: {epochs}, {now.steps:,} of {total:,} steps in them{took}"]
    lines += [f"{name(fork)} was left out of the last merge: {why}" for fork, why in now.left_out]
    if now.unforked:
        lines.append(f"goes on unforked: {now.unforked}")
    return tuple(lines)


def left_out(now: Merging, fork: int) -> str:
    """Why the part of a fork did not count in the last merge; empty if it did."""
    why = dict(now.left_out).get(fork)
    return "" if why is None else f"its last part was left out: {why}"
