"""Shows the reasons of plans as text and JSON. Pure functions of their arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from eva_client.cli.views import instance_words, lending, shapes
from eva_client.cli.views.grid import Grid
from eva_client.cli.views.tables import number, run_time
from eva_client.cli.views.words import (
    ago,
    count,
    give_or_take,
    is_in,
    money,
    of_feature,
    plain,
    price,
)
from eva_wire.values import states
from eva_wire.values.durations import span
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR

if TYPE_CHECKING:
    from eva_wire.rpc.messages import (
        Alternative,
        DagOutlook,
        Exchange,
        Explanation,
        FleetOutlook,
        Hosting,
        Instance,
        Job,
        LinePlace,
        Move,
        Occupant,
        RunTimeEvidence,
        StandingPool,
        Suspension,
        Task,
        Weighing,
    )

_MOST_HOSTINGS = 20
_MOST_MOVES = 8
_MOST_JOBS = 20
_MOST_TYPES = 8
_KINDS = {
    "keep": "keep what runs",
    "partial": "partial reconfiguration",
    "full": "full reconfiguration",
    "search": "what the search found",
}


def explain(message: Explanation) -> RenderableType:
    """The lines of an explanation as text."""
    parts: list[RenderableType] = []
    if message.kind == "job":
        parts += _of_job(message)
    elif message.kind == "round":
        of = f" of partition {plain(message.partition)}" if message.partition else ""
        parts.append(f"round {message.round}{of}, {ago(message.at_ms, message.now_ms)}")
        parts += _round(message)
    elif message.kind == "pools":
        parts += map(_pool, message.pools)
        if not message.pools:
            parts.append("no instance stands in a pool")
    elif message.instance.pool or message.instance.draining:
        parts += _instance(message.instance)
    elif not message.hostings:
        parts.append(f"{message.subject}: no plan that is still kept put a task on it")
    parts += hostings(message.hostings, ended=message.job.state in states.TERMINAL_JOB)
    if message.hostings and message.kind != "round":
        parts.append(f"planned {ago(message.at_ms, message.now_ms)} (round {message.round})")
    if message.exchanges and message.kind != "round":
        when = ago(message.moved_ms, message.now_ms)
        parts.append(f"moved by round {message.moved_in_round}, {when}:")
    parts += exchanges(message.exchanges)
    return Group(*parts)


def _of_job(message: Explanation) -> Iterator[RenderableType]:
    yield from _job(message)
    if message.latency:
        yield f"  {plain(message.latency)}"
    yield from (f"  {plain(line)}" for line in (*message.notes, *message.market, *message.forks))
    if message.HasField("borrowing"):
        yield from lending.borrowing(message.borrowing)
    yield from _lines(message)
    if message.HasField("fleet") and (worths := _worths(message.fleet)):
        yield f"  {worths} (round {message.fleet.round})"


def _round(message: Explanation) -> Iterator[RenderableType]:
    if message.HasField("fleet"):
        yield from _fleet(message.fleet)
    if message.HasField("weighing"):
        yield from _weighing(message.weighing)
    if not message.hostings:
        yield "no instance holds a task"
    yield from map(_pool, message.pools)


def hostings(messages: Iterable[Hosting], *, ended: bool = False) -> Iterator[RenderableType]:
    """Each instance's value against its price, and its tasks.

    Args:
        messages: The instances.
        ended: Whether they are those of a job that has ended.
    """
    listed = list(messages)
    for hosting in listed[:_MOST_HOSTINGS]:
        kind = hosting.type
        name = f"{hosting.instance} ({kind})" if hosting.instance else f"a new {kind}"
        value, asked = hosting.value_micro_usd_per_hour, hosting.price_micro_usd_per_hour
        gain, verdict = value - asked, "worth its price"
        if gain > 0:
            verdict = f"saves {_hourly(gain)} against one instance per task"
        elif gain < 0:
            verdict = f"{_hourly(-gain)} more than its tasks are worth"
        yield f"{name}: worth {_hourly(value)}, costs {instance_words.costs(hosting)}; {verdict}"
        yield _occupants(hosting.occupants)
        for occupant in hosting.occupants:
            if occupant.profiled:
                runs, is_ = ("ran", "was") if ended else ("runs", "is")
                yield (
                    f"  {occupant.task} {runs} alone while its standalone throughput {is_} measured"
                )
    if len(listed) > _MOST_HOSTINGS:
        yield f"... and {len(listed) - _MOST_HOSTINGS:,} more; --json has them all"


def _occupants(messages: Iterable[Occupant]) -> Grid:
    numbers = ("BY ITSELF", "THROUGHPUT", "WORTH", "SHARE")
    table = Grid("TASK", *numbers, right=numbers, indent=2)
    for message in messages:
        table.add_row(
            message.task,
            price(message.reservation_micro_usd_per_hour),
            f"{100 * message.throughput_ppm / MILLION:.3g}%",
            _hourly(message.value_micro_usd_per_hour),
            price(message.share_micro_usd_per_hour),
        )
    return table


def exchanges(messages: Iterable[Exchange]) -> Iterator[str]:
    """Each exchange: its moves, savings and costs, and when it pays off."""
    for message in messages:
        moves = ", ".join(
            f"{move.task} from {move.source} to {move.target or 'a new instance'}"
            for move in message.moves[:_MOST_MOVES]
        )
        rest = len(message.moves) - _MOST_MOVES
        more = f" and {rest} more" if rest > 0 else ""
        saved, cost = message.saved_micro_usd_per_hour, message.cost_micro_usd
        pays = "does not pay for itself alone"
        if message.HasField("break_even_ms"):
            pays = f"pays for itself after {span(message.break_even_ms)}"
        gain = f"saves {_hourly(saved)}" if saved >= 0 else f"adds {_hourly(-saved)}"
        yield f"{moves}{more}: {gain}, costs {money(cost)} once, {pays}"


def _fleet(message: FleetOutlook) -> Iterator[RenderableType]:
    """How soon a fleet can be done, and is expected to be, and what its types are worth."""
    bound = message.bound_ms
    yield f"nobody could be done with everything in less than {span(bound)} from then on"
    if message.HasField("expected_ms"):
        late = message.expected_ms - bound
        gap = f"{100 * late / bound:.1f}% more" if bound and late > 0 else "no later"
        yield f"if nothing else arrives it is expected to take {span(message.expected_ms)}, {gap}"
    if not message.types:
        return
    numbers = ("MACHINES", "GPUS", "WORTH", "OF EACH")
    table = Grid("TYPE", *numbers, right=numbers, indent=2)
    each = dict(_each(message))
    for type_ in message.types:
        table.add_row(
            plain(type_.type),
            f"{type_.machines:,}",
            f"{type_.gpus:,}",
            f"{100 * type_.worth_ppm / MILLION:.3g}%",
            f"{each[type_.type]:.3g}" if type_.type in each else "-",
        )
    yield table


def _each(message: FleetOutlook) -> Iterator[tuple[str, float]]:
    """The worth of a GPU of each type relative to the most precious; of a machine without any."""
    kinds = [kind for kind in message.types if kind.machines]
    worths = [(kind.type, kind.worth_ppm / (kind.gpus or kind.machines)) for kind in kinds]
    most = max((worth for _, worth in worths), default=0.0)
    for name, worth in worths:
        if most:
            yield name, worth / most


def _worths(message: FleetOutlook) -> str:
    """Worths in a line, the most precious first."""
    each = sorted(_each(message), key=lambda it: (-it[1], it[0]))
    if not each:
        return ""
    words = ", ".join(f"{plain(name)} {worth:.3g}" for name, worth in each[:_MOST_TYPES])
    more = len(each) - _MOST_TYPES
    return f"worth of a GPU by type: {words}" + (f" and {more} more types" if more > 0 else "")


def _instance(message: Instance) -> Iterator[str]:
    if message.pool and message.state in ("terminating", "gone"):
        stood = f"{message.id} stood in the pool {plain(message.pool)} and is {message.state}"
        yield f"{stood}: {plain(message.reason)}"
    elif message.draining:
        ends = "its tasks move elsewhere" if message.drain_moves else "its tasks finish there"
        yield f"{message.id} takes no new task, {ends}: {plain(message.draining)}"
    else:
        yield f"{message.id} stands in the pool {plain(message.pool)}: {plain(message.reason)}"


def _pool(message: StandingPool) -> str:
    """Why instances stay though they are empty."""
    shown = ", ".join(message.instances[:_MOST_JOBS])
    rest = len(message.instances) - _MOST_JOBS
    more = f" and {rest:,} more" if rest > 0 else ""
    return f"pool {plain(message.name)} ({shown}{more}): {plain(message.reason)}"


def _dag(message: DagOutlook) -> str:
    """The estimate of a DAG, in a sentence."""
    words = f"  it is a stage of the DAG {plain(message.label)}, of which {message.ended} of "
    words += count(message.stages, "stage") + f" {_have(message.ended)} ended"
    if message.waiting:
        words += f" and {message.waiting} {'waits' if message.waiting == 1 else 'wait'} for others"
    if not message.HasField("left_ms"):
        return f"{words}: nothing is known of how much work is left"
    words += f": {span(message.left_ms)} of work left by estimate"
    if message.earlier:
        return f"{words}, from {count(message.earlier, 'earlier DAG')} of this label"
    return f"{words}, each stage by itself"


def _have(number: int) -> str:
    return "has" if number == 1 else "have"


def _evidence(message: RunTimeEvidence) -> Iterator[str]:
    """Each source's own estimate of a run time."""
    if message.pilots:
        words = f"{count(message.pilots, 'finished task')} took {span(message.pilots_ms)}"
        yield f"    {words}{' each' if message.pilots > 1 else ''}"
    if message.feature:
        common = of_feature(message.feature, message.value)
        share = give_or_take(message.spread)
        apart = f"give or take {share}" if share else "but differ too much for an estimate"
        yield (
            f"    {count(message.jobs, 'earlier job')} {plain(common)} took "
            f"{span(message.jobs_ms)} a task, {apart}"
        )


def _lines(message: Explanation) -> Iterator[str]:
    for line in message.lines:
        yield _line(line)
        if line.reason or line.note:
            yield f"    {plain(': '.join(filter(None, (line.reason, line.note))))}"
        yield _ahead(line, message.now_ms)
    if message.more_lines:
        yield f"  and in {count(message.more_lines, 'more line')}"


def _line(message: LinePlace) -> str:
    """Where the waiting tasks of a job stand in line, and what they wait for."""
    parts = [f"rank {message.rank}"]
    if message.before:
        others = f"{plain(message.first)} and {message.before - 1:,} more stand"
        parts.append(f"{others if message.before > 1 else plain(message.first) + ' stands'} before")
    else:
        parts.append("no job stands before")
    if message.HasField("at_most"):
        parts.append(f"at most {count(message.at_most, 'task')} of it")
    if message.only:
        more = f" and {message.more_only:,} more" if message.more_only else ""
        parts.append(f"on {plain(', '.join(message.only))}{more} alone")
    pools = f"pool{'' if len(message.pools) == 1 else 's'} {plain(', '.join(message.pools))}"
    return f"  in line for room that becomes free in {pools}: {'; '.join(parts)}"


def _ahead(message: LinePlace, now_ms: int) -> str:
    """When the next task of a job starts at the latest, and the work that goes before it."""
    before = count(message.tasks_before, "waiting task") if message.tasks_before else "nobody"
    words = f"{before} before it"
    if not message.HasField("latest_start_ms"):
        work = f", {span(message.work_ms)} of estimated work" if message.work_ms else ""
        reason = plain(message.no_bound)
        return f"    no bound on when its next task starts: {reason}; {words}{work}"
    unless = ", unless others go first" if message.others_first else ""
    return (
        f"    its next task starts in {span(message.latest_start_ms - now_ms)} at the latest"
        f"{unless}: {words}, {span(message.work_ms)} of estimated work with what runs, on "
        f"{count(message.slots, 'slot')} that no cloud takes back"
    )


def _job(explanation: Explanation) -> Iterator[str]:
    message, now_ms = explanation.job, explanation.now_ms
    yield f"{message.id} {is_in(message.state)}" + (
        f": {plain(message.reason)}" if message.reason else ""
    )
    for label, line in run_time(message):
        yield f"  {label}: {plain(line)}"
    if explanation.HasField("evidence"):
        yield from _evidence(explanation.evidence)
    if explanation.HasField("dag"):
        yield _dag(explanation.dag)
    if message.partition:
        yield f"  it runs in partition {plain(message.partition)}"
    if message.HasField("suspension"):
        yield f"  {_suspended(message.suspension, message.id, now_ms)}"
    if message.waits_for:
        others = count(len(message.waits_for), "job")
        yield f"  no plan is about it yet: it waits for {others} to succeed"
        for name in message.waits_for[:_MOST_JOBS]:
            yield f"    {plain(name)}"
        if len(message.waits_for) > _MOST_JOBS:
            yield f"    ... and {len(message.waits_for) - _MOST_JOBS:,} more; --json has them all"
        return
    yield from _tasks(message, explanation.hostings, now_ms)


def _tasks(message: Job, hosted: Iterable[Hosting], now_ms: int) -> Iterator[str]:
    """Reasons of waiting tasks, and how tasks without a kept reason came to their places."""
    hosted_tasks = {occupant.task for hosting in hosted for occupant in hosting.occupants}
    alike: dict[str, list[str]] = {}
    for task in message.tasks:
        name = f"{message.id}/{number(task)}"
        if task.HasField("suspension") and not message.HasField("suspension"):
            words = _suspended(task.suspension, message.id, now_ms)
            alike.setdefault(f"was {words}", []).append(name)
        if message.HasField("suspension") and task.waiting_for == message.suspension.reason:
            continue
        if words := _task(task, known=name in hosted_tasks):
            alike.setdefault(words, []).append(name)
    for words, names in alike.items():
        others = f", and {count(len(names) - 1, 'other')} alike," if len(names) > 1 else ""
        yield f"  {names[0]}{others} {words}"


def _task(task: Task, *, known: bool) -> str:
    """Words after a task's name; `known` if reasons of its place are told elsewhere."""
    if task.replica:
        place = f" on {task.instance}" if task.instance else ""
        words = f"is an extra run and {is_in(task.state)}{place}"
        return f"{words}: {plain(task.why)}" if task.why else words
    if task.why:
        return f"{is_in(task.state)}: {plain(task.why)}"
    if task.waiting_for.startswith("rests: "):
        return plain(task.waiting_for)
    if task.state == "waiting" and not task.target:
        why = plain(task.waiting_for)
        return f"waits: {why}" if why else "waits for the next round"
    if task.pool and task.instance:
        return (
            f"is on {task.instance}: it stood in line for room in "
            f"the pool {plain(task.pool)}, and was next when there was some"
        )
    return f"is on {task.instance}: no reasons are kept" if not known and task.instance else ""


def _suspended(message: Suspension, job: str, now_ms: int) -> str:
    """The suspending party, the reason, the time, and the way to resume."""
    goes_on = {
        "cost": f"it waits until its owner says `eva resume {job} --max-cost AMOUNT`",
        "month": "it goes on by itself then, or once an operator raises the limit",
        "user": f"it waits until somebody says `eva resume {job}`",
        "policy": "it goes on by itself when the policy gives it a place again",
        "priority": "it goes on by itself once there is room for both",
    }
    words = f"{plain(message.reason)}, {ago(message.since_ms, now_ms)}"
    return f"{words}; {goes_on[message.by]}" if message.by in goes_on else words


def _weighing(message: Weighing) -> Iterator[RenderableType]:
    kinds = _KINDS.get(message.chosen, plain(message.chosen))
    if message.events_per_hour:
        yield (
            f"chosen: {kinds}; it is expected to last {span(message.horizon_ms)}, at "
            f"{message.events_per_hour:.3g} arrivals and ends of jobs an hour, of which "
            f"{100 * message.full_share:.3g}% led to a full reconfiguration"
        )
    else:
        yield f"chosen: {kinds}; moves and launches are to pay within {span(message.horizon_ms)}"
    yield _alternatives(message)
    bound = "a lower bound is not known"
    if message.HasField("lower_bound_micro_usd_per_hour"):
        bound = f"no plan can cost less than {price(message.lower_bound_micro_usd_per_hour)}"
    yield (f"the plan costs {price(message.cost_micro_usd_per_hour)}, slowdowns included; {bound}")
    yield (
        f"{count(message.tasks, 'task')} of {count(message.classes, 'kind')} on "
        f"{count(message.instances, 'instance')}; optimizer {plain(message.optimizer)}, "
        f"{count(message.columns, 'column')}"
    )


def _alternatives(message: Weighing) -> Grid:
    numbers = ("SAVES", "MOVING COSTS", "TASKS MOVED", "NET")
    table = Grid("PLAN", *numbers, right=numbers, indent=2)
    for alternative in message.alternatives:
        net = _net_micro_usd(alternative, message.horizon_ms)
        table.add_row(
            _KINDS.get(alternative.kind, plain(alternative.kind)),
            _hourly(alternative.savings_micro_usd_per_hour),
            money(alternative.migration_micro_usd),
            str(alternative.moves),
            money(net),
        )
    return table


def _net_micro_usd(one: Alternative, horizon_ms: int) -> int:
    saved = one.savings_micro_usd_per_hour * horizon_ms // MILLIS_PER_HOUR
    return saved - one.migration_micro_usd


def _hourly(micro_usd: int) -> str:
    """A price per hour that may be negative."""
    return f"-{price(-micro_usd)}" if micro_usd < 0 else price(micro_usd)


def shape(message: Explanation) -> dict[str, Any]:
    """The output of ``--json`` for an explanation."""
    return {
        "kind": message.kind,
        "subject": message.subject,
        "now_ms": message.now_ms,
        "round": message.round or None,
        "at_ms": message.at_ms or None,
        "partition": message.partition or None,
        "job": shapes.job(message.job) if message.HasField("job") else None,
        "instance": shapes.instance(message.instance) if message.HasField("instance") else None,
        "instances": [hosting_shape(hosting) for hosting in message.hostings],
        "moved_in_round": message.moved_in_round or None,
        "moved_ms": message.moved_ms or None,
        "exchanges": [exchange_shape(exchange) for exchange in message.exchanges],
        "latency": message.latency or None,
        "notes": list(message.notes),
        **({"forks": list(message.forks)} if message.forks else {}),
        **({"market": list(message.market)} if message.market else {}),
        "evidence": _evidence_shape(message.evidence) if message.HasField("evidence") else None,
        "dag": _dag_shape(message.dag) if message.HasField("dag") else None,
        "borrowing": lending.borrowing_shape(message.borrowing)
        if message.HasField("borrowing")
        else None,
        "fleet": _fleet_shape(message.fleet) if message.HasField("fleet") else None,
        "lines": [_line_shape(line) for line in message.lines],
        "more_lines": message.more_lines,
        "pools": [
            {"name": pool.name, "reason": pool.reason, "instances": list(pool.instances)}
            for pool in message.pools
        ],
        "weighing": _weighing_shape(message.weighing) if message.HasField("weighing") else None,
    }


def _fleet_shape(message: FleetOutlook) -> dict[str, Any]:
    expected = message.expected_ms if message.HasField("expected_ms") else None
    bound, each = message.bound_ms, dict(_each(message))
    return {
        "round": message.round,
        "at_ms": message.at_ms,
        "bound_ms": bound,
        "expected_ms": expected,
        "gap": None if expected is None or not bound else expected / bound - 1,
        "types": [
            {
                "type": type_.type,
                "worth": type_.worth_ppm / MILLION,
                "worth_each": each.get(type_.type),
                "machines": type_.machines,
                "gpus": type_.gpus,
            }
            for type_ in message.types
        ],
    }


def _dag_shape(message: DagOutlook) -> dict[str, Any]:
    return {
        "label": message.label,
        "stages": message.stages,
        "ended": message.ended,
        "waiting": message.waiting,
        "left_ms": message.left_ms if message.HasField("left_ms") else None,
        "earlier": message.earlier,
    }


def _evidence_shape(message: RunTimeEvidence) -> dict[str, Any]:
    return {
        "pilots": message.pilots,
        "pilots_ms": message.pilots_ms or None,
        "feature": message.feature or None,
        "value": message.value or None,
        "jobs": message.jobs,
        "jobs_ms": message.jobs_ms or None,
        "log_deviation": message.spread or None,
    }


def _line_shape(message: LinePlace) -> dict[str, Any]:
    bounded = message.HasField("latest_start_ms")
    return {
        "pools": list(message.pools),
        "rank": message.rank,
        "jobs_before": message.before,
        "first_before": message.first or None,
        "at_most": message.at_most if message.HasField("at_most") else None,
        "only": list(message.only),
        "more_only": message.more_only,
        "tasks_before": message.tasks_before,
        "work_ms": message.work_ms if message.HasField("work_ms") else None,
        "slots": message.slots,
        "latest_start_ms": message.latest_start_ms if bounded else None,
        "no_bound": message.no_bound or None,
        "others_first": message.others_first,
        "reason": message.reason or None,
        "note": message.note or None,
    }


def hosting_shape(message: Hosting) -> dict[str, Any]:
    """An instance with its value, price and occupants."""
    return {
        "instance": message.instance or None,
        "type": message.type,
        **shapes.hourly("price", message.price_micro_usd_per_hour),
        **shapes.hourly("billed_price", instance_words.billed(message)),
        **shapes.hourly("value", message.value_micro_usd_per_hour),
        "tasks": [
            {
                "task": occupant.task,
                "normalised_throughput": occupant.throughput_ppm / MILLION,
                "profiled": occupant.profiled,
                **shapes.hourly("reservation_price", occupant.reservation_micro_usd_per_hour),
                **shapes.hourly("value", occupant.value_micro_usd_per_hour),
                **shapes.hourly("share", occupant.share_micro_usd_per_hour),
            }
            for occupant in message.occupants
        ],
    }


def exchange_shape(message: Exchange) -> dict[str, Any]:
    """An exchange, a set of moves that depend on each other."""
    return {
        "moves": [_move_shape(move) for move in message.moves],
        **shapes.hourly("saved", message.saved_micro_usd_per_hour),
        **shapes.money("cost", message.cost_micro_usd),
        "break_even_ms": message.break_even_ms if message.HasField("break_even_ms") else None,
    }


def _move_shape(message: Move) -> dict[str, Any]:
    return {
        "task": message.task,
        "source": message.source,
        "target": message.target or None,
        **shapes.money("cost", message.cost_micro_usd),
    }


def _weighing_shape(message: Weighing) -> dict[str, Any]:
    bound = None
    if message.HasField("lower_bound_micro_usd_per_hour"):
        bound = message.lower_bound_micro_usd_per_hour
    return {
        "chosen": message.chosen,
        "alternatives": [
            {
                "kind": alternative.kind,
                **shapes.hourly("savings", alternative.savings_micro_usd_per_hour),
                **shapes.money("migration_cost", alternative.migration_micro_usd),
                "moves": alternative.moves,
            }
            for alternative in message.alternatives
        ],
        "horizon_ms": message.horizon_ms,
        "events_per_hour": message.events_per_hour,
        "full_share": message.full_share,
        **shapes.hourly("cost", message.cost_micro_usd_per_hour),
        "lower_bound_usd_per_hour": None if bound is None else bound / MILLION,
        "lower_bound_micro_usd_per_hour": bound,
        "optimizer": message.optimizer,
        "columns": message.columns,
        "classes": message.classes,
        "tasks": message.tasks,
        "instances": message.instances,
    }
