"""Permissions that a call of AWS's API takes.

Actions, resources and condition keys are those of the service authorization reference:
https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html,
.../list_amazons3.html, .../list_awssystemsmanager.html. That a launch needs permissions for tags
and for the role of its profile:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/supported-iam-actions-tagging.html,
https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_use_passrole.html.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from tests.fakes.aws.iam.policies import Demand
from tests.fakes.aws.service import REGION

ACCOUNT = "123456789012"
_EC2 = f"arn:aws:ec2:{REGION}:{ACCOUNT}"
_MADE = ("instance", "volume", "network-interface")
_TARGETS = {
    "AmazonSSM": "ssm",
    "AWSPriceListService": "pricing",
    "ServiceQuotasV20190624": "servicequotas",
    "AmazonEC2ContainerRegistry_V20150921": "ecr",
    "AWSFreeTierService": "freetier",
}
"""Services by the first half of X-Amz-Target."""
_QUERY = {"2016-11-15": "ec2", "2010-05-08": "iam", "2010-05-15": "cloudformation"}
"""Services by the version of their API."""
_STS = "2011-06-15"


@dataclass(frozen=True)
class Call:
    """A request.

    Attributes:
        method: Of HTTP.
        path: Of the URL, decoded.
        query: Of the URL.
        target: The header X-Amz-Target; empty for none.
        body: Of calls that are not S3's, and of removals of several objects.
        copied: The header x-amz-copy-source; empty for none.
    """

    method: str
    path: str
    query: str = ""
    target: str = ""
    body: bytes = b""
    copied: str = ""


@dataclass(frozen=True)
class Facts:
    """EC2's knowledge of the resources that a call names.

    Attributes:
        tags: Tags of an instance, by its id.
        vpc: VPC of a subnet, by its id; for an empty one the default VPC.
        owner: ``amazon``, or the account that an image belongs to.
        role: ARN of the role of an instance profile, by its name.
    """

    tags: Callable[[str], Mapping[str, str]] = field(default=lambda _: {})
    vpc: Callable[[str], str] = field(default=lambda _: "vpc-0")
    owner: Callable[[str], str] = field(default=lambda _: "amazon")
    role: Callable[[str], str] = field(default=lambda name: f"arn:aws:iam::{ACCOUNT}:role/{name}")


def demands(call: Call, facts: Facts) -> list[Demand]:
    """Permissions that a call takes, all of them; none for a call that anybody may make.

    Raises:
        NotImplementedError: Nothing is known of calls like it.
    """
    if call.target:
        service, action = call.target.split(".")
        return list(_of_json(_TARGETS[service], action, json.loads(call.body or b"{}")))
    form = dict(parse_qsl(call.body.decode(errors="replace"), keep_blank_values=True))
    if call.method == "POST" and form.get("Version") == _STS:
        return []  # https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html
    if call.method == "POST" and form.get("Version") in _QUERY:
        service = _QUERY[form["Version"]]
        return list(
            _of_ec2(form, facts)
            if service == "ec2"
            else [Demand(f"{service}:{form['Action']}", "*")]
        )
    return list(_of_s3(call))


def _of_json(service: str, action: str, request: Mapping[str, Any]) -> Iterator[Demand]:
    resource = "*"
    if service == "ssm":
        name = str(request["Name"]).lstrip("/")
        owner = "" if name.startswith("aws/service/") else ACCOUNT
        resource = f"arn:aws:ssm:{REGION}:{owner}:parameter/{name}"
    yield Demand(f"{service}:{action}", resource)


# -- EC2 -----------------------------------------------------------------------------------------


def _of_ec2(form: Mapping[str, str], facts: Facts) -> Iterator[Demand]:
    action = form["Action"]
    if action.startswith("Describe"):
        # None of those that the adapter calls has resources.
        yield Demand(f"ec2:{action}", "*")
    elif action == "RunInstances":
        yield from _of_launch(form, facts)
    elif action in ("CreateTags", "TerminateInstances", "StopInstances", "DeleteTags"):
        yield from _of_instances(form, facts)
    else:
        yield Demand(f"ec2:{action}", f"{_EC2}:any/any")


def _of_instances(form: Mapping[str, str], facts: Facts) -> Iterator[Demand]:
    action = form["Action"]
    wanted = _pairs(form, "Tag")
    for key, value in form.items():
        if not re.fullmatch(r"(InstanceId|ResourceId)\.\d+", key):
            continue
        kind = "instance" if value.startswith("i-") else "any"
        context: dict[str, list[str]] = {
            f"aws:ResourceTag/{name}": [text] for name, text in facts.tags(value).items()
        }
        context |= {f"aws:RequestTag/{name}": [text] for name, text in wanted.items()}
        context["aws:TagKeys"] = [*wanted]
        yield Demand(f"ec2:{action}", f"{_EC2}:{kind}/{value}", context)


def _of_launch(form: Mapping[str, str], facts: Facts) -> Iterator[Demand]:
    subnet = form.get("SubnetId", "")
    vpc = [f"{_EC2}:vpc/{facts.vpc(subnet)}"]
    tags = _tag_specifications(form)
    run = "ec2:RunInstances"
    image = form["ImageId"]
    yield Demand(run, f"arn:aws:ec2:{REGION}::image/{image}", {"ec2:Owner": [facts.owner(image)]})
    yield Demand(run, f"{_EC2}:subnet/{subnet or 'subnet-default'}", {"ec2:Vpc": vpc})
    for key, group in form.items():
        if re.fullmatch(r"SecurityGroupId\.\d+", key):
            yield Demand(run, f"{_EC2}:security-group/{group}", {"ec2:Vpc": vpc})
    spot = form.get("InstanceMarketOptions.MarketType") == "spot"
    for kind in (*_MADE, *(["spot-instances-request"] if spot else [])):
        context = {f"aws:RequestTag/{k}": [v] for k, v in tags.get(kind, {}).items()}
        more = {"ec2:Vpc": vpc} if kind == "network-interface" else {}
        yield Demand(run, f"{_EC2}:{kind}/*", {**context, **more})
    for kind, named in tags.items():
        context = {f"aws:RequestTag/{k}": [v] for k, v in named.items()}
        yield Demand(
            "ec2:CreateTags",
            f"{_EC2}:{kind}/*",
            {**context, "aws:TagKeys": [*named], "ec2:CreateAction": ["RunInstances"]},
        )
    if profile := form.get("IamInstanceProfile.Name"):
        passed = {"iam:PassedToService": ["ec2.amazonaws.com"]}
        yield Demand("iam:PassRole", facts.role(profile), passed)


def _pairs(form: Mapping[str, str], prefix: str) -> dict[str, str]:
    keys = re.compile(rf"{re.escape(prefix)}\.\d+\.Key")
    return {
        value: form.get(key.removesuffix("Key") + "Value", "")
        for key, value in form.items()
        if keys.fullmatch(key)
    }


def _tag_specifications(form: Mapping[str, str]) -> dict[str, dict[str, str]]:
    kinds = {
        key.removesuffix(".ResourceType"): value
        for key, value in form.items()
        if re.fullmatch(r"TagSpecification\.\d+\.ResourceType", key)
    }
    return {kind: _pairs(form, f"{prefix}.Tag") for prefix, kind in kinds.items()}


# -- S3 ------------------------------------------------------------------------------------------


def _of_s3(call: Call) -> Iterator[Demand]:
    """Path-style requests, which both clients make of an endpoint of their own."""
    bucket, _, key = call.path.lstrip("/").partition("/")
    query = dict(parse_qsl(call.query, keep_blank_values=True))
    secure = {"aws:SecureTransport": ["true"]}  # The stand-in stands for HTTPS.
    whole, single = f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/{key}"
    if not key:
        if call.method == "POST" and "delete" in query:
            for name in re.findall(rb"<Key>(.*?)</Key>", call.body):
                yield Demand("s3:DeleteObject", f"{whole}/{name.decode()}", secure)
        elif call.method in ("GET", "HEAD"):
            action = "ListBucketMultipartUploads" if "uploads" in query else "ListBucket"
            prefix = {"s3:prefix": [query["prefix"]]} if "prefix" in query else {}
            yield Demand(f"s3:{action}", whole, {**secure, **prefix})
        else:
            yield Demand("s3:CreateBucket" if call.method == "PUT" else "s3:DeleteBucket", whole)
        return
    if call.method in ("GET", "HEAD"):
        action = "ListMultipartUploadParts" if "uploadId" in query else "GetObject"
    elif call.method == "DELETE":
        action = "AbortMultipartUpload" if "uploadId" in query else "DeleteObject"
    else:  # Parts of an upload are put with the permission to put the object.
        action = "PutObject"
    yield Demand(f"s3:{action}", single, secure)
    if call.copied:
        source = unquote(call.copied).lstrip("/").partition("?")[0]
        yield Demand("s3:GetObject", f"arn:aws:s3:::{source}", secure)
