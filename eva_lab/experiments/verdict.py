"""Results of an experiment, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eva_lab.experiments.summary import Row, Summary, Values, better_by

_MOST = 12
"""Groups of rows of which something is said."""
_MOST_RIVALS = 6


def verdict(summary: Summary) -> list[str]:
    """A sentence per trace and choice of what is varied: which policy was best, and how surely."""
    groups: dict[tuple[str, Values], list[Row]] = {}
    for row in summary.rows:
        groups.setdefault((row.trace, row.values), []).append(row)
    said = [sentence for rows in groups.values() if (sentence := _sentence(summary, rows))]
    more = len(said) - _MOST
    return said[:_MOST] + ([f"{more} more are in the table."] if more > 0 else [])


def _sentence(summary: Summary, rows: Sequence[Row]) -> str:
    """Which policy was best of one group; empty unless there are two with figures."""
    key = better_by(summary.plan)
    ranked = sorted(
        (row for row in rows if key in row.figures), key=lambda row: row.figures[key].mean
    )
    if len(ranked) < 2:
        return ""
    best = ranked[0]
    place = ", ".join(
        [best.trace, *(f"{name.rpartition('.')[2]} {value}" for name, value in best.values)]
    )
    verb = "cheapest" if key == "cost_usd" else "fastest"
    share = best.figures.get("cost_share" if key == "cost_usd" else "jct_share")
    baseline = summary.plan.experiment.baseline
    of = (
        ""
        if share is None or best.label == baseline
        else f" ({100 * share.mean:.1f} % of {baseline})"
    )
    return f"{place}: {best.label} is {verb}{of}{''.join(_rivals(best, ranked[1:], verb))}."


def _rivals(best: Row, others: Sequence[Row], verb: str) -> Iterator[str]:
    """In how many pairs of runs the best policy was better than each other one."""
    word = {"cheapest": "cheaper", "fastest": "faster"}[verb]
    comparisons = [
        f"than {row.label} in {won} of {of}"
        for row in others[:_MOST_RIVALS]
        for won, of in (best.pairs.get(row.label, (0, 0)),)
        if of
    ]
    if comparisons:
        yield f"; {word} {', '.join(comparisons)}"
