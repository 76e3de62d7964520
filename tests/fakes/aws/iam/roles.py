"""Roles of stacks, and who calls. A role's access key is named as the role."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from tests.fakes.aws.iam.demands import Facts

_HEADER = re.compile(r"Credential=([^/,\s]+)/")
_ROLE, _PROFILE, _BUCKET_POLICY = (
    "AWS::IAM::Role",
    "AWS::IAM::InstanceProfile",
    "AWS::S3::BucketPolicy",
)
_ECR = ("GetAuthorizationToken", "BatchCheckLayerAvailability", "BatchGetImage")
_MANAGED: Mapping[str, Any] = {
    # https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AmazonEC2ContainerRegistryPullOnly.html
    "AmazonEC2ContainerRegistryPullOnly": {
        "Statement": [
            {
                "Effect": "Allow",
                "Action": [f"ecr:{name}" for name in (*_ECR, "GetDownloadUrlForLayer")],
                "Resource": "*",
            }
        ]
    },
    # Of no call that the stand-in sees.
    "AmazonSSMManagedInstanceCore": {"Statement": []},
}
"""Policies of AWS's own."""


@dataclass(frozen=True)
class Made:
    """A resource of a stack, as far as roles care.

    Attributes:
        kind: Type of the resource.
        physical: Its name in the account.
        properties: Properties that it was made of.
    """

    kind: str
    physical: str
    properties: Mapping[str, Any]


def access_key(environ: Mapping[str, Any]) -> str:
    """The access key that a request is signed with; empty without a signature."""
    if signed := _HEADER.search(environ.get("HTTP_AUTHORIZATION", "")):
        return signed[1]
    query = dict(parse_qsl(environ.get("QUERY_STRING", "")))
    return query.get("X-Amz-Credential", "").partition("/")[0]


def policies_of(role: str, resources: list[Made]) -> list[Mapping[str, Any]] | None:
    """Policies for a role, those of buckets included; `None` if there is no such role."""
    (properties, *_) = [
        *(made.properties for made in resources if made.kind == _ROLE and made.physical == role),
        None,
    ]
    if properties is None:
        return None
    managed = [str(arn).rpartition("/")[2] for arn in properties.get("ManagedPolicyArns", ())]
    return [
        *(policy["PolicyDocument"] for policy in properties.get("Policies", ())),
        *(_MANAGED[name] for name in managed),
        *(made.properties["PolicyDocument"] for made in resources if made.kind == _BUCKET_POLICY),
    ]


def roles_of_profiles(resources: list[Made]) -> Iterator[tuple[str, str]]:
    """Instance profiles and their roles."""
    for made in resources:
        if made.kind == _PROFILE:
            yield made.physical, made.properties["Roles"][0]


def facts_of_moto(profiles: Mapping[str, str]) -> Facts:
    """Facts of the resources in moto.

    Args:
        profiles: ARN of the role of each instance profile.
    """
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.ec2 import ec2_backends

    from tests.fakes.aws.service import REGION

    backend = ec2_backends[DEFAULT_ACCOUNT_ID][REGION]

    def tags(ec2_id: str) -> dict[str, str]:
        return {
            tag["key"]: tag["value"] for tag in backend.describe_tags({"resource-id": [ec2_id]})
        }

    def vpc(subnet: str) -> str:
        if subnet:
            return str(backend.get_subnet(subnet).vpc_id)
        return str(backend.get_default_vpc().id)

    def owner(image: str) -> str:
        (stored,) = backend.describe_images(ami_ids=[image])
        # Images of others are those that come with moto.
        return str(stored.owner_id) if stored.owner_id == DEFAULT_ACCOUNT_ID else "amazon"

    return Facts(tags, vpc, owner, lambda name: profiles.get(name, f"unknown profile {name}"))
