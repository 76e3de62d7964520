"""What an operator may set about EC2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Ec2Settings:
    """How to use an account's EC2.

    Attributes:
        cluster: Names the cluster in the tags of its instances; two clusters in one account and
            region must differ, as each terminates what it does not know.
        region: Such as ``us-east-1``.
        image: The AMI that instances boot.
        subnets: Subnet by zone; a zone that is not there uses its default subnet.
        security_groups: Ids; none for the VPC's default group.
        instance_profile: Name of the IAM instance profile, empty for none.
        endpoint: URL of the API, empty for AWS's own.
        poll_s: From one look at the instances to the next when nothing is asked.
        settle_s: EC2's answers lag behind its actions; an instance that should be there and is
            not listed for so long is gone.
        connect_timeout_s: A connection that takes longer has failed.
        read_timeout_s: An answer that takes longer is lost.
        page_size: Instances per page of a listing, 5 to 1,000.
        threads: Launches under way at a time.
    """

    cluster: str
    region: str
    image: str
    subnets: Mapping[str, str] = field(default_factory=dict)
    security_groups: tuple[str, ...] = ()
    instance_profile: str = ""
    endpoint: str = ""
    poll_s: float = 5.0
    settle_s: float = 60.0
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    page_size: int = 1000
    threads: int = 8
