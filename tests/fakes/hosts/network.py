"""The network between test hosts: a bridge in a namespace of its own, and cables to it."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
from pathlib import Path

from tests.fakes.hosts.process import die_with_parent, run

_BRIDGE = "br0"
_MASTER = "master"
# A range for benchmarks of networks, which nobody routes: one subnet for each cluster.
_PREFIXES = tuple(f"198.{18 + number // 256}.{number % 256}" for number in range(512))
_SWITCH = f"""ip link add {_BRIDGE} type bridge && ip link set {_BRIDGE} up && echo ready &&
exec sleep infinity"""


class Switch:
    """A network with this process on it; when this process ends, so does the network.

    Attributes:
        pid: The process that holds its namespace.
        prefix: The first three numbers of its addresses.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", _SWITCH],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", "no network namespace to be had"
        self.pid = self._process.pid
        self.prefix = self._join()

    @property
    def address(self) -> str:
        """Of this process, on this network."""
        return f"{self.prefix}.1"

    def _join(self) -> str:
        """Put a cable between this namespace and the bridge; its name reserves the subnet."""
        for number, prefix in enumerate(_PREFIXES):
            self._device = f"eva-hosts-{number}"
            ends = f"link add name {self._device} type veth peer name {_MASTER} netns {self.pid}"
            try:
                run("ip", "-batch", "-", text=ends)
            except RuntimeError as error:
                if "File exists" in str(error):
                    continue
                raise
            _up(self._device, f"{prefix}.1/24")
            _inside(self.pid, f"link set dev {_MASTER} master {_BRIDGE} up")
            return prefix
        raise RuntimeError("no network for test hosts: all subnets are taken")

    def cut(self, instance: str = _MASTER) -> None:
        """Have the network lose what comes from and goes to an instance, or the master.

        Both sides still see a link that is up, as when something fails further away.
        """
        _inside(self.pid, f"link set dev {port(instance)} nomaster")

    def mend(self, instance: str = _MASTER) -> None:
        """Undo `cut`."""
        _inside(self.pid, f"link set dev {port(instance)} master {_BRIDGE}")

    def close(self) -> None:
        """End the network, and with it all machines that are on it."""
        with contextlib.suppress(RuntimeError):
            run("ip", "link", "del", self._device)
        self._process.kill()
        self._process.communicate()


def port(instance: str) -> str:
    """Name of the bridge's end of an instance's cable: the instance's own may be too long."""
    if instance == _MASTER:
        return _MASTER
    return f"p{hashlib.sha256(instance.encode()).hexdigest()[:12]}"


def plug(switch: int, instance: str, pid: int, address: str) -> None:
    """Connect the network namespace of a process to a switch.

    Args:
        switch: The switch's pid.
        instance: Names the cable.
        pid: A process in the namespace.
        address: Of the instance on the network.
    """
    name = port(instance)
    with contextlib.suppress(RuntimeError):
        # Of an instance that has just been switched off and on: the old one goes in its own time.
        _inside(switch, f"link del dev {name}")
    _inside(switch, f"link add name {name} type veth peer name eth0 netns {pid}")
    _inside(switch, f"link set dev {name} master {_BRIDGE} up")
    _inside(pid, f"addr add {address}/24 dev eth0", "link set dev eth0 up", "link set dev lo up")


def reserve(directory: Path, prefix: str, instance: str) -> str:
    """Give an instance an address that no other has, the same when asked again.

    Args:
        directory: Where the addresses of the network are written down.
        prefix: Of the network.
        instance: Its id.
    """
    for number in range(2, 255):
        place = directory / str(number)
        with contextlib.suppress(FileExistsError), place.open("x") as file:
            file.write(instance)
            return f"{prefix}.{number}"
        if place.read_text() == instance:
            return f"{prefix}.{number}"
    raise RuntimeError("no address is left for another instance")


def _up(device: str, address: str) -> None:
    run("ip", "-batch", "-", text=f"addr add {address} dev {device}\nlink set dev {device} up\n")


def _inside(pid: int, *commands: str) -> None:
    """Run commands of ``ip`` in the network namespace of a process."""
    run("nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-batch", "-", text="\n".join(commands))
