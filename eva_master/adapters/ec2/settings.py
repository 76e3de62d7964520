"""The operator's settings for EC2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MOST_VOLUME_GIB = 16_384
"""Of gp3, in every region."""
_AMAZON_LINUX = "ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{}"
_NVIDIA = "ssm:/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"  # noqa: E501

IMAGES: Mapping[str, str] = {
    "x86_64": _AMAZON_LINUX.format("x86_64"),
    "arm64": _AMAZON_LINUX.format("arm64"),
    "x86_64-gpu": _NVIDIA.format("x86_64"),
    "arm64-gpu": _NVIDIA.format("arm64"),
}
"""Default images of AWS: Amazon Linux 2023, with NVIDIA's driver for instances with GPUs."""
VOLUMES: Mapping[str, int] = {"x86_64": 30, "arm64": 30, "x86_64-gpu": 100, "arm64-gpu": 100}
"""Default sizes of root volumes in GiB, by the keys of images."""


@dataclass(frozen=True, slots=True)
class Ec2Settings:
    """How to use an account's EC2.

    Attributes:
        cluster: Names the cluster in the tags of its instances; two clusters in one account and
            region must differ, since each terminates instances that it does not know.
        region: Name of the region, such as ``us-east-1``.
        images: Image by type, by family, or by architecture, with ``-gpu`` for instances with
            GPUs: the id of an AMI, or ``ssm:`` and the name of a parameter of Systems Manager that
            holds it. The narrowest that suits an instance applies.
        subnets: Subnet by zone. A zone that is not listed uses its default subnet.
        security_groups: Ids; none for the VPC's default group.
        instance_profile: Name of the IAM instance profile, empty for none.
        root_volumes: Sizes of root volumes in GiB, for images and files of tasks that state no
            disk, by the keys of `images`. The disk that tasks state comes on top.
        kms_key: Id of the key that the root volume is encrypted with, empty for the account's.
        tags: More tags for instances and their volumes.
        endpoint: URL of the API, empty for AWS's own.
        poll_s: Seconds between two listings of the instances when nothing is requested.
        spot_prices_s: Seconds between two looks at the spot prices; 0 for never.
    """

    cluster: str
    region: str
    images: Mapping[str, str] = field(default_factory=lambda: IMAGES)
    subnets: Mapping[str, str] = field(default_factory=dict)
    security_groups: tuple[str, ...] = ()
    instance_profile: str = ""
    root_volumes: Mapping[str, int] = field(default_factory=lambda: VOLUMES)
    kms_key: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    endpoint: str = ""
    poll_s: float = 5.0
    spot_prices_s: float = 0.0
