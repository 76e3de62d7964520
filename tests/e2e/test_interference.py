"""Jobs that compete are parted by what was measured of them, and the dollars of it are told."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, until
from tests.e2e.conftest import Clusters

MIB = 1024 * 1024
# One for two costs less than two for one each, as long as neither loses much.
LARGE = {"cpus": 4, "memory": "8GiB", "price": "$0.20/h"}
SMALL = {"cpus": 2, "memory": "4GiB", "price": "$0.11/h"}
SOON = {"acquisition": "1s", "setup": "2s"}
RATE = 6
"""Steps a second that a reader states; alone the link allows eight of a mebibyte."""


def explained(cluster: Cluster, subject: str) -> tuple[dict[str, Any], str]:
    """What `eva explain` says, for programs and for people."""
    for_programs = cluster.eva("explain", subject, "--json")
    for_people = cluster.eva("explain", subject, COLUMNS="200")
    assert for_programs.returncode == for_people.returncode == 0, (for_programs, for_people)
    return json.loads(for_programs.stdout), for_people.stdout


def hosting(explanation: dict[str, Any], job: str) -> dict[str, Any]:
    """The instance that a job's task is on."""
    (found,) = (
        one
        for one in explanation["instances"]
        if f"{job}/0" in {occupant["task"] for occupant in one["tasks"]}
    )
    return dict(found)


def only(family: str) -> dict[str, Any]:
    """A task of half a large instance of one family."""
    return {
        "resources": None,
        "resources_by_family": {family: {"cpus": 2, "memory": "3GiB"}},
    }


def dollars(text: str) -> float:
    return float(text.replace("$", ""))


@pytest.mark.long
@pytest.mark.waits
def test_readers_are_parted_and_counters_are_not_and_the_dollars_are_told(
    make_cluster: Clusters,
) -> None:
    cluster = make_cluster(
        settings={
            "round_period": "5s",
            "local": {"launch_delay": "100ms", "data_rate_mib": 8},
        },
        catalog={
            # The two pairs cannot mix, so that each has nobody but itself to blame.
            "types": {
                f"{family}.{name}": size | SOON
                for family in ("e2r", "e2c")
                for name, size in (("large", LARGE), ("small", SMALL))
            },
            "only": ["e2r", "e2c"],
        },
    )
    usual = {"delays": {"checkpoint": "1s", "launch": "1s"}}
    read = {"envs": {"READ_BYTES": str(MIB)}, "throughput": RATE, "workload": "reader"}
    # Two steps a second is a tenth of what they make: they are never slow.
    count = {"throughput": 2, "workload": "counter"}
    readers = [cluster.submit(name, **read, **usual, **only("e2r")) for name in ("one", "two")]
    counters = [cluster.submit(name, **count, **usual, **only("e2c")) for name in ("ten", "eleven")]
    cluster.until_running(*readers, *counters)
    (crowded,) = {cluster.task(job).instance for job in readers}
    (calm,) = {cluster.task(job).instance for job in counters}

    until(lambda: any(cluster.task(job).attempt == 2 for job in readers), "a reader moves")
    cluster.until_running(*readers)
    until(lambda: len({cluster.task(job).instance for job in readers}) == 2, "they are apart")
    for job in readers:
        until(lambda job=job: cluster.task(job).normalised > 0.9, f"{job} is fast alone")
    for job in counters:
        until(lambda job=job: cluster.task(job).normalised > 0.9, f"{job} is fast in company")

    assert {cluster.task(job).instance for job in counters} == {calm}
    assert all(cluster.task(job).moves == 0 for job in counters)
    moved = next(job for job in readers if cluster.task(job).moves)
    check_move(cluster, moved, crowded)
    check_company(cluster, counters, calm)
    cluster.finish(*readers, *counters)
    cluster.until_ended(*readers, *counters)


def check_move(cluster: Cluster, job: str, source: str) -> None:
    """Why a reader left: what it and its mate lost beside each other was more than was saved."""
    learned = json.loads(cluster.eva("interference", "--json").stdout)["interference"]
    (pair,) = (one for one in learned if one["workload"] == "reader")
    slow = pair["normalised_throughput"]
    # The pair is worth less than it costs.
    assert pair["beside"] == ["reader"]
    assert 2 * slow * 0.11 < 0.20

    story, text = explained(cluster, job)
    assert story["moved_in_round"]
    (change,) = (
        one for one in story["exchanges"] if f"{job}/0" in {move["task"] for move in one["moves"]}
    )
    (move,) = (it for it in change["moves"] if it["task"] == f"{job}/0")
    assert move["source"] == source
    assert change["saved_usd_per_hour"] > 0
    assert change["cost_usd"] > 0
    hours = change["cost_usd"] / change["saved_usd_per_hour"]
    assert change["break_even_ms"] == pytest.approx(hours * 3_600_000, abs=1000)
    alone = hosting(story, job)
    assert alone["value_usd_per_hour"] == pytest.approx(0.11)
    assert alone["tasks"][0]["normalised_throughput"] == 1.0

    told = re.search(
        rf"moved by round {story['moved_in_round']}, [^\n]* ago:\n"
        rf"[^\n]*{job}/0 from {source} to [^:\n]+: "
        r"saves (\S+)/h, costs (\S+) once, pays for itself after ",
        text,
    )
    assert told, text
    assert dollars(told[1]) == pytest.approx(change["saved_usd_per_hour"], rel=0.01)
    assert dollars(told[2]) == pytest.approx(change["cost_usd"], rel=0.01)

    weighed, text = explained(cluster, str(story["moved_in_round"]))
    options = {one["kind"]: one for one in weighed["weighing"]["alternatives"]}
    chosen, keep = options[weighed["weighing"]["chosen"]], options["keep"]
    assert chosen["moves"] > 0
    assert chosen["savings_usd_per_hour"] > keep["savings_usd_per_hour"]
    assert weighed["weighing"]["chosen"] != "keep"
    assert "keep what runs" in text


def check_company(cluster: Cluster, jobs: list[str], place: str) -> None:
    """Why the counters stay: together they are worth more than their instance costs."""
    (job, mate) = jobs
    story, text = explained(cluster, job)
    shared = hosting(story, job)
    assert shared["instance"] == place
    assert {one["task"] for one in shared["tasks"]} == {f"{job}/0", f"{mate}/0"}
    assert story["exchanges"] == []
    assert shared["price_usd_per_hour"] == pytest.approx(0.20)
    # What was measured and no longer what is assumed of strangers.
    until(
        lambda: hosting(explained(cluster, job)[0], job)["value_usd_per_hour"] >= 0.219,
        "a round reckons with what was measured",
    )
    text = explained(cluster, job)[1]
    worth = re.search(rf"{place} \(e2c.large\): worth (\S+)/h, costs (\S+)/h; saves (\S+)/h", text)
    assert worth, text
    value, price, saved = (dollars(one) for one in worth.groups())
    assert (value, price) == (pytest.approx(0.22), pytest.approx(0.20))
    assert saved == pytest.approx(value - price)
