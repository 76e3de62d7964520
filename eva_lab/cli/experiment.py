"""``eva experiment``: sweeps of simulations, with a report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eva_client.cli.session import console, json_option, print_json
from eva_client.cli.views.errors import note
from eva_client.cli.views.grid import Grid
from eva_client.cli.views.words import count, plain
from eva_wire.values.errors import InvalidConfig

if TYPE_CHECKING:
    from rich.console import RenderableType

    from eva_lab.experiments.runs import Cell, Results, Run
    from eva_lab.experiments.summary import Row, SeedMean, Summary
    from eva_lab.experiments.sweep import RunExecutor


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of results and report; by default results/NAME.",
)
@click.option(
    "-j",
    "--jobs",
    type=int,
    default=-1,
    help="Number of concurrent runs; by default one per core.",
)
@click.option(
    "--dask",
    default="",
    metavar="ADDRESS",
    help="Run on the dask cluster of this scheduler (HOST:PORT), not on this machine.",
)
@click.option(
    "--backend",
    default="loky",
    show_default=True,
    help="A backend of joblib: loky (local processes) or ray (a cluster).",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a setting of the file: seeds=[1,2], accounting=production, trace.jobs=200.",
)
@click.option("--fresh", is_flag=True, help="Repeat all runs.")
@click.option("--dry-run", is_flag=True, help="List the runs to do without doing them.")
@click.option("--report-only", is_flag=True, help="Write the report of the runs done so far.")
@json_option
def experiment(
    *,
    file: Path,
    out: Path | None,
    jobs: int,
    dask: str,
    backend: str,
    settings: tuple[str, ...],
    fresh: bool,
    dry_run: bool,
    report_only: bool,
    as_json: bool,
) -> None:
    """Simulate policies on traces, several seeds each, and write a report.

    FILE lists traces, policies, seeds, and what to vary. Every finished run is kept under the
    digest of its definition, so an interrupted sweep continues, and an extended one only does new
    runs. Results are means over seeds with 95 % confidence intervals.
    """
    _needs_extra()
    from eva_lab.experiments.pace import timed
    from eva_lab.experiments.runs import Results, cells
    from eva_lab.experiments.schema import load_experiment
    from eva_lab.experiments.summary import summarise
    from eva_lab.experiments.sweep import RunExecutor, missing
    from eva_lab.experiments.verdict import verdict

    plan = load_experiment(file, settings)
    folder = out or Path("results") / plan.experiment.name
    wanted, results = cells(plan), Results(folder / "runs")
    todo = [] if report_only else missing(wanted, results, fresh=fresh)
    if dry_run:
        _announce(wanted, todo)
        return
    try:
        failed = 0
        if not report_only:
            crew = RunExecutor(jobs, backend, dask)
            failed = _sweep(todo, results, crew, timed(wanted, results))
        summary = summarise(plan, wanted, results)
        _write(summary, folder)
    except OSError as error:
        raise click.FileError(str(error.filename or folder), error.strerror) from error
    if as_json:
        print_json(summary.shape())
    else:
        console().print(table(summary))
        if any("short_wait_mean_s" in row.figures for row in summary.rows):
            console().print()
            console().print(table(summary, OF_SHORT))
        if any(row.speed_ups for row in summary.rows):
            console().print()
            console().print(table_of_speed_ups(summary))
        if any(row.tenants for row in summary.rows):
            console().print()
            console().print(table_of_tenants(summary))
        if said := verdict(summary):
            console().print("", *said, sep="\n")
    if failed:
        raise click.exceptions.Exit(1)


def _needs_extra() -> None:
    from importlib.util import find_spec

    for name in ("joblib", "matplotlib"):
        if find_spec(name) is None:
            raise InvalidConfig(f"{name} is not installed", hint="pip install 'eva-lab[sim]'")


def _announce(wanted: list[Cell], todo: list[Run]) -> None:
    total = len({cell.digest for cell in wanted})
    click.echo(f"{count(total, 'run')}, {total - len(todo)} done, {len(todo)} to do")
    for run in todo:
        click.echo(f"{run.digest[:12]}  {run.recipe.kind} seed {run.seed}  {run.title}")


def _sweep(
    todo: list[Run], results: Results, crew: RunExecutor, earlier: list[tuple[Run, float]]
) -> int:
    """Carry out runs under a progress bar; returns how many failed."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from eva_lab.experiments.sweep import SweepProgress as Done
    from eva_lab.experiments.sweep import sweep

    ends = TextColumn("{task.description}")
    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        ends,
    )
    screen = console(stderr=True)
    with Progress(*columns, console=screen, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=len(todo))

        def watch(done: Done) -> None:
            bar.update(task, completed=done.done, description=_ends(done.left_s))
            if done.error:
                screen.print(f"a run failed: {plain(done.error)}")

        failed = sweep(todo, results, crew, watch, earlier)
    note(f"did {count(len(todo) - len(failed), 'run')}; {len(failed)} failed")
    return len(failed)


def _ends(left_s: float | None) -> str:
    """When a sweep ends, by the clock on the wall."""
    if left_s is None:
        return ""
    end = datetime.now().astimezone() + timedelta(seconds=left_s)
    return f"ends about {end:%H:%M}" if left_s < 43_200 else f"ends about {end:%a %d %b %H:%M}"


def _write(summary: Summary, folder: Path) -> None:
    import json

    from eva_lab.reports import write_report

    folder.mkdir(parents=True, exist_ok=True)
    shape = json.dumps(summary.shape(), indent=1, ensure_ascii=False)
    (folder / "summary.json").write_text(shape + "\n", encoding="utf-8")
    if summary.rows:
        page = write_report(summary, folder)
        note(f"wrote {page}")


_Column = tuple[str, str, str, float]
_COLUMNS: tuple[_Column, ...] = (
    ("COST", "cost_usd", "$,.0f", 1.0),
    ("OF BASE", "cost_share", ".1f%", 100.0),
    ("OF BOUND", "reference_share", ".3f", 1.0),
    ("REVENUE", "revenue", "$,.0f", 1.0),
    ("OF MOST", "share", ".3f", 1.0),
    ("WORSE OFF", "worse_off", ".0f", 1.0),
    ("BORROWED", "borrowed_jobs", ".0f", 1.0),
    ("PAID", "paid", "$,.0f", 1.0),
    ("JCT", "jct_mean_h", ".2fh", 1.0),
    ("MEDIAN", "median_h", ".2fh", 1.0),
    ("TOTAL", "total_h", ".2fh", 1.0),
    ("OVER LEAST", "over_bound", ".3f", 1.0),
    ("MOVED", "moves_per_job", ".2f", 1.0),
    ("CHANGED", "changed_rounds", ".1f%", 100.0),
    ("HELD", "used", ".1f%", 100.0),
    ("IDLE", "idle_mean_h", ".2fh", 1.0),
    ("SPEED", "norm_throughput_mean", ".3f", 1.0),
    ("MOVES", "migrations_per_job", ".2f", 1.0),
    ("NODES", "instances_launched", ".0f", 1.0),
    ("TASKS", "tasks_per_instance", ".2f", 1.0),
    ("PLANNING", "planning_mean_s", ".3fs", 1.0),
    ("WAIT", "wait_share", ".2f", 1.0),
    ("ERROR", "estimate_error_p50", ".1f%", 100.0),
    ("RIGHT QUEUE", "right_queue", ".1f%", 100.0),
    ("DAG JCT", "dag_jct_mean_h", ".2fh", 1.0),
    ("DAG ERROR", "dag_error_p50", ".1f%", 100.0),
)


OF_SHORT = (
    ("SHORT WAIT", "short_wait_mean_s", ",.2fs", 1.0),
    ("P50", "short_wait_p50_s", ",.1fs", 1.0),
    ("P90", "short_wait_p90_s", ",.1fs", 1.0),
    ("P99", "short_wait_p99_s", ",.1fs", 1.0),
    ("MAX", "short_wait_max_s", ",.0fs", 1.0),
    ("LONG WAIT", "long_wait_mean_s", ",.1fs", 1.0),
    ("TRANSIENT", "transients_mean", ",.1f", 1.0),
    ("PEAK", "transients_peak", ",.0f", 1.0),
    ("NORMALISED", "transients_normalised", ",.2f", 1.0),
    ("SAVED", "saved_share", ".1f%", 100.0),
    ("LIFE", "transient_life_mean_h", ".2fh", 1.0),
    ("LONGEST", "transient_life_max_h", ".1fh", 1.0),
    ("RERUNS", "reruns", ",.0f", 1.0),
)
"""Of experiments on room for short tasks: their waits, and the servers on the spot market."""
_OF_TENANTS = (
    ("JOBS", "jobs", ",.0f"),
    ("COST", "cost_usd", "$,.2f"),
    ("JCT", "jct_mean_h", ".2fh"),
    ("IDLE", "idle_mean_h", ".3fh"),
)


def table(summary: Summary, choice: Sequence[_Column] = _COLUMNS) -> RenderableType:
    """One line per policy, trace and choice of what is varied.

    Args:
        summary: Of the experiment.
        choice: The columns to show of those of which there is a figure.
    """
    varied = [key.rpartition(".")[2].upper() for key in summary.plan.experiment.vary]
    columns = [column for column in choice if any(column[1] in row.figures for row in summary.rows)]
    figures = [name for name, _, _, _ in columns]
    drawn = Grid("TRACE", *varied, "POLICY", *figures, right=figures, drop=figures[:0:-1])
    for row in summary.rows:
        drawn.add_row(
            plain(row.trace),
            *(plain(str(value)) for _, value in row.values),
            plain(row.label),
            *(_figure(row, key, form, factor) for _, key, form, factor in columns),
        )
    return drawn


def table_of_speed_ups(summary: Summary) -> RenderableType:
    """How much longer jobs take under each other policy than under that of the line."""
    varied = [key.rpartition(".")[2].upper() for key in summary.plan.experiment.vary]
    rivals = summary.plan.experiment.labels
    heads = [f"OVER {plain(name)}" for name in rivals]
    drawn = Grid("TRACE", *varied, "POLICY", *heads, right=heads, drop=heads[:0:-1])
    for row in summary.rows:
        drawn.add_row(
            plain(row.trace),
            *(plain(str(value)) for _, value in row.values),
            plain(row.label),
            *(
                _estimate(speed_up, ".2f", 1.0) if (speed_up := row.speed_ups.get(rival)) else "-"
                for rival in rivals
            ),
        )
    return drawn


def table_of_tenants(summary: Summary) -> RenderableType:
    """One line per tenant of each line of `table`; what is idle is nobody's."""
    varied = [key.rpartition(".")[2].upper() for key in summary.plan.experiment.vary]
    figures = [name for name, _, _ in _OF_TENANTS]
    drawn = Grid("TRACE", *varied, "POLICY", "TENANT", *figures, right=figures)
    for row in summary.rows:
        for tenant, of in row.tenants.items():
            drawn.add_row(
                plain(row.trace),
                *(plain(str(value)) for _, value in row.values),
                plain(row.label),
                plain(tenant),
                *(_estimate(of[key], form, 1.0) for _, key, form in _OF_TENANTS),
            )
    return drawn


def _figure(row: Row, key: str, form: str, factor: float) -> str:
    return _estimate(row.figures[key], form, factor) if key in row.figures else "-"


def _estimate(one: SeedMean, form: str, factor: float) -> str:
    """Format a mean with its interval; the form may begin with ``$`` and end with a unit."""
    sign, rest = ("$", form[1:]) if form.startswith("$") else ("", form)
    number, unit = (rest[:-1], rest[-1]) if rest[-1] in "%hs" else (rest, "")
    text = f"{sign}{one.mean * factor:{number}}{unit}"
    return text if one.half is None else f"{text} ± {one.half * factor:{number}}"
