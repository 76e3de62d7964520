"""What the user data does with an instance's disks and engine, with stand-ins for commands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from tests.fakes.paths import plain_name

_COMMANDS = {
    # Lists a disk and whatever is made of it, as `lsblk -nro`.
    "lsblk": """
columns=$2; shift 2
for disk in "$@"; do
  while read -r name place; do
    case "$columns" in
    NAME,MOUNTPOINT) echo "$name $place" ;;
    MOUNTPOINT) echo "$place" ;;
    *) exit 1 ;;
    esac
  done <"$disk"
done
""",
    "mkfs.ext4": 'echo "mkfs ${!#}" >>"$LOG"',
    "mdadm": 'echo "mdadm $*" >>"$LOG"',
    "mount": 'echo "mount $*" >>"$LOG"',
    "df": 'echo Size; if [ "${!#}" = / ]; then echo 300; else echo "$FAST_KIB"; fi',
    "mountpoint": "false",
    "pidof": "exit 1",
    "dockerd": "true",
    "docker-credential-ecr-login": "true",
    "dnf": 'echo "dnf $*" >>"$LOG"; test -e "$ROOT/dnf-works"',
    "docker": 'test -e "$ROOT/running" && cat "$ROOT/images"',
    "systemctl": """
echo "systemctl $*" >>"$LOG"
case "$1" in
start) touch "$ROOT/running" ;;
stop) rm "$ROOT/running" ;;
esac
""",
}

_ORDINARY = (
    *("bash", "cat", "cp", "cut", "find", "grep", "mkdir"),
    *("readlink", "rm", "sleep", "sort", "tail", "touch", "wc"),
)
"""This machine's own commands that it has; Docker's may be here or not."""


class Machine:
    """An instance whose root is a directory."""

    def __init__(self, home: Path) -> None:
        self.root = home / "root"
        self.log = home / "log"
        self._bin = home / "bin"
        self.disk_mib, self.fast_kib = 0, 200
        self._bin.mkdir()
        for name, text in _COMMANDS.items():
            (self._bin / name).write_text(f"#!/bin/bash\n{text}\n")
            (self._bin / name).chmod(0o755)
        for name in _ORDINARY:
            (self._bin / name).symlink_to(shutil.which(name) or name)
        (self.root / "dev/disk/by-id").mkdir(parents=True)
        for place in ("mnt", "var/lib/eva"):
            (self.root / place).mkdir(parents=True)
        (self.root / "var/lib/eva/boot").write_text("machine 1\n")
        (self.root / "images").touch()
        self.log.touch()

    def add_disk(self, name: str, *made_of_it: str) -> str:
        """A disk, and ``NAME PLACE`` of what is made of it; its own place may be the first."""
        disk = self.root / "dev" / name
        first, *others = made_of_it or ("",)
        disk.write_text("\n".join((f"{name} {first}".strip(), *others)) + "\n")
        link = f"nvme-Amazon_EC2_NVMe_Instance_Storage_{name}"
        (self.root / "dev/disk/by-id" / link).symlink_to(disk)
        (self.root / "dev/disk/by-id" / f"{link}-ns-1").symlink_to(disk)
        return str(disk)

    def without(self, command: str) -> None:
        (self._bin / command).unlink()

    def boot(
        self, begin: str = "# The disks that come", end: str = 'eval "$mount_command"'
    ) -> list[str]:
        """Run a part of the script.

        Args:
            begin: How it begins, by default that about disks.
            end: How what follows begins.

        Returns:
            The commands that changed something, without the root.
        """
        text = files("eva_master.adapters.ec2.launching").joinpath("userdata.sh").read_text()
        head = text.index("packages()")
        helpers = text[head : text.index("persistently()")]
        stage = text[text.index(begin) : text.index(end)]
        script = (
            f"set -Eeuo pipefail\ntrap 'echo failed in $LINENO >&2; exit 9' ERR\n{helpers}{stage}"
        )
        with plain_name(self.root) as (root, descriptor):
            script = re.sub(
                r"(?<![\w/])/(dev/disk|mnt|var/lib|opt|etc|root)", rf"{root}/\1", script
            )
            done = subprocess.run(
                ["bash", "-c", script],
                capture_output=True,
                text=True,
                check=False,
                pass_fds=(descriptor,),
                env={
                    "PATH": str(self._bin),
                    "ROOT": str(self.root),
                    "LOG": str(self.log),
                    "gpus": "0",
                    "disk_mib": str(self.disk_mib),
                    "FAST_KIB": str(self.fast_kib),
                    "stages": f"{root}/var/lib/eva/boot",
                },
            )
        assert done.returncode == 0, done.stderr
        log = self.log.read_text().replace(str(self.root), "").replace(root, "")
        return log.splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_such_disks_nothing_is_changed(machine: Machine) -> None:
    assert machine.boot() == []


def test_one_disk_becomes_the_place_of_tasks_and_of_the_engine(machine: Machine) -> None:
    machine.without("docker")
    machine.without("dockerd")
    machine.add_disk("nvme1n1")
    log = machine.boot()
    assert [line for line in log if not line.startswith("systemctl")] == [
        "mkfs /dev/nvme1n1",
        "mount -o noatime /dev/nvme1n1 /mnt",
        "mount --bind /mnt/eva /var/lib/eva",
        "mount --bind /mnt/docker /var/lib/docker",
    ]
    assert (machine.root / "mnt/eva/boot").read_text() == "machine 1\n"


@pytest.mark.parametrize(
    ("disk_mib", "fast_kib", "used"), [(0, 200, True), (1, 300, True), (1, 299, False)]
)
def test_tasks_that_state_a_disk_have_it_on_the_larger_one(
    disk_mib: int, fast_kib: int, used: bool, machine: Machine
) -> None:
    machine.disk_mib, machine.fast_kib = disk_mib, fast_kib
    machine.add_disk("nvme1n1")
    log = machine.boot()
    assert ("mount --bind /mnt/eva /var/lib/eva" in log) is used
    assert ("mount --bind /mnt/docker /var/lib/docker" in log) is used


def test_several_disks_are_striped_without_a_question(machine: Machine) -> None:
    disks = [machine.add_disk(f"nvme{number}n1") for number in (1, 2)]
    log = machine.boot()
    (striped,) = (line for line in log if line.startswith("mdadm"))
    assert "--run" in striped.split()
    assert striped.endswith(" ".join(disks).replace(str(machine.root), ""))
    assert "mkfs /dev/md0" in log


def test_an_engine_that_runs_is_stopped_before_its_place_changes(machine: Machine) -> None:
    machine.add_disk("nvme1n1")
    log = machine.boot()
    stopped = log.index("systemctl stop docker.socket docker")
    assert stopped < log.index("mount --bind /mnt/docker /var/lib/docker")


def test_images_that_the_machine_came_with_are_not_hidden(machine: Machine) -> None:
    """As `deploy/ami/prepare.sh` makes it: the engine is there, with images, started or not."""
    machine.add_disk("nvme1n1")
    (machine.root / "images").write_text("0123456789ab\n")
    log = machine.boot()
    assert "mount --bind /mnt/eva /var/lib/eva" in log
    assert not [line for line in log if "/var/lib/docker" in line]
    assert not [line for line in log if line.startswith("systemctl stop")]


@pytest.mark.parametrize("used", [("/opt/dlami/nvme",), ("", "vg.01-lv_ephemeral /opt/dlami/nvme")])
def test_disks_that_the_image_has_mounted_are_used_as_they_are(
    machine: Machine, used: tuple[str, ...]
) -> None:
    machine.add_disk("nvme1n1", *used)
    machine.add_disk("nvme2n1", *used)
    (machine.root / "opt/dlami/nvme").mkdir(parents=True)
    # The stand-in lists places as the machine sees them.
    for disk in (machine.root / "dev").glob("nvme*"):
        disk.write_text(disk.read_text().replace("/opt", f"{machine.root}/opt"))
    log = machine.boot()
    assert not [line for line in log if line.startswith(("mkfs", "mdadm", "mount -o"))]
    assert "mount --bind /opt/dlami/nvme/eva /var/lib/eva" in log
    assert "mount --bind /opt/dlami/nvme/docker /var/lib/docker" in log


def test_of_several_disks_those_that_nothing_uses_are_taken(machine: Machine) -> None:
    machine.add_disk("nvme1n1", "[SWAP]")
    machine.add_disk("nvme2n1")
    assert "mkfs /dev/nvme2n1" in machine.boot()


def test_disks_that_are_used_without_a_place_are_left_alone(machine: Machine) -> None:
    machine.add_disk("nvme1n1", "[SWAP]")
    assert [line for line in machine.boot() if not line.startswith("systemctl")] == []


ECR = "# Images in ECR"


def test_images_of_ecr_are_fetched_with_the_instances_role(machine: Machine) -> None:
    assert machine.boot(ECR, "stage containers") == []
    config = machine.root / "root/.docker/config.json"
    assert json.loads(config.read_text()) == {"credsStore": "ecr-login"}
    # An image of the operator's own may come with other settings.
    config.write_text("{}")
    machine.boot(ECR, "stage containers")
    assert config.read_text() == "{}"


@pytest.mark.parametrize("works", [True, False])
def test_a_machine_without_the_helper_installs_it_or_goes_on(machine: Machine, works: bool) -> None:
    machine.without("docker-credential-ecr-login")
    if works:
        (machine.root / "dnf-works").touch()
    assert machine.boot(ECR, "stage containers") == [
        "dnf -y -q install amazon-ecr-credential-helper"
    ]
    assert (machine.root / "root/.docker/config.json").exists() is works


def test_the_engine_and_the_worker_are_spared_when_memory_runs_out(machine: Machine) -> None:
    log = machine.boot("command -v dockerd >/dev/null || need", "stage containers")
    written = machine.root / "etc/systemd/system/docker.service.d/eva.conf"
    assert "OOMScoreAdjust=-900" in written.read_text().splitlines()
    assert log == ["systemctl daemon-reload", "systemctl enable --now docker"]
    unit = Path(__file__).parents[3] / "deploy/systemd/eva-worker.service"
    assert "OOMScoreAdjust=-900" in unit.read_text().splitlines()
