"""Assumptions of the code about AWS, held against what the trial has seen.

The assumptions are rows of a table in docs/reference/ec2.md. Each check here belongs to the row
that has its words; a row without a check was not seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from botocore.exceptions import BotoCoreError, ClientError

from deploy.acceptance.spending import PRICE_LIST_REGION, Account, Sighting, ended_at
from eva_master.adapters.ec2.launching.run_instances_request import client_token
from eva_master.adapters.ec2.memory import RESERVED_MIB
from eva_master.adapters.ec2.quotas import QUOTAS
from eva_wire.values.ids import InstanceId

TABLE = Path(__file__).parents[2] / "docs" / "reference" / "ec2.md"
_TITLE, _HEAD = "## What no test can see", "taken for granted"
SEEN, NOT_SEEN, DIFFERENT = "seen", "not seen", "different"
_GPU_TYPES = Path(__file__).parents[2] / "eva_master/adapters/catalog/ec2_gpu_types.yaml"
_AMAZON = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{}"
_NVIDIA = (
    "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"
)
_CENT = 0.01
_LISTED_SHARE = 0.925
"""Of the listed memory, which Eva counts on."""


@dataclass(frozen=True)
class Verdict:
    """An assumption after the trial.

    Attributes:
        assumption: Words of the table.
        verdict: `SEEN`, `NOT_SEEN` or `DIFFERENT`.
        note: Facts that it goes by.
    """

    assumption: str
    verdict: str
    note: str


@dataclass
class Evidence:
    """Facts that the steps have gathered.

    Attributes:
        account: Looks at AWS.
        nodes: Instances by `eva nodes --all --json`.
        gpu_type: Type of the instance that a GPU job has run on; empty for none.
        unchanged: Whether a second deployment changed nothing; `None` if it was not tried.
        worked: Whether jobs have run.
        emulated: Whether the instances' hardware is this machine's.
    """

    account: Account
    nodes: Sequence[Mapping[str, Any]] = ()
    gpu_type: str = ""
    unchanged: bool | None = None
    worked: bool = False
    emulated: bool = False

    def workers(self) -> list[Sighting]:
        """Instances that the cluster has bought."""
        return [each for each in self.account.seen.values() if each.role != "master"]


Finding = tuple[str, str]
Check = Callable[[Evidence], Finding]


def rows() -> Iterator[str]:
    """First cells of the table."""
    text = TABLE.read_text(encoding="utf-8").partition(_TITLE)[2].partition("\n## ")[0]
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        heads = line.startswith("|") and (cells[0] == _HEAD or set(cells[0]) <= {"-"})
        if line.startswith("|") and not heads:
            yield cells[0]


def judged(evidence: Evidence) -> list[Verdict]:
    """A verdict about each row of the table."""
    verdicts = []
    for row in rows():
        checks = [check for words, check in CHECKS.items() if words in row]
        verdict, note = NOT_SEEN, "no step of the trial shows it"
        if checks:
            try:
                verdict, note = checks[0](evidence)
            except (BotoCoreError, ClientError, KeyError, ValueError) as error:
                note = f"not checked: {error}"
        verdicts.append(Verdict(row, verdict, note))
    return verdicts


def _quotas(evidence: Evidence) -> Finding:
    client = evidence.account.client("service-quotas")
    strange = []
    for quota in (quota for quotas in QUOTAS.values() for quota in quotas):
        answer = client.get_service_quota(ServiceCode="ec2", QuotaCode=quota.code)
        if (name := answer["Quota"]["QuotaName"]) != quota.name:
            strange.append(f"{quota.code} is {name!r}, not {quota.name!r}")
    return (DIFFERENT, "; ".join(strange)) if strange else (SEEN, "all codes and names")


def _images(names: Sequence[str]) -> Check:
    def check(evidence: Evidence) -> Finding:
        ssm, ec2 = evidence.account.client("ssm"), evidence.account.client("ec2")
        notes = []
        for name in names:
            ami = ssm.get_parameter(Name=name)["Parameter"]["Value"]
            (image,) = ec2.describe_images(ImageIds=[ami])["Images"]
            sizes = [m["Ebs"]["VolumeSize"] for m in image["BlockDeviceMappings"] if "Ebs" in m]
            notes.append(f"{name.rsplit('/', 3)[-1]}: {ami}, {max(sizes, default=0)} GiB")
        return SEEN, "; ".join(notes)

    return check


def _codes(evidence: Evidence) -> Finding:
    ec2 = evidence.account.client("ec2")
    calls: dict[str, Callable[[], Any]] = {
        "InvalidInstanceID.NotFound": lambda: ec2.terminate_instances(
            InstanceIds=["i-0123456789abcdef0"]
        ),
        "InvalidAMIID.NotFound": lambda: ec2.describe_images(ImageIds=["ami-0123456789abcdef0"]),
    }
    said = {}
    for code, call in calls.items():
        try:
            call()
        except ClientError as error:
            said[code] = error.response["Error"]["Code"]
    note = ", ".join(f"{code} ({said.get(code, 'no error')})" for code in calls)
    strange = [code for code in calls if said.get(code) != code]
    return (DIFFERENT if strange else SEEN), f"of all codes only these were provoked: {note}"


def _token(evidence: Evidence) -> Finding:
    """A launch with a worker's token and other parameters must be refused."""
    ended = [each for each in evidence.workers() if each.ended is not None]
    if not ended:
        return NOT_SEEN, "no worker has ended"
    ec2 = evidence.account.client("ec2")
    worker = ended[0]
    (reservation,) = ec2.describe_instances(InstanceIds=[worker.ec2_id])["Reservations"]
    described = reservation["Instances"][0]
    tags = {tag["Key"]: tag["Value"] for tag in described["Tags"]}
    cluster, attempt = evidence.account.cluster, int(tags["eva:attempt"])
    try:
        made = ec2.run_instances(
            ClientToken=client_token(cluster, InstanceId(worker.role), attempt),
            ImageId=described["ImageId"],
            InstanceType=worker.kind,
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": "eva:cluster", "Value": cluster}]}
            ],
        )
    except ClientError as error:
        code = error.response["Error"]["Code"]
        right = code in ("IdempotentParameterMismatch", "IdempotentInstanceTerminated")
        return (SEEN if right else DIFFERENT), f"other parameters: {code}"
    ids = [instance["InstanceId"] for instance in made["Instances"]]
    ec2.terminate_instances(InstanceIds=ids)
    return DIFFERENT, f"the token made {ids}, which were terminated"


def _ends(evidence: Evidence) -> Finding:
    ended = [each.ec2_id for each in evidence.workers() if each.ended is not None]
    if not ended:
        return NOT_SEEN, "no worker has ended"
    answer = evidence.account.client("ec2").describe_instances(InstanceIds=ended)
    reasons = [
        instance.get("StateTransitionReason", "")
        for reservation in answer["Reservations"]
        for instance in reservation["Instances"]
    ]
    dated = sum(ended_at(reason) is not None for reason in reasons)
    return (SEEN if dated else DIFFERENT), f"{dated} of {len(reasons)} have a time: {reasons[0]!r}"


def _drivers(evidence: Evidence) -> Finding:
    if not evidence.gpu_type or evidence.emulated:
        return NOT_SEEN, "no GPU job has run on EC2"
    return SEEN, f"nvidia-smi has listed the GPU of a {evidence.gpu_type}; no other family"


def _gpu_prices(evidence: Evidence) -> Finding:
    stated = yaml.safe_load(_GPU_TYPES.read_text(encoding="utf-8"))
    strange, right = [], 0
    for name, entry in stated.get("types", stated).items():
        price = float(str(entry["price"]).strip("$/h"))
        listed = [value for value in _listed(evidence, name, "OnDemand") if value]
        if listed and abs(max(listed) - price) > _CENT / 10:
            strange.append(f"{name} costs ${max(listed):g}/h, not ${price:g}/h")
        right += bool(listed) and not strange
    if strange:
        return DIFFERENT, "; ".join(strange)
    return (SEEN if right else NOT_SEEN), f"{right} types"


def _listed(evidence: Evidence, name: str, market: str) -> list[float]:
    stated = {
        "instanceType": name,
        "regionCode": PRICE_LIST_REGION,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        **({"marketoption": market} if market else {}),
    }
    filters = [{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in stated.items()]
    answer = evidence.account.clients("pricing", PRICE_LIST_REGION).get_products(
        ServiceCode="AmazonEC2", Filters=filters
    )
    return [
        float(dimension["pricePerUnit"]["USD"])
        for product in map(json.loads, answer["PriceList"])
        for term in product["terms"].get("OnDemand", {}).values()
        for dimension in term["priceDimensions"].values()
    ]


def _market_option(evidence: Evidence) -> Finding:
    name = "p5.48xlarge"
    alone, every = _listed(evidence, name, "OnDemand"), _listed(evidence, name, "")
    right = len(alone) == 1 and len(every) > 1
    note = f"{name}: {len(alone)} price with the filter, {len(every)} without"
    return (SEEN if right else DIFFERENT), note


def _memory(evidence: Evidence) -> Finding:
    measured = {
        node["type"]: node["capacity"]["memory_mib"]
        for node in evidence.nodes
        if node.get("capacity") and node["up_ms"]
    }
    if not measured or evidence.emulated:
        return NOT_SEEN, "no worker of EC2 has registered"
    described = evidence.account.client("ec2").describe_instance_types(
        InstanceTypes=sorted(measured)
    )["InstanceTypes"]
    notes, short = [], False
    for kind in described:
        listed, seen = kind["MemoryInfo"]["SizeInMiB"], measured[kind["InstanceType"]]
        short = short or seen < int(listed * _LISTED_SHARE) - RESERVED_MIB
        notes.append(f"{kind['InstanceType']}: {seen} of {listed} MiB for tasks")
    return (DIFFERENT if short else SEEN), "; ".join(notes)


def _stacks(evidence: Evidence) -> Finding:
    if evidence.unchanged is None:
        return NOT_SEEN, "no second deployment"
    if not evidence.unchanged:
        return DIFFERENT, "a second deployment would have changed something"
    return SEEN, "a stack was made, and a second deployment changed nothing; no replacement tried"


def _packages(evidence: Evidence) -> Finding:
    if not evidence.worked or evidence.emulated:
        return NOT_SEEN, "no job has run on EC2"
    return SEEN, "a master and workers have booted; no instance with disks of its own (mdadm)"


CHECKS: Mapping[str, Check] = {
    "codes and names of vCPU quotas": _quotas,
    "al2023-ami-kernel-default": _images([_AMAZON.format(kind) for kind in ("x86_64", "arm64")]),
    "base-oss-nvidia-driver-gpu": _images([_NVIDIA.format(kind) for kind in ("x86_64", "arm64")]),
    "error codes, and the status": _codes,
    "a token is taken again": _token,
    "StateTransitionReason": _ends,
    "GPU families whose driver": _drivers,
    "prices of GPU types": _gpu_prices,
    "paid ahead is told apart": _market_option,
    "or more of the memory": _memory,
    "CloudFormation:": _stacks,
    "names of packages and commands": _packages,
}
"""Checks by words of the row that each belongs to."""
