"""``eva simulate``: runs a trace of jobs under one or more policies in the simulator."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eva_client.cli.session import FiniteRange, console, json_option, print_json
from eva_client.cli.views.grid import Grid
from eva_client.cli.views.words import money, plain
from eva_master.model.planning.estimate import Estimates
from eva_master.model.trace import SpotUse
from eva_wire.values.durations import span
from eva_wire.values.ids import MILLION

if TYPE_CHECKING:
    from rich.console import RenderableType

    from eva_lab.history import Replay
    from eva_lab.runs import Chosen, Comparison, Division, PolicyRun, RunProgress
    from eva_lab.simulator.results.metrics import DeadlineFigures, PartitionFigures, TenantFigures
    from eva_lab.simulator.run import Setup

_EXISTING = click.Path(path_type=Path, exists=True)
_SHARE = FiniteRange(0, 1)
_POSITIVE = FiniteRange(0)


@click.command()
@click.argument(
    "trace", type=click.Path(path_type=Path, dir_okay=False, exists=True), required=False
)
@click.option(
    "--from-journal",
    "journal",
    type=_EXISTING,
    metavar="STATE",
    help="Instead of a trace: replay the past of a master, from its state directory.",
)
@click.option(
    "-p",
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME[:PRESET]",
    help="Policy to run; may be repeated.  [default: eva]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="[NAME.]OPTION=VALUE",
    help="Option of one policy, or of all that have it.",
)
@click.option(
    "--accounting",
    type=click.Choice(["compat", "production"]),
    default="compat",
    show_default=True,
    help="When files and images are fetched for a move: after the task has stopped, as in "
    "the paper's simulator, or before, as in a real cluster.",
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
    help="An instance type or family to buy; may be repeated.  [default: all]",
)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME=TYPE",
    help="A machine of your own beside the cloud's, of a type of the catalog and for nothing; may "
    "be repeated.",
)
@click.option(
    "--nodes",
    "node_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Such machines from a file with `nodes:`, as in the master's settings.",
)
@click.option(
    "--partitions",
    "partition_file",
    type=_EXISTING,
    metavar="FILE",
    help="Divide the cluster, by a file with `partitions:` as in the master's settings. Those that "
    "name no policy have the one that is run.",
)
@click.option(
    "--tenants",
    "tenant_file",
    type=_EXISTING,
    metavar="FILE",
    help="What tenants may have, by a file with `tenants:` as in the master's settings. A trace "
    "says whose its jobs are.",
)
@click.option("--no-cloud", is_flag=True, help="Launch nothing: the nodes are all there is.")
@click.option(
    "--interference",
    type=_EXISTING,
    help="A table of true interference.  [default: the measured one that comes with Eva]",
)
@click.option(
    "--pairwise",
    type=FiniteRange(0, 1, min_open=True),
    metavar="X",
    help="The same true throughput for all pairs of workloads, instead of a table.",
)
@click.option(
    "--round-gap",
    metavar="DURATION",
    help="Plan at multiples of this; 0 for whenever "
    "something happens.  [default: as each policy likes it, else 5m]",
)
@click.option("--hide-durations", is_flag=True, help="Do not tell policies how long jobs take.")
@click.option(
    "--estimates",
    type=click.Choice([source.value for source in Estimates]),
    help="What run times that are hidden are estimated from: earlier jobs (history; 3sigma and "
    "point by the rules of others), finished tasks of the same job (pilots), or both (posterior).  "
    "[default: what each policy asks for, else posterior]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the faults.")
@click.option(
    "--refusals",
    type=_SHARE,
    default=0.0,
    metavar="X",
    help="Share of the launches that the cloud refuses.",
)
@click.option(
    "--stock",
    multiple=True,
    metavar="TYPE=N",
    help="How many instances of a type the cloud has, unknown to the policies.",
)
@click.option(
    "--failures",
    type=_POSITIVE,
    default=0.0,
    metavar="X",
    help="Failures per hour and running instance.",
)
@click.option(
    "--interruptions",
    type=_POSITIVE,
    default=1.0,
    metavar="X",
    help="Factor on the catalog's interruption rates of spot instances.",
)
@click.option(
    "--market",
    type=_EXISTING,
    metavar="FILE",
    help="How many spot instances there are and at what prices, over time (CSV). They are taken "
    "back with two minutes' notice when there are fewer, instead of at random.",
)
@click.option(
    "--market-offset",
    metavar="DURATION",
    help="Begin so far into the market. Past its end it begins anew.",
)
@click.option(
    "--spot",
    type=click.Choice([use.value for use in SpotUse]),
    help="Whether jobs may run on spot instances of which the trace does not say so.  "
    "[default: those that may run on any family may]",
)
@click.option(
    "--noise",
    type=_POSITIVE,
    default=0.0,
    metavar="X",
    help="Relative standard deviation of measured throughput.",
)
@click.option(
    "--preemption",
    type=click.Choice(["never", "suspend"]),
    default="never",
    show_default=True,
    help="Whether jobs that wait have running ones of lower priority suspended.",
)
@click.option(
    "--spot-choice",
    type=click.Choice(["learned", "until_safety_net", "uniform_progress", "on_demand"]),
    help="How jobs with deadlines choose between spot instances, others and waiting; by default as "
    "each policy asks, or else learned.",
)
@click.option(
    "--pool-share",
    default="100%",
    show_default=True,
    metavar="X%",
    help="The part of the work with little time to lose that may be in one spot pool.",
)
@click.option(
    "--no-reference",
    is_flag=True,
    help="Do not compute the lower bound on the cost, which may take longer than the simulation.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write all rounds, moves, attempts, jobs and bills there, in a folder per policy.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["parquet", "jsonl"]),
    help="Format of these files.  [default: parquet if pyarrow is installed, else jsonl]",
)
@json_option
def simulate(*, trace: Path | None, journal: Path | None, as_json: bool, **options: Any) -> None:
    """Run a trace of jobs through schedulers, without a cluster.

    The production scheduler runs on a virtual clock with simulated instances and tasks. TRACE is a
    file that `eva trace generate` or `eva trace describe` can handle.

    \b
        eva trace generate production --jobs 200 --seed 1 -o t.json
        eva simulate t.json --policy eva --policy stratus --policy eva_published

    The table compares costs with those of no packing (OF ALONE: an instance for each task) and with
    a lower bound (OF BOUND: jobs packed fractionally, without interference, moves and delays). It
    shows mean completion times (JCT), the part of that without progress (IDLE), normalised
    throughput (SPEED), moves per job (MOVES) and launched instances (NODES). Where jobs name
    tenants, a second table shows the figures of each, and so does one of partitions with
    --partitions.
    """  # noqa: D301 - what the formatter is told
    if (trace is None) == (journal is None):
        raise click.UsageError("name a TRACE, or a state directory with --from-journal")
    from eva_master.adapters.loop.collector import spare_lasting_values

    spare_lasting_values()  # Modules have no cycles to look for either.
    from eva_lab.runs import chosen_policies

    chosen = chosen_policies(options["policies"] or ("eva",), options["settings"])
    setup, history = _setup(trace, journal, options)
    comparison = _compare(chosen, setup, options)
    if options["out"] is not None:
        _write(comparison, options["out"], options["file_format"])
    if as_json:
        print_json([_shape(run, comparison, history) for run in comparison.runs])
    else:
        console().print(_table(comparison, history))


def _setup(
    trace: Path | None, journal: Path | None, options: Mapping[str, Any]
) -> tuple[Setup, Replay | None]:
    """The setup of the simulation except for the policy, and the history that it replays."""
    from eva_lab.runs import setup_of, truth_of
    from eva_master.adapters.catalog import load_catalog
    from eva_master.app.nodes.simulated import nodes_of

    catalog = load_catalog(options["catalog"], options["only"] or None, spot=True)
    history = None
    if journal is not None:
        from eva_lab.history import read_history  # loads a database

        listed = options["catalog"] is not None or bool(options["only"])
        history = read_history(journal, catalog if listed else None)
        setup = history.setup
    else:
        assert trace is not None
        truth = truth_of(options["interference"], options["pairwise"])
        setup = setup_of(trace, catalog, truth)
    if own := nodes_of(options["nodes"], options["node_file"], load_catalog()):
        setup = replace(setup, nodes=(*setup.nodes, *own))
    if options["no_cloud"]:
        if not setup.nodes:
            raise click.UsageError("--no-cloud leaves nothing to run on: name nodes with --node")
        setup = replace(setup, catalog=())
    if options["tenant_file"] is not None:
        from eva_lab.partitions import read_tenants

        setup = read_tenants(options["tenant_file"], setup)
    return _with_options(setup, options), history


def _with_options(setup: Setup, options: Mapping[str, Any]) -> Setup:
    from eva_lab.runs import stock_of
    from eva_lab.simulator.cluster.delays import Accounting
    from eva_lab.simulator.cluster.supply.fault_injector import Faults
    from eva_master.model.planning.suspension import Preemption

    setup = _with_market(setup, options)
    return replace(
        setup,
        accounting=Accounting(options["accounting"]),
        durations=not options["hide_durations"],
        seed=options["seed"],
        preemption=Preemption(options["preemption"]),
        pool_share_ppm=_share(options["pool_share"]),
        keep_record=options["out"] is not None,
        faults=Faults(
            refusals=options["refusals"],
            stock=stock_of(options["stock"]),
            failures_per_hour=options["failures"],
            interruptions=0.0 if setup.market is not None else options["interruptions"],
            noise=options["noise"],
        ),
    )


def _share(text: str) -> int:
    from eva_wire.text.quantities import parse_share

    try:
        return parse_share(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--pool-share'") from error


def _with_market(setup: Setup, options: Mapping[str, Any]) -> Setup:
    from eva_lab.traces.spot.files import read_market
    from eva_wire.text.quantities import parse_duration

    if (use := options["spot"]) is not None:
        setup = replace(setup, trace=setup.trace.using_spot(SpotUse(use)))
    path, offset = options["market"], options["market_offset"]
    if path is None:
        if offset is not None:
            raise click.UsageError("--market-offset goes with --market")
        return setup
    market = read_market(path, setup.catalog)
    if offset is not None:
        offset_ms = parse_duration(offset)
        if offset_ms >= market.length_ms:
            warning = f"the market is {span(market.length_ms)} long: it begins anew at the offset"
            click.echo(warning, err=True)
        market = market.began_at(offset_ms)
    return replace(setup, market=market, catalog=market.offered(setup.catalog))


def _compare(chosen: Sequence[Chosen], setup: Setup, options: Mapping[str, Any]) -> Comparison:
    """Run all policies under a progress bar."""
    from eva_lab.runs import compare, gap_of
    from eva_master.model.planning.spot_choice import SpotChoice

    with _bar() as watch:
        return compare(
            chosen,
            setup,
            rhythm=gap_of(options["round_gap"]),
            # The lower bound assumes prices that do not change.
            reference=not options["no_reference"],
            division=_division(setup, options["partition_file"]),
            estimates=None if (mode := options["estimates"]) is None else Estimates(mode),
            spot_choice=None if (rule := options["spot_choice"]) is None else SpotChoice(rule),
            watch=watch,
        )


def _division(setup: Setup, file: Path | None) -> Division | None:
    if file is None:
        return None
    from eva_lab.partitions import division, read_partitions

    return division(read_partitions(file, setup))


@contextmanager
def _bar() -> Iterator[Callable[[str, RunProgress], None]]:
    """A progress bar per policy: jobs, virtual time and cost so far."""
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
            progress = f"{span(so.now_ms)} simulated, {_usd(so.cost_usd)}" if so.now_ms else ""
            bar.update(lines[name], completed=so.finished, total=so.total, told=progress)

        yield watch


def _write(comparison: Comparison, folder: Path, chosen: str | None) -> None:
    from eva_lab.rowfiles import RowFormat, default_format, write_rows
    from eva_lab.simulator.results.rows import tables

    form = default_format() if chosen is None else RowFormat(chosen)
    for run in comparison.runs:
        for name, rows in tables(run.outcome.record).items():
            write_rows(folder / run.policy.replace(":", "-"), name, rows, form)


def _shape(run: PolicyRun, comparison: Comparison, history: Replay | None) -> dict[str, Any]:
    """The metrics of a policy for ``--json``."""
    planning = {f"planning_{name}": took for name, took in asdict(run.outcome.planning).items()}
    parts, due = run.outcome.partitions, run.outcome.deadlines
    return {
        "policy": run.policy,
        **run.outcome.row(),
        **({"tenants": [asdict(tenant) for tenant in of]} if (of := run.outcome.tenants) else {}),
        **({"partitions": [asdict(part) for part in parts]} if parts else {}),
        **({} if due is None else {"deadlines": asdict(due)}),
        "nopack_usd": comparison.nopack_usd,
        "reference_bound_usd": comparison.bound_usd,
        **({} if history is None else _history_shape(history)),
        **planning,
        "wall_s": run.wall_s,
    }


def _late(due: DeadlineFigures | None) -> str:
    return "-" if due is None else f"{due.missed}/{due.jobs}"


def _history_shape(history: Replay) -> dict[str, Any]:
    return {"history_usd": history.cost_usd, "history_left_out": list(history.left_out)}


_COLUMNS: Mapping[str, Callable[[PolicyRun, Comparison], str]] = {
    "COST": lambda run, _: _usd(run.outcome.cost_usd),
    "OF ALONE": lambda run, all_: (
        f"{100 * run.outcome.cost_usd / all_.nopack_usd:.1f}%" if all_.nopack_usd else "-"
    ),
    "OF BOUND": lambda run, all_: (
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
    "LATE": lambda run, _: _late(run.outcome.deadlines),
    "TOOK": lambda run, _: f"{run.wall_s:.1f}s",
}


def _table(comparison: Comparison, history: Replay | None) -> RenderableType:
    """A row per policy, and below them the references.

    COST is also shown as a share of that without packing (OF ALONE) and as a multiple of the lower
    bound (OF BOUND). MOVES are per job.
    """
    from rich.console import Group
    from rich.text import Text

    shown = list(_COLUMNS)
    lines = Grid("POLICY", *shown, right=shown, drop=shown[:3:-1])
    for run in comparison.runs:
        cells = (_COLUMNS[name](run, comparison) for name in shown)
        lines.add_row(plain(run.policy), *cells)
    below = [f"no packing: {_usd(comparison.nopack_usd)}"]
    if comparison.bound_usd is not None:
        below.append(f"lower bound: {_usd(comparison.bound_usd)}")
    if history is not None:
        below.append(f"what it did cost: {_usd(history.cost_usd)} ({history.words})")
    parts: list[RenderableType] = [lines, Text("; ".join(below), style="dim")]
    if history is not None:
        parts += [Text(f"not replayed: {omission}") for omission in history.left_out]
    if any(run.outcome.tenants for run in comparison.runs):
        parts += [Text(), _groups("TENANT", comparison.runs, _tenants)]
    if any(run.outcome.partitions for run in comparison.runs):
        parts += [Text(), _groups("PARTITION", comparison.runs, _partitions)]
    return Group(*parts)


def _tenants(run: PolicyRun) -> Iterator[tuple[str, TenantFigures]]:
    return ((tenant.tenant, tenant) for tenant in run.outcome.tenants)


def _partitions(run: PolicyRun) -> Iterator[tuple[str, PartitionFigures]]:
    return ((partition.partition, partition) for partition in run.outcome.partitions)


def _groups(
    title: str,
    runs: Sequence[PolicyRun],
    groups: Callable[[PolicyRun], Iterator[tuple[str, TenantFigures | PartitionFigures]]],
) -> RenderableType:
    """A row per policy and tenant, or partition; what is idle is no tenant's."""
    right = ("JOBS", "COST", "JCT", "IDLE")
    lines = Grid("POLICY", title, *right, right=right)
    for run in runs:
        for name, figures in groups(run):
            lines.add_row(
                plain(run.policy),
                plain(name),
                f"{figures.jobs:,}",
                _usd(figures.cost_usd),
                f"{figures.jct_mean_h:.2f}h",
                f"{figures.idle_mean_h:.3f}h",
            )
    return lines


def _usd(amount: float) -> str:
    return money(round(amount * MILLION))
