"""A thousand instances."""

from __future__ import annotations

from eva_master.model.actions import SyncCloud
from eva_master.model.events import CloudListed
from tests.fakes.ec2_account import Account

INSTANCES = 1_000
MOST_CALLS = 20


def test_a_thousand_instances_take_few_calls(account: Account) -> None:
    """A master that starts sees them all, records that they are up, and lists them."""
    account.populate(INSTANCES)
    cloud, inbox = account.master(page_size=1_000)
    cloud.execute(SyncCloud())
    assert len(inbox.expect(CloudListed).instances) == INSTANCES
    reading, writing = account.calls("DescribeInstances"), account.calls("CreateTags")
    assert len(reading) + len(writing) <= MOST_CALLS
    cloud.terminate_all()
    assert account.existing() == []
    assert len(account.calls("TerminateInstances")) <= MOST_CALLS
