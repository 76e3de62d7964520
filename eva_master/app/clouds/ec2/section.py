"""The settings of a master whose cloud is EC2."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from eva_master.adapters.catalog.pricebook import HourlyPrice
from eva_master.app.sections.base import Section
from eva_master.app.sections.identities import Identities
from eva_wire.settings.refusals import between, matching, refusal
from eva_wire.text.quantities import Discount, Duration, parse_mib

Architecture = Literal["x86_64", "arm64"]
ImageKind = Literal["x86_64", "arm64", "x86_64-gpu", "arm64-gpu"]

_IMAGE_KEY = re.compile(
    r"(?!x86|arm|aarch)[a-z]{1,3}[0-9]{1,2}[a-z]{0,4}(?:-[a-z0-9]+)?(?:\.[a-z0-9-]+)?"
)
_IMAGE = re.compile(r"ami-[0-9a-f]{8,17}|ssm:/[A-Za-z0-9_.\-/]+")
_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-[0-9]")
_TAG = re.compile(r"[\w.:/=+\-@ ]{1,128}")
_S3_PLACE = re.compile(r"s3://[^\s?#]+")
_BUNDLE = re.compile(r"s3://[^\s?#/]+/[^\s?#]+#sha256=[0-9a-f]{64}")
_SECOND_MS = 1_000
_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_GIB = 1_024


def _check_tag(name: str) -> str:
    if not _TAG.fullmatch(name) or name.startswith(("eva:", "aws:")):
        raise refusal(f"{name!r} cannot be a tag", "eva: and aws: are taken")
    return name


def _check_image_key(key: str) -> str:
    if key not in get_args(ImageKind) and not _IMAGE_KEY.fullmatch(key):
        kinds = ", ".join(get_args(ImageKind))
        raise refusal(f"{key!r} is no kind of instance", f"{kinds}, a family or a type")
    return key


def _check_whole_gib(mib: int) -> int:
    if mib % _GIB or not 8 * _GIB <= mib <= 16_384 * _GIB:
        raise refusal("must be 8GiB to 16TiB, in whole GiB", "write 100GiB")
    return mib


def _volumes(value: object) -> object:
    """Sizes of root volumes by the keys of images, of which a size alone stands for all."""
    if not isinstance(value, dict):
        return dict.fromkeys(get_args(ImageKind), _check_whole_gib(parse_mib(value)))
    return {key: _check_whole_gib(parse_mib(size)) for key, size in value.items()}


_Key = Annotated[str, AfterValidator(_check_image_key)]
Image = Annotated[str, matching(_IMAGE, "an image", "ami-... or ssm:/...")]
Bundle = Annotated[str, matching(_BUNDLE, "a bundle", "s3://BUCKET/KEY#sha256=DIGEST")]
Long = Annotated[Duration, between(_MINUTE_MS, 30 * _DAY_MS, "1m and 30d", "30m")]
LongOrNone = Annotated[Duration, between(0, 30 * _DAY_MS, "0s and 30d", "15m, or 0s for never")]
Short = Annotated[Duration, between(500, 10 * _MINUTE_MS, "500ms and 10m", "5s")]
# A restarted master is away for some seconds.
Absence = Annotated[Duration, between(20 * _SECOND_MS, 30 * _DAY_MS, "20s and 30d", "1h")]


class SpotSection(Section):
    """Spot instances, for jobs that allow them.

    Attributes:
        expected_life: How long one lives before it is interrupted, until it is known better.
        prices: From one look at the market to the next.
        rebalance: An instance that EC2 recommends to leave is left as soon as there is another
            place for its tasks, and no other spot instance of its type launched in its zone for so
            long; 0s to stay there.
    """

    expected_life: Long = 7 * _DAY_MS
    prices: Short = 5 * _MINUTE_MS
    rebalance: LongOrNone = 15 * _MINUTE_MS


class Ec2Section(Section):
    """EC2.

    Attributes:
        region: Name of the region, such as us-east-1.
        zones: Where to launch; if absent, the zones of `subnets`.
        subnets: Subnet by zone; a zone that is not there uses its default subnet.
        security_groups: Ids; workers reach each other inside one, and the master.
        instance_profile: Name of the profile whose role workers have.
        images: Images that instances boot, by type, by family, or by architecture and, with `-gpu`,
            GPUs; AWS's own for the rest.
        public_addresses: Whether instances get public IPv4 addresses of their subnets, which cost;
            or the zones in which they do.
        root_volume: Size of an instance's root volume, beside the disk that its tasks state; by the
            keys of `images`, or one for all.
        kms_key: Key of the root volume, the account's default if absent.
        tags: More tags for instances and volumes.
        endpoint: URL of AWS's API, for tests.
        architectures: Of the types to consider. Images of jobs must fit them.
        max_price: The dearest type to consider, on demand.
        discounts: Discounts of the account, by type or family.
        spot: Spot instances; absent for none.
        snapshot: File of EC2's offerings; see `eva catalog update`. In the state directory if
            absent.
        catalog_period: From one answer of EC2 about what it sells to the next request for one; 0s
            for never. A `snapshot` of the operator's stays as it is.
        poll: From one look at the instances to the next.
        unwanted_grace: An instance with the cluster's tag that the journal does not know of is
            terminated after so long.
        bundles: `s3://BUCKET/KEY#sha256=DIGEST` of the worker's bundle by architecture; none for
            images that have the worker.
        docker_image: For tasks that name none.
        mount_command: Shell command that mounts `storage_mount`.
        storage_mount: Directory that all instances share.
        abandoned_after: A worker that reaches no master for so long ends its instance.
        boot_limit: An instance that is no worker by then ends itself.
        metadata_endpoint: URL of an instance's metadata service, for tests.
        worker_env: More variables of workers' processes.
        identities: AWS identities that get tokens without an operator.
    """

    region: Annotated[str, matching(_REGION, "a region", "us-east-1")]
    zones: tuple[str, ...] = ()
    subnets: dict[str, str] = Field(default_factory=dict)
    security_groups: tuple[str, ...] = ()
    instance_profile: str = ""
    images: dict[_Key, Image] = Field(default_factory=dict)
    public_addresses: bool | tuple[str, ...] = True
    root_volume: Annotated[dict[_Key, int], BeforeValidator(_volumes)] = Field(default_factory=dict)
    kms_key: str = ""
    tags: dict[Annotated[str, AfterValidator(_check_tag)], str] = Field(default_factory=dict)
    endpoint: str = ""
    architectures: tuple[Architecture, ...] = Field(default=("x86_64",), min_length=1)
    max_price: HourlyPrice | None = None
    discounts: dict[str, Discount] = Field(default_factory=dict)
    spot: SpotSection | None = None
    snapshot: Path | None = None
    catalog_period: LongOrNone = 7 * _DAY_MS
    poll: Short = 5 * _SECOND_MS
    unwanted_grace: Long = 5 * _MINUTE_MS
    bundles: dict[Architecture, Bundle] = Field(default_factory=dict)
    docker_image: str = ""
    mount_command: str = ""
    storage_mount: str = ""
    abandoned_after: Absence = 60 * _MINUTE_MS
    boot_limit: Long = 30 * _MINUTE_MS
    metadata_endpoint: str = "http://169.254.169.254"
    worker_env: dict[str, str] = Field(default_factory=dict)
    identities: Identities = ()

    @property
    def used_zones(self) -> tuple[str, ...]:
        """Where to launch, as far as the settings say."""
        return self.zones or tuple(sorted(self.subnets))

    @property
    def private_zones(self) -> tuple[str, ...]:
        """The zones whose subnets give instances no public address."""
        public = self.public_addresses
        public = (self.used_zones if public else ()) if isinstance(public, bool) else public
        return tuple(zone for zone in self.used_zones if zone not in public)

    def worker_variables(self) -> dict[str, str]:
        """Variables of the processes of all workers."""
        options = {
            "EVA_WORKER_DOCKER_IMAGE": self.docker_image,
            "EVA_WORKER_STORAGE_MOUNT": self.storage_mount,
            "EVA_WORKER_ABANDONED_AFTER_S": str(self.abandoned_after // 1000),
            # Spot instances get notices of interruption, and all of them notices of maintenance.
            "EVA_WORKER_METADATA_URL": self.metadata_endpoint,
        }
        ours = {name: value for name, value in options.items() if value}
        return {**dict(sorted(self.worker_env.items())), **ours}


Complaint = tuple[tuple[str, ...], str, str]
"""Where, what, and what to write instead."""


def complaints(
    section: Ec2Section | None, objects: str | None, listen: str, advertise: str | None
) -> Iterator[Complaint]:
    """Contradictions in the settings as a whole if the cloud is EC2."""
    if section is None:
        yield ("cloud",), "the cloud is ec2, and there is no section ec2", "ec2: {region: ...}"
        return
    if not section.used_zones:
        hint = f"zones: [{section.region}a], or subnets by zone"
        yield ("ec2",), "no zones to launch in", hint
    for zone in section.used_zones:
        if not zone.startswith(section.region):
            yield ("ec2",), f"zone {zone} is not in region {section.region}", "name its own zones"
    if objects is None or not _S3_PLACE.fullmatch(objects.partition("?")[0]):
        hint = "write s3://BUCKET/PREFIX?region=REGION"
        yield ("objects",), "instances of EC2 reach no files of this machine", hint
    host = listen.rpartition(":")[0]
    if advertise is None and host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::]"):  # noqa: S104
        hint = "listen on an address of the VPC, or say in `advertise` how this one is reached"
        yield ("listen",), f"instances of EC2 cannot reach {listen}", hint


def s3_endpoint(objects: str) -> str:
    """The endpoint that the URL of an object store names, empty for AWS's own."""
    return parse_qs(urlsplit(objects).query).get("endpoint", [""])[0]


def boot_logs(objects: str) -> str:
    """Where the logs of boots that failed go: beside everything else."""
    parts = urlsplit(objects)
    return f"s3://{parts.netloc}{parts.path.rstrip('/')}/boots"
