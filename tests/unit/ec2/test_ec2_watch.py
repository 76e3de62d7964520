"""What the EC2 adapter decides about one instance, case by case."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError, ReadTimeoutError

from eva_master.adapters.ec2.faults import ServerFault, translate, worth_repeating
from eva_master.adapters.ec2.sightings import Sighting, by_instance, sighting
from eva_master.adapters.ec2.watch import Call, Life
from eva_master.model.actions import LaunchInstance
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.events import InstanceGone, InstanceUp, LaunchFailed
from eva_master.model.resources import Resources
from eva_wire.values.errors import CapacityUnavailable, CloudDenied, CloudError, Throttled
from eva_wire.values.ids import Family, InstanceId, Millis, Price

ONE = InstanceId("i-1")
OFFERING = Offering(InstanceType("c7i.large", Family("c7i"), Resources(0, 2000, 4096)), Price(89))
LAUNCH = LaunchInstance(ONE, OFFERING, 1)
SETTLE_MS = 1000
RUNNING = Sighting(ONE, "i-0a", "running", Millis(5000), True, None)


def at(ms: int) -> Millis:
    return Millis(ms)


def asked() -> Life:
    """One whose launch is under way."""
    life = Life(ONE)
    life.launch(LAUNCH)
    assert life.look(None, at(0), SETTLE_MS) is Call.LAUNCH
    life.begin()
    return life


def test_one_launch_at_a_time() -> None:
    life = asked()
    life.launch(LAUNCH)
    assert life.look(None, at(1), SETTLE_MS) is None


def test_an_unsettled_launch_is_asked_for_again() -> None:
    life = asked()
    life.unclear(at(0))
    assert life.look(None, at(999), SETTLE_MS) is None
    assert life.look(None, at(1000), SETTLE_MS) is Call.LAUNCH
    life.begin()
    life.unclear(at(1000))
    assert life.look(None, at(2999), SETTLE_MS) is None
    assert life.look(None, at(3000), SETTLE_MS) is Call.LAUNCH


def test_a_launch_that_is_doomed_under_way_ends_once_it_is_seen() -> None:
    life = asked()
    life.terminate()
    assert life.look(None, at(1), SETTLE_MS) is None
    life.launched()
    assert life.look(None, at(2), SETTLE_MS) is None
    assert life.look(replace(RUNNING, state="pending"), at(3), SETTLE_MS) is Call.TERMINATE


@pytest.mark.parametrize("certain", [True, False])
def test_what_may_exist_is_not_called_gone_before_listings_have_settled(certain: bool) -> None:
    life = asked()
    life.terminate()
    if certain:
        life.launched()
    else:
        life.unclear(at(0))
    assert life.look(None, at(10), SETTLE_MS) is None
    assert life.look(None, at(1009), SETTLE_MS) is None
    assert life.look(None, at(1010), SETTLE_MS) == InstanceGone(ONE, None, at(10))


def test_a_launch_that_was_doomed_and_refused_is_gone() -> None:
    life = asked()
    life.terminate()
    assert life.refused(CapacityUnavailable("none"), at(1)) is None
    assert life.look(None, at(2), SETTLE_MS) == InstanceGone(ONE, None, at(2))


def test_what_turns_up_after_its_end_is_terminated() -> None:
    life = asked()
    assert isinstance(life.refused(CloudError("no"), at(1)), LaunchFailed)
    assert life.look(RUNNING, at(2), SETTLE_MS) is Call.TERMINATE
    assert life.look(replace(RUNNING, state="shutting-down"), at(2), SETTLE_MS) is None


def test_one_that_was_found_is_watched_in_silence() -> None:
    life = Life(ONE)
    assert life.look(RUNNING, at(1), SETTLE_MS) is None
    life.launch(LAUNCH)
    assert life.look(RUNNING, at(1), SETTLE_MS) == InstanceUp(ONE, at(5000))
    ended = replace(RUNNING, state="terminated", ended_ms=at(4000))
    gone = InstanceGone(ONE, at(5000), at(5000))
    assert life.look(ended, at(9000), SETTLE_MS) == gone
    assert life.look(ended, at(9001), SETTLE_MS) is None
    life.launch(LAUNCH)
    assert life.look(None, at(9002), SETTLE_MS) == gone


@pytest.mark.parametrize(
    ("code", "message", "told", "reclaimed"),
    [
        (
            "Client.VolumeLimitExceeded",
            "Client.VolumeLimitExceeded: Volume limit exceeded",
            "quota of the AWS account exceeded: Client.VolumeLimitExceeded: Volume limit exceeded "
            "(ask AWS for a higher quota (Service Quotas, EC2))",
            False,
        ),
        (
            "Server.InsufficientInstanceCapacity",
            "Server.InsufficientInstanceCapacity: none",
            "no capacity: Server.InsufficientInstanceCapacity: none",
            False,
        ),
        (
            "Client.InternalError",
            "Client.InternalError: Client error on launch",
            "EC2 could not start it: Client.InternalError: Client error on launch (often the "
            "master may not use the KMS key of its root volume)",
            False,
        ),
        ("Server.SpotInstanceTermination", "taken", "taken", True),
        ("Client.Something", "", "Client.Something", False),
        ("", "", "", False),
    ],
)
def test_why_an_instance_ended_is_told_in_the_words_of_refusals(
    code: str, message: str, told: str, reclaimed: bool
) -> None:
    described = {
        "InstanceId": "i-0a",
        "Tags": [{"Key": "eva:instance", "Value": ONE}],
        "State": {"Name": "terminated"},
        "LaunchTime": datetime.fromtimestamp(5, UTC),
        "StateReason": {"Code": code, "Message": message} if code else {},
    }
    seen = sighting(described)
    assert seen is not None
    life = Life(ONE)
    gone = life.look(seen, at(9000), SETTLE_MS)
    assert gone == InstanceGone(ONE, None, at(9000), told, reclaimed=reclaimed)


def test_a_running_instance_missing_from_one_listing_lives_on() -> None:
    life = Life(ONE)
    life.look(RUNNING, at(0), SETTLE_MS)
    assert life.look(None, at(1), SETTLE_MS) is None
    assert life.look(RUNNING, at(2), SETTLE_MS) is None
    assert life.look(None, at(1500), SETTLE_MS) is None


def described(**changed: Any) -> dict[str, Any]:
    return {
        "InstanceId": "i-0a",
        "State": {"Name": "terminated"},
        "LaunchTime": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "Tags": [
            {"Key": "eva:instance", "Value": "i-1"},
            {"Key": "eva:up", "Value": "1767323045000"},
        ],
        **changed,
    }


@pytest.mark.parametrize(
    ("reason", "ended_ms"),
    [
        ("User initiated (2026-01-02 03:05:05 GMT)", 1767323105000),
        ("Server.SpotInstanceTermination: Spot instance termination", None),
        ("", None),
    ],
)
def test_the_end_is_read_off_the_reason(reason: str, ended_ms: int | None) -> None:
    seen = sighting(described(StateTransitionReason=reason))
    assert seen is not None
    assert (seen.launched_ms, seen.up_ms, seen.ended_ms) == (1767323045000, 1767323045000, ended_ms)


def test_an_instance_without_a_name_of_ours_is_nobody() -> None:
    assert sighting(described(Tags=[])) is None


def test_of_two_of_one_name_the_oldest_that_exists_counts() -> None:
    dead = replace(RUNNING, ec2_id="i-0", state="terminated", launched_ms=at(1))
    later = replace(RUNNING, ec2_id="i-0b", launched_ms=at(6000))
    assert by_instance([later, dead, RUNNING]) == ({ONE: RUNNING}, [later])


def refusal(code: str, status: int) -> CloudError:
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return translate(ClientError(answer, "RunInstances"))


def test_the_code_of_an_error_counts_before_its_status() -> None:
    assert type(refusal("InsufficientInstanceCapacity", 500)) is CapacityUnavailable
    assert type(refusal("RequestLimitExceeded", 503)) is Throttled
    assert type(refusal("InternalError", 500)) is ServerFault
    assert type(refusal("InvalidParameterValue", 400)) is CloudError


def test_only_what_may_fare_better_is_repeated() -> None:
    assert worth_repeating(refusal("RequestLimitExceeded", 503))
    assert worth_repeating(translate(ReadTimeoutError(endpoint_url="http://ec2")))
    assert not worth_repeating(refusal("InsufficientInstanceCapacity", 500))
    denied = translate(NoCredentialsError())
    assert isinstance(denied, CloudDenied)
    assert not worth_repeating(denied)


def test_what_ended_long_ago_is_forgotten_unless_somebody_asks() -> None:
    life = asked()
    life.launched()
    assert not life.forgettable(at(10**9)), "it exists"
    ended = replace(RUNNING, state="terminated", ended_ms=at(9000))
    assert isinstance(life.look(ended, at(9000), SETTLE_MS), InstanceGone)
    assert not life.forgettable(at(9000 + 7_200_000))
    assert life.forgettable(at(9001 + 7_200_000))
    life.terminate()
    assert not life.forgettable(at(9001 + 7_200_000))
    failed = asked()
    failed.refused(CloudError("no"), at(5000))
    assert failed.forgettable(at(5001 + 7_200_000))
