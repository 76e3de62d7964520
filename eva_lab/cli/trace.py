"""``eva trace``: generates, describes and converts traces for the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click

from eva_client.cli.session import FiniteRange, console, json_option, print_json
from eva_client.cli.views.errors import note
from eva_client.cli.views.grid import Grid, facts
from eva_client.cli.views.words import plain
from eva_wire.values.errors import InvalidConfig
from eva_wire.values.ids import MILLIS_PER_HOUR

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from rich.console import RenderableType

    from eva_lab.traces.describe import Description
    from eva_lab.traces.recipes import Recipe
    from eva_master.model.catalog import Catalog
    from eva_master.model.trace import Trace

_FILE = click.Path(path_type=Path, dir_okay=False)
_SHORT_H = 0.1
"""Durations below so many hours are shown in seconds."""
_LEAST_MS = 60_000
_EXISTING = click.Path(path_type=Path, dir_okay=False, exists=True)


def _catalog_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--catalog",
        type=_EXISTING,
        help="A file of instance types that adds to or changes those that come with Eva.",
    )(command)


@click.group()
def trace() -> None:
    """Generate, describe and convert traces of jobs for `eva simulate`."""


class _Kinds(click.Group):
    """A command per recipe. Its options are the recipe's fields, which are read on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        from eva_lab.traces.recipes import RECIPES

        return list(RECIPES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        from eva_lab.traces.recipes import RECIPES

        recipe = RECIPES.get(cmd_name)
        if recipe is None:
            return None
        return click.Command(
            cmd_name,
            callback=_generate,
            help=recipe.__doc__,
            params=[
                *(_option(name, field) for name, field in recipe.model_fields.items()),
                click.Option(["--seed"], type=int, default=0, show_default=True, help="Which one."),
                click.Option(
                    ["-o", "--output"],
                    type=_FILE,
                    required=True,
                    help="File to write it to: .json, or .jsonl for one job per line.",
                ),
                click.Option(["--catalog"], type=_EXISTING, help="A file of instance types."),
                click.Option(
                    ["--json", "as_json"], is_flag=True, help="Print its description as JSON."
                ),
            ],
        )


@trace.group(cls=_Kinds)
def generate() -> None:
    """Generate a trace. Equal options and seeds make equal files.

    Each random quantity has its own generator, so that an option changes only its own part of the
    trace.
    """


def _option(name: str, field: FieldInfo) -> click.Option:
    """An option for a recipe's field; the kind of recipe is the command's name."""
    if name == "kind":
        return click.Option(["--kind"], default=get_args(field.annotation)[0], hidden=True)
    kinds = [field.annotation, *get_args(field.annotation)]
    kind: click.ParamType[Any] = click.STRING
    if get_origin(field.annotation) is Literal:
        kind = click.Choice(get_args(field.annotation))
    elif Path in kinds:
        kind = _EXISTING
    unset = field.default is None
    return click.Option(
        [f"--{name.replace('_', '-')}"],
        type=kind,
        metavar=_metavar(name, kinds) if kind is click.STRING else None,
        required=field.is_required(),
        default=None if unset or field.is_required() else _written(name, field.default),
        show_default=not unset and not field.is_required(),
        help=f"{(field.description or '')[:1].upper()}{(field.description or '')[1:]}.",
    )


_DURATIONS = ("gap", "shortest", "longest")


def _metavar(name: str, kinds: list[Any]) -> str:
    return "DURATION" if name in _DURATIONS else "N" if int in kinds else "X"


def _written(name: str, value: object) -> str:
    from eva_wire.text.quantities import write_duration

    return write_duration(value) if name in _DURATIONS and isinstance(value, int) else f"{value}"


def _generate(
    seed: int, output: Path, catalog: Path | None, as_json: bool, **fields: object
) -> None:
    from eva_master.adapters.catalog import load_catalog

    types = load_catalog(catalog)
    made = _recipe(fields).trace(seed, types)
    _write(made, output)
    _show(made, types, as_json)


def _recipe(fields: dict[str, object]) -> Recipe:
    from pydantic import TypeAdapter, ValidationError

    from eva_lab.traces.recipes import Recipe
    from eva_wire.text.yamlfile import scalar, wording

    given = {
        name: scalar(value) if isinstance(value, str) else value
        for name, value in fields.items()
        if value is not None
    }
    adapter: TypeAdapter[Recipe] = TypeAdapter(Recipe)
    try:
        return adapter.validate_python(given)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        flag = f"--{str(details['loc'][-1]).replace('_', '-')}"
        raise click.BadParameter(wording(details), param_hint=f"'{flag}'") from error


def _write(made: Trace, output: Path) -> None:
    from eva_lab.traces import write_trace

    try:
        write_trace(made, output)
    except OSError as error:
        raise click.FileError(str(output), error.strerror or str(error)) from error
    for line in made.notes:
        note(line)
    note(f"wrote {len(made.jobs):,} jobs to {output}")


@trace.command()
@click.argument("file", type=_EXISTING)
@_catalog_option
@json_option
def describe(file: Path, catalog: Path | None, as_json: bool) -> None:
    """Describe a trace: jobs, durations, arrivals, GPUs, gangs, arrays, workloads.

    The cost alone is that of one instance per task for as long as its job, or the task of an array,
    runs alone, without boot times, interference and packing.
    """
    from eva_lab.traces import read_trace
    from eva_master.adapters.catalog import load_catalog

    _show(read_trace(file), load_catalog(catalog), as_json)


@trace.command()
@click.argument("source", type=_EXISTING)
@click.argument("target", type=_FILE)
@click.option("--jobs", type=click.IntRange(1), help="Only the first so many jobs.")
@click.option(
    "--delay-factor",
    type=FiniteRange(0),
    default=1.0,
    show_default=True,
    help="Times what it takes to stop, fetch, store and start a task.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="For a source without arrivals."
)
def convert(source: Path, target: Path, jobs: int | None, delay_factor: float, seed: int) -> None:
    """Write another system's list of jobs, or a trace of another form, as a trace of Eva.

    The form is found out by the end of the source's name and its first line; any may be compressed
    (.gz). Readable forms are the Standard Workload Format (.swf), Philly's job log (.json), Helios'
    and Alibaba's lists (.csv), CSV with the columns arrival, duration, gpus, cpus, memory (seconds
    and GiB; tasks, name, user if you like), traces of Hawk's simulator (.tr), past jobs with arrays
    (.txt) and traces of Eva (.json, .jsonl). The output tells what is left out and what is assumed.
    """
    from eva_lab.traces.recipes import source_of
    from eva_master.adapters.catalog import load_catalog

    recipe = _recipe({**source_of(source), "jobs": jobs, "delay_factor": delay_factor})
    _write(recipe.trace(seed, load_catalog()), target)


@trace.command()
@click.option("-o", "--out", "target", type=_FILE, required=True, help="File to write.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same makes the same.")
@click.option(
    "--zone",
    "zones",
    multiple=True,
    help="A zone; may be repeated. Zones whose names differ in the last letter are of one region.  "
    "[default: zone-a, zone-b, zone-c]",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    help="A type with pools of its own; may be repeated.  [default: one pool for all]",
)
@click.option(
    "--days",
    type=FiniteRange(0, 3_650, min_open=True),
    default=30.0,
    show_default=True,
    help="How long the market is before it begins anew.",
)
@click.option("--there", default="4h", show_default=True, help="How long a pool lasts on average.")
@click.option("--away", default="1h", show_default=True, help="How long it is away on average.")
@click.option(
    "--shape",
    type=FiniteRange(0.2, 5),
    default=0.6,
    show_default=True,
    help="Of both times (Weibull): below 1 what is young ends soonest, with 1 age says nothing.",
)
@click.option(
    "--shocks",
    type=FiniteRange(0, 100),
    default=0.5,
    show_default=True,
    help="How often per day pools of a region go together.",
)
@click.option(
    "--shaken",
    type=FiniteRange(0, 1),
    default=0.7,
    show_default=True,
    help="The part of them that does.",
)
@click.option(
    "--capacity",
    type=click.IntRange(1, 1_000_000),
    default=1_000,
    show_default=True,
    help="How many instances a pool has while it is there.",
)
@click.option(
    "--price", default="35%", show_default=True, help="On average, of the price on demand."
)
@click.option(
    "--prices",
    type=FiniteRange(0, 1_000),
    default=1.0,
    show_default=True,
    help="How often per day the price of a pool changes.",
)
@json_option
def market(target: Path, as_json: bool, **options: Any) -> None:
    """Make a spot market up, for `eva simulate --market`.

    Pools come and go by themselves, and now and then many of a region go at once.
    """
    from eva_lab.traces.spot.files import is_zone, write_market
    from eva_lab.traces.spot.made import Climate, made_market, shares
    from eva_wire.text.quantities import parse_discount, parse_duration

    try:
        present, away = (parse_duration(options.pop(name)) for name in ("there", "away"))
        price = parse_discount(options.pop("price"))
    except ValueError as error:
        raise InvalidConfig(str(error), hint="write durations as 4h, and prices as 35%") from error
    if min(present, away) < _LEAST_MS:
        raise InvalidConfig("pools are there and away for a minute at least on average")
    if wrong := [zone for zone in options["zones"] if not is_zone(zone)]:
        raise InvalidConfig(f"{wrong[0]!r} cannot be a zone", hint="use letters, digits and -")
    named = {name: them for name in ("zones", "types") if (them := options.pop(name))}
    made = made_market(
        options.pop("seed"),
        Climate(
            length_ms=max(1_000, round(options.pop("days") * 86_400) * 1_000),
            there_h=present / MILLIS_PER_HOUR,
            away_h=away / MILLIS_PER_HOUR,
            price_ppm=price,
            **named,
            **options,
        ),
    )
    try:
        write_market(target, made)
    except OSError as error:
        raise click.FileError(str(target), error.strerror) from error
    shares_by_pool = {f"{machine}@{zone}": share for (machine, zone), share in shares(made).items()}
    if as_json:
        print_json({"file": str(target), "there": shares_by_pool})
        return
    table = Grid("POOL", "THERE", right=("THERE",))
    for name, share in shares_by_pool.items():
        table.add_row(plain(name), f"{100 * share:.1f}%")
    console().print(table)


def _show(made: Trace, catalog: Catalog, as_json: bool) -> None:
    from eva_lab.traces.describe import describe as figures_of

    figures = figures_of(made, catalog)
    if as_json:
        print_json(asdict(figures))
    else:
        console().print(_table(figures))


def _table(figures: Description) -> RenderableType:
    tasks = figures.array_task_h
    alone = "-" if figures.alone_usd is None else f"${figures.alone_usd:,.2f}"
    return facts(
        (
            ("trace", plain(figures.name)),
            ("jobs", f"{figures.jobs:,} with {figures.tasks:,} tasks"),
            *([("past jobs", f"{figures.past:,}")] if figures.past else []),
            ("arrivals", f"one in {figures.gap_min:.1f} min over {figures.span_h:,.1f} h"),
            ("durations", _spread(figures.duration_h)),
            *([("arrays", f"{figures.arrays:,}; tasks {_spread(tasks)}")] if tasks else []),
            ("GPUs per task", _listed(figures.gpu_share)),
            ("tasks per job", _listed(figures.gang_share)),
            ("workloads", f"{_listed(figures.base_share)}; {figures.classes} classes"),
            ("cost alone", alone),
        )
    )


def _spread(hours: Mapping[str, float]) -> str:
    """Quantiles in hours, in seconds where all are short."""
    unit, times = ("s", 3_600) if hours["max"] < _SHORT_H else ("h", 1)
    spread = {name: times * value for name, value in hours.items()}
    return (
        f"mean {spread['mean']:.2f} {unit}, median {spread['median']:.2f}, "
        f"80 % {spread['p80']:.2f}, 95 % {spread['p95']:.2f}, longest {spread['max']:,.1f}"
    )


def _listed(shares: Any) -> str:
    return ", ".join(f"{plain(str(what))}: {100 * share:.1f} %" for what, share in shares.items())
