"""Finds the image that an instance boots, and the name of its root device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eva_master.model.catalog import InstanceType
from eva_master.model.errors import CloudError

PARAMETER = "ssm:"
_FRESH_S = 3600.0
"""Seconds for which a looked-up image is used, even if a newer one is published."""


@dataclass(frozen=True, slots=True)
class Image:
    """An AMI.

    Attributes:
        ami: Its id.
        root_device: Such as ``/dev/xvda``.
    """

    ami: str
    root_device: str


class Images:
    """Looks up images, and remembers them for an hour. Any thread may call.

    Args:
        configured: The configured images; see `Ec2Settings.images`.
        call: Makes a call, such as ``call("ec2", "describe_images", {...})``.
        clock: A clock in seconds, such as `time.monotonic`.
    """

    def __init__(
        self,
        configured: Mapping[str, str],
        call: Callable[[str, str, Mapping[str, Any]], Any],
        clock: Callable[[], float],
    ) -> None:
        self._configured = configured
        self._call = call
        self._clock = clock
        self._known: dict[str, tuple[float, Image]] = {}

    def of(self, machine: InstanceType) -> Image:
        """The image for a type.

        Raises:
            CloudError: There is none, or EC2 does not answer.
        """
        kind = machine.architecture + ("-gpu" if machine.capacity.gpus else "")
        named = self._configured.get(kind)
        if named is None:
            raise CloudError(f"no image for {machine.name}", hint=f"name one in ec2.images.{kind}")
        found = self._known.get(named)
        if found is None or self._clock() - found[0] > _FRESH_S:
            found = self._clock(), self._look_up(named)
            self._known[named] = found
        return found[1]

    def _look_up(self, named: str) -> Image:
        ami = named
        if named.startswith(PARAMETER):
            name = named.removeprefix(PARAMETER)
            ami = self._call("ssm", "get_parameter", {"Name": name})["Parameter"]["Value"]
        described = self._call("ec2", "describe_images", {"ImageIds": [ami]})["Images"]
        if not described:
            raise CloudError(f"there is no image {ami}", hint="see ec2.images in the settings")
        return Image(ami, described[0].get("RootDeviceName", "/dev/xvda"))
