"""Pages and `eva cost` show equal costs, to the micro-dollar, at any moment of drawn worlds."""

from __future__ import annotations

import asyncio
import csv
import html
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from eva_client.cli import main
from eva_client.cli.views.words import money
from eva_master.model.changes import Changes
from eva_master.ports.reading import ReadModel
from eva_wire.values.ids import Millis
from eva_wire.values.users import Role
from tests.drawing import drawn
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.pages import Browser, PageMaster, page_master
from tests.property.forks import test_forked_chaos as forked
from tests.worlds.drawing import draw
from tests.worlds.life import Life
from tests.worlds.records import HOUR_MS
from tests.worlds.running import begin
from tests.worlds.world import Order, World

OF_JOBS = ("job", "owner", "tenant", "workload", "label:team")
DIVISIONS = (*OF_JOBS, "partition", "type", "day", "part")
NAMELESS = re.compile(r"\((others|earlier|no team)\)")
TEAMS = ("vision", "speech.eu-1", "1e5")
ROW = re.compile(
    r'<tr[^>]*><th scope="row"[^>]*>(?P<name>.*?) ?<span class="sub">.*?</th>'
    r'.*?data-micro-usd="(?P<exact>-?\d+)">(?P<shown>[^<]*)</td>',
    re.DOTALL,
)
FOOT = re.compile(r'<tfoot>.*?data-micro-usd="(-?\d+)"><b>([^<]*)</b>', re.DOTALL)
_TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True)
class Still:
    """A clock that stands still."""

    at: Millis

    def now(self) -> Millis:
        return self.at


@dataclass(frozen=True)
class Division:
    """Parts of the bill by their names, that of the rest empty, in micro-dollars."""

    parts: Mapping[str, int]
    idle: int
    bill: int


def on_page(text: str, by: str) -> Division:
    """The numbers of the page Money, which shows each of them as dollars as well."""
    parts: dict[str, int] = {}
    idle = 0
    for row in ROW.finditer(text):
        name = html.unescape(_TAG.sub("", row["name"])).strip()
        exact = int(row["exact"])
        assert row["shown"] == money(exact)
        if name == "idle: room that no task used":
            assert by in OF_JOBS
            idle = exact
        else:
            assert name not in parts
            assert name != "the rest, not listed here"
            parts["" if NAMELESS.fullmatch(name) else name] = exact
    foot = FOOT.search(text)
    if foot is None:
        assert "Nothing was charged yet" in text
        return Division({}, 0, 0)
    assert foot[2] == money(int(foot[1]))
    return Division(parts, idle, int(foot[1]))


def in_json(text: str, by: str) -> Division:
    """The numbers of ``eva cost --by ... --json``."""
    answer = json.loads(text)
    kind = by.partition(":")[0]
    parts = {entry["name"] or "": entry["cost_micro_usd"] for entry in answer[f"{kind}s"]}
    idle = answer["idle_micro_usd"] if by in OF_JOBS else 0
    return Division(parts, idle, answer["cost_micro_usd"])


def in_csv(text: str, by: str) -> Division:
    """The numbers of ``eva cost --by ... --csv``, whose column adds up to the bill."""
    _, *rows = csv.reader(io.StringIO(text))
    amounts = {name: micro_usd(cost) for name, cost, *_ in rows}
    assert len(amounts) == len(rows)
    bill = sum(amounts.values())
    idle = amounts.pop("(idle)") if by in OF_JOBS else 0
    parts = {"" if NAMELESS.fullmatch(name) else name: cost for name, cost in amounts.items()}
    return Division(parts, idle, bill)


def micro_usd(dollars: str) -> int:
    exact = Fraction(dollars) * 1_000_000
    assert exact.denominator == 1
    return int(exact)


@dataclass(frozen=True)
class Readers:
    """A browser and the command, of two users."""

    browser: Browser
    environment: Mapping[str, str]

    async def eva(self, *arguments: str) -> str:
        runner = CliRunner(env=dict(self.environment))
        result = await asyncio.to_thread(runner.invoke, main, ["cost", *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    async def page(self, by: str) -> str:
        kind, _, label = by.partition(":")
        answer = await self.browser.get(f"/money?by={kind}&label={label}")
        assert answer.status == 200, answer.text
        return answer.text


async def readers_of(pages: PageMaster, directory: Path) -> Readers:
    """A viewer with a browser, and one with the command."""
    environment = {
        "EVA_ADDRESS": f"127.0.0.1:{pages.master.ports.users}",
        "EVA_CA_FILE": str(authority().ca_file),
        "EVA_TOKEN": pages.master.tokens.create("vera", Role.VIEWER)[1],
        "XDG_CONFIG_HOME": str(directory),
    }
    return Readers(await pages.logged_in("walt", Role.VIEWER), environment)


async def compare(model: ReadModel, now: Millis) -> int:
    """Compare all divisions of a bill on the page and by the command; returns the bill."""
    bills = set()
    with TemporaryDirectory(prefix="eva-costs-") as name:
        directory = Path(name)
        async with page_master(directory, costs_clock=Still(now)) as pages:
            pages.master.loop.gateway.publish(Changes(), lambda: model)
            readers = await readers_of(pages, directory)
            for by in DIVISIONS:
                shown = on_page(await readers.page(by), by)
                told = in_json(await readers.eva("--by", by, "--json"), by)
                table = in_csv(await readers.eva("--by", by, "--csv"), by)
                if not told.bill:
                    assert not shown.parts
                    continue
                # Names without costs are in some documents, and in no spreadsheet's way.
                assert charged(shown) == charged(told) == charged(table), by
                for division in (shown, told, table):
                    assert sum(division.parts.values()) + division.idle == division.bill, by
                    bills.add(division.bill)
    assert len(bills) <= 1
    return bills.pop() if bills else 0


def charged(division: Division) -> tuple[dict[str, int], int]:
    parts = {name: cost for name, cost in division.parts.items() if cost}
    return parts, division.idle


def labelled(world: World, seed: int, *, restart: bool) -> World:
    """The world with teams, jobs that are cancelled, and a master that may die meanwhile."""
    rng = Random(f"{seed}/teams")
    jobs = tuple(
        replace(job, keys={**job.keys, "labels": {"team": rng.choice(TEAMS)}})
        if rng.random() < 0.7
        else job
        for job in world.jobs
    )
    last = max(job.at_s for job in jobs)
    orders = [Order(rng.uniform(0, 2 * last), "cancel", rng.choice(jobs).name)]
    if restart:
        orders.append(Order(rng.uniform(0, 2 * last), "restart"))
    listed = sorted((*world.orders, *orders), key=lambda order: order.at_s)
    return replace(world, jobs=jobs, orders=tuple(listed))


def paid(life: Life) -> Fraction:
    """Micro-dollars that the cloud asks for machines that are gone; own nodes cost nothing."""
    least_ms = life._world.minimum_s * 1000
    return sum(
        (
            Fraction(
                machine.offering.price * max(least_ms, machine.gone_ms - machine.up_ms), HOUR_MS
            )
            for machine in life.cloud.bill().values()
            if machine.gone_ms is not None and machine.up_ms is not None
        ),
        Fraction(0),
    )


flavours = st.sampled_from(["mixed", "mixed", "nodes", "spot", "tenants", "partitions", "rests"])


@drawn(8)
@given(
    seed=st.integers(0, 10_000),
    flavour=flavours,
    policy=st.sampled_from(["eva", "eva", "astraea", "no_packing"]),
    until_s=st.none() | st.integers(60, 900),
    restart=st.booleans(),
)
# Instances are live, and costs run, in these.
@example(seed=248, flavour="partitions", policy="no_packing", until_s=240, restart=True)
@example(seed=21, flavour="spot", policy="eva", until_s=526, restart=True)
@example(seed=5, flavour="tenants", policy="astraea", until_s=500, restart=False)
def test_pages_and_the_command_agree_in_worlds(
    seed: int, flavour: str, policy: str, until_s: int | None, restart: bool
) -> None:
    life = begin(labelled(draw(seed, flavour), seed, restart=restart), policy)
    life.lived(None if until_s is None else until_s * 1000)
    now = Millis(life.timeline.now() + 1_234)
    bill = asyncio.run(compare(life.machine.published(), now))
    if not life.cloud.existing() and not life.state.live:
        assert abs(bill - paid(life)) <= Fraction(1, 2)


@drawn(4)
@given(forked.stories, st.integers(60_000, 2 * forked.CHAOS_MS))
def test_pages_and_the_command_agree_about_forks(story: forked.Story, until_ms: int) -> None:
    world = forked._world(story)
    while world.timeline.now() < until_ms:
        world.step()
    now = Millis(world.timeline.now() + 1_234)
    asyncio.run(compare(world.machine.published(), now))
