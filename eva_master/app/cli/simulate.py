"""``eva simulate``: a trace of jobs under one or more policies, on a cluster that is not there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eva_master.app.cli.session import console, json_option, print_json
from eva_master.app.cli.views.tables import grid
from eva_master.app.cli.views.words import money, plain, span
from eva_master.model.ids import MILLION

if TYPE_CHECKING:
    from rich.console import RenderableType

    from eva_master.app.history import History
    from eva_master.app.simulate import Chosen, Comparison, Run, RunProgress
    from eva_master.simulation.run import Setup

_EXISTING = click.Path(path_type=Path, exists=True)
_SHARE = click.FloatRange(0, 1)
_POSITIVE = click.FloatRange(0)


@click.command()
@click.argument(
    "trace", type=click.Path(path_type=Path, dir_okay=False, exists=True), required=False
)
@click.option(
    "--from-journal",
    "journal",
    type=_EXISTING,
    metavar="STATE",
    help="Instead of a trace: replay what a master has lived through, from its state directory.",
)
@click.option(
    "-p",
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME[:PRESET]",
    help="Which scheduler; may be given several times.  [default: eva]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="[NAME.]OPTION=VALUE",
    help="A policy's own option, of one policy or of all that have it.",
)
@click.option(
    "--accounting",
    type=click.Choice(["compat", "production"]),
    default="compat",
    show_default=True,
    help="When files and images come to a task's instance: after the stop at the one before, as in "
    "the paper's simulator, or ahead of it, as in a real cluster.",
)
@click.option(
    "--catalog",
    type=_EXISTING,
    help="A file of instance types that adds to or changes those that come with Eva.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="An instance type or family to buy; may be given several times.  [default: all]",
)
@click.option(
    "--interference",
    type=_EXISTING,
    help="A table of true interference.  [default: the measured one that comes with Eva]",
)
@click.option(
    "--pairwise",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="X",
    help="The same true throughput for all pairs of workloads, instead of a table.",
)
@click.option(
    "--round-gap",
    metavar="DURATION",
    help="Plan at multiples of this; 0 for whenever "
    "something happens.  [default: as each policy likes it, else 5m]",
)
@click.option("--hide-durations", is_flag=True, help="Do not tell the policies how long jobs take.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that goes wrong.")
@click.option(
    "--refusals",
    type=_SHARE,
    default=0.0,
    metavar="X",
    help="Part of the launches that the cloud refuses.",
)
@click.option(
    "--stock",
    multiple=True,
    metavar="TYPE=N",
    help="How many of a type the cloud has, which the policies do not know.",
)
@click.option(
    "--failures",
    type=_POSITIVE,
    default=0.0,
    metavar="X",
    help="How often an instance dies, per hour that it is up.",
)
@click.option(
    "--interruptions",
    type=_POSITIVE,
    default=1.0,
    metavar="X",
    help="How many times more often spot instances are taken back than the catalog says.",
)
@click.option(
    "--noise",
    type=_POSITIVE,
    default=0.0,
    metavar="X",
    help="Standard deviation of measured throughput, as a part of it.",
)
@click.option(
    "--no-reference",
    is_flag=True,
    help="Leave out the lower bound on the cost, which may take longer than the simulation.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write every round, move, attempt, job and bill there, a folder per policy.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["parquet", "jsonl"]),
    help="Of these files.  [default: parquet if pyarrow is installed, else jsonl]",
)
@json_option
def simulate(*, trace: Path | None, journal: Path | None, as_json: bool, **options: Any) -> None:
    r"""Run a trace of jobs through schedulers, without a cluster.

    The scheduler is the real one, on a clock that jumps from event to event; instances and tasks
    are figures. TRACE is a file as `eva trace generate` makes it, or one of those that
    `eva trace describe` can read.

    \b
        eva trace generate production --jobs 200 --seed 1 -o t.json
        eva simulate t.json --policy eva --policy stratus --policy eva_published

    The table compares costs with those of no packing (ALONE: an instance for each task) and with a
    lower BOUND (jobs packed fractionally, without interference, moves and delays); it tells mean
    completion times (JCT), how long of that nothing ran (IDLE), how fast jobs were in company
    (SPEED), moves per job and launched instances (NODES).
    """
    if (trace is None) == (journal is None):
        raise click.UsageError("name a TRACE, or a state directory with --from-journal")
    from eva_master.app.simulate import chosen_policies

    chosen = chosen_policies(options["policies"] or ("eva",), options["settings"])
    setup, history = _setup(trace, journal, options)
    comparison = _compare(chosen, setup, options)
    if options["out"] is not None:
        _write(comparison, options["out"], options["file_format"])
    if as_json:
        print_json([_shape(run, comparison, history) for run in comparison.runs])
    else:
        screen = console()
        screen.print(_table(comparison, history, screen.width))


def _setup(
    trace: Path | None, journal: Path | None, options: Mapping[str, Any]
) -> tuple[Setup, History | None]:
    """What is simulated but for the policy, and what it replays."""
    from eva_master.adapters.catalog import load_catalog
    from eva_master.app.history import read_history
    from eva_master.app.simulate import setup_of, truth_of

    catalog = load_catalog(options["catalog"], options["only"] or None)
    history = None
    if journal is not None:
        listed = options["catalog"] is not None or bool(options["only"])
        history = read_history(journal, catalog if listed else None)
        setup = history.setup
    else:
        assert trace is not None
        truth = truth_of(options["interference"], options["pairwise"])
        setup = setup_of(trace, catalog, truth)
    return _with_options(setup, options), history


def _with_options(setup: Setup, options: Mapping[str, Any]) -> Setup:
    from eva_master.app.simulate import stock_of
    from eva_master.simulation.cluster.delays import Accounting
    from eva_master.simulation.cluster.fault_injector import Faults

    return replace(
        setup,
        accounting=Accounting(options["accounting"]),
        durations=not options["hide_durations"],
        seed=options["seed"],
        keep_record=options["out"] is not None,
        faults=Faults(
            refusals=options["refusals"],
            stock=stock_of(options["stock"]),
            failures_per_hour=options["failures"],
            interruptions=options["interruptions"],
            noise=options["noise"],
        ),
    )


def _compare(chosen: Sequence[Chosen], setup: Setup, options: Mapping[str, Any]) -> Comparison:
    """Run all policies under a bar."""
    from eva_master.app.simulate import compare, gap_of

    with _bar() as watch:
        return compare(
            chosen,
            setup,
            rhythm=gap_of(options["round_gap"]),
            reference=not options["no_reference"],
            watch=watch,
        )


@contextmanager
def _bar() -> Iterator[Callable[[str, RunProgress], None]]:
    """A line per policy: jobs, virtual time and cost so far."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[told]}"),
    )
    screen = console(stderr=True)
    with Progress(*columns, console=screen, disable=not sys.stderr.isatty()) as bar:
        lines: dict[str, TaskID] = {}

        def watch(name: str, so: RunProgress) -> None:
            if name not in lines:
                lines[name] = bar.add_task(plain(name), total=so.total, told="")
            told = f"{span(so.now_ms)} simulated, {_usd(so.cost_usd)}" if so.now_ms else ""
            bar.update(lines[name], completed=so.finished, total=so.total, told=told)

        yield watch


def _write(comparison: Comparison, folder: Path, chosen: str | None) -> None:
    from eva_master.adapters.text.rowfiles import RowFormat, default_format, write_rows
    from eva_master.simulation.results.rows import tables

    form = default_format() if chosen is None else RowFormat(chosen)
    for run in comparison.runs:
        for name, rows in tables(run.outcome.record).items():
            write_rows(folder / run.policy.replace(":", "-"), name, rows, form)


def _shape(run: Run, comparison: Comparison, history: History | None) -> dict[str, Any]:
    """A policy's figures for programs."""
    planning = {f"planning_{name}": took for name, took in asdict(run.outcome.planning).items()}
    return {
        "policy": run.policy,
        **run.outcome.row(),
        "nopack_usd": comparison.nopack_usd,
        "reference_bound_usd": comparison.bound_usd,
        **({} if history is None else {"history_usd": history.cost_usd}),
        **planning,
        "wall_s": run.wall_s,
    }


_COLUMNS: Mapping[str, Callable[[Run, Comparison], str]] = {
    "COST": lambda run, _: _usd(run.outcome.cost_usd),
    "ALONE": lambda run, all_: f"{100 * run.outcome.cost_usd / all_.nopack_usd:.1f}%",
    "BOUND": lambda run, all_: (
        f"{run.outcome.cost_usd / all_.bound_usd:.3f}x" if all_.bound_usd else "-"
    ),
    "JCT": lambda run, _: f"{run.outcome.jct_mean_h:.2f}h",
    "IDLE": lambda run, _: f"{run.outcome.idle_mean_h:.3f}h",
    "SPEED": lambda run, _: f"{run.outcome.norm_throughput_mean:.3f}",
    "MOVES": lambda run, _: f"{run.outcome.migrations_per_job:.2f}",
    "NODES": lambda run, _: f"{run.outcome.instances_launched:,}",
    "P95 JCT": lambda run, _: f"{run.outcome.jct_p95_h:.2f}h",
    "TASKS EACH": lambda run, _: f"{run.outcome.tasks_per_instance:.2f}",
    "FULL": lambda run, _: f"{100 * run.outcome.full_share:.0f}%",
    "TOOK": lambda run, _: f"{run.wall_s:.1f}s",
}
_NARROW, _ALWAYS = 105, 8
"""In a terminal of fewer columns only the first figures are shown; JSON has all."""


def _table(comparison: Comparison, history: History | None, width: int) -> RenderableType:
    """A line per policy, and below it what they are compared with.

    COST is also told as a part of no packing's (ALONE) and as a multiple of the lower bound's;
    MOVES are per job.
    """
    from rich.console import Group
    from rich.text import Text

    shown = list(_COLUMNS)[: _ALWAYS if width < _NARROW else None]
    lines = grid("POLICY", *shown, right=shown)
    for run in comparison.runs:
        cells = (_COLUMNS[name](run, comparison) for name in shown)
        lines.add_row(plain(run.policy), *cells)
    below = [f"no packing: {_usd(comparison.nopack_usd)}"]
    if comparison.bound_usd is not None:
        below.append(f"lower bound: {_usd(comparison.bound_usd)}")
    if history is not None:
        below.append(f"what it did cost: {_usd(history.cost_usd)} ({history.words})")
    return Group(lines, Text("; ".join(below), style="dim"))


def _usd(amount: float) -> str:
    return money(round(amount * MILLION))
