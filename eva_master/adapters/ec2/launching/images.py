"""Finds the image that an instance boots, and the name of its root device."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from eva_master.model.catalog import InstanceType, base_family
from eva_wire.values.errors import CloudError

T = TypeVar("T")
PARAMETER = "ssm:"
_FRESH_S = 3600.0
"""Seconds for which a looked-up image is used, even if a newer one is published."""

_SUPPORTED: tuple[tuple[re.Pattern[str], frozenset[str], int], ...] = (
    (re.compile(r".*/arm64/base-oss-nvidia-driver-gpu-.*"), frozenset({"g5g", "p6e-gb200"}), 75),
    (
        re.compile(r".*/base-oss-nvidia-driver-gpu-.*"),
        frozenset(
            {
                *("g4dn", "g5", "g6", "gr6", "g6e", "g7e"),
                *("p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300"),
            }
        ),
        75,
    ),
    (
        re.compile(r".*/base-proprietary-nvidia-driver-.*"),
        frozenset({"g3", "g3s", "p3", "p3dn"}),
        75,
    ),
    (re.compile(r".*/ami-amazon-linux-latest/.*"), frozenset(), 8),
)
"""GPU families whose driver AWS's images have, and the images' own size in GiB (by AWS's release
notes, docs.aws.amazon.com/dlami), by the parameter that names the image.

The open kernel modules of today's driver know no GPU before Turing, so neither V100 nor M60.
"""


def narrowest(configured: Mapping[str, T], machine: InstanceType) -> T | None:
    """The value configured for a type: for itself, for its family or for its architecture."""
    keys = (machine.name, base_family(machine.family), _kind(machine))
    return next((configured[key] for key in keys if key in configured), None)


def _kind(machine: InstanceType) -> str:
    return machine.architecture + ("-gpu" if machine.capacity.gpus else "")


def drives(image: str, machine: InstanceType) -> bool:
    """Whether a configured image has a driver for a type's GPUs; true if that is not known."""
    if not machine.capacity.gpus:
        return True
    supported = (families for names, families, _ in _SUPPORTED if names.fullmatch(image))
    return base_family(machine.family) in next(supported, (base_family(machine.family),))


def least_gib(image: str) -> int:
    """Least size of the root volume of a configured image; 0 if that is not known."""
    return next((gib for names, _, gib in _SUPPORTED if names.fullmatch(image)), 0)


@dataclass(frozen=True, slots=True)
class MachineImage:
    """An AMI.

    Attributes:
        ami: Its id.
        root_device: Device name, such as ``/dev/xvda``.
        architecture: Architecture as EC2 names it.
        root_gib: Least size of the root volume.
    """

    ami: str
    root_device: str
    architecture: str = ""
    root_gib: int = 0


Call = Callable[[str, str, Mapping[str, Any]], Any]
"""Makes a call of AWS, such as ``call("ec2", "describe_images", {...})``."""


class MachineImages:
    """Looks up images, and remembers them for an hour. Any thread may call.

    Args:
        configured: The configured images; see `Ec2Settings.images`.
        call: Makes the calls.
        clock: A clock in seconds, such as `time.monotonic`.
    """

    def __init__(
        self, configured: Mapping[str, str], call: Call, clock: Callable[[], float]
    ) -> None:
        self._configured = configured
        self._call = call
        self._clock = clock
        self._known: dict[str, tuple[float, MachineImage]] = {}

    def of(self, machine: InstanceType) -> MachineImage:
        """The image for a type.

        Raises:
            CloudError: There is none, or EC2 does not answer.
        """
        named = narrowest(self._configured, machine)
        if named is None:
            kind = _kind(machine)
            raise CloudError(f"no image for {machine.name}", hint=f"name one in ec2.images.{kind}")
        entry = self._known.get(named)
        if entry is None or self._clock() - entry[0] > _FRESH_S:
            entry = self._clock(), find_image(named, self._call)
            self._known[named] = entry
        return entry[1]


def find_image(named: str, call: Call) -> MachineImage:
    """Look an image up.

    Args:
        named: Id of an AMI, or ``ssm:`` and the parameter of Systems Manager that holds it.
        call: Makes the calls.

    Raises:
        CloudError: There is none, or EC2 does not answer.
    """
    ami = named
    if named.startswith(PARAMETER):
        name = named.removeprefix(PARAMETER)
        ami = call("ssm", "get_parameter", {"Name": name})["Parameter"]["Value"]
    described = call("ec2", "describe_images", {"ImageIds": [ami]})["Images"]
    if not described:
        raise CloudError(f"there is no image {ami}", hint="see ec2.images in the settings")
    root = described[0].get("RootDeviceName", "/dev/xvda")
    sizes = (
        disk["Ebs"].get("VolumeSize", 0)
        for disk in described[0].get("BlockDeviceMappings", ())
        if disk.get("DeviceName") == root and "Ebs" in disk
    )
    return MachineImage(ami, root, described[0].get("Architecture", ""), next(sizes, 0))
