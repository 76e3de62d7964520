"""The master's boot script, run with stand-ins for the commands that change a machine."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from eva_master.adapters.deployment.stack import template
from tests.fakes.aws.intrinsics import Scope, conditions, evaluated, parsed
from tests.fakes.paths import plain_name

VOLUME = "vol-0123"
MADE_UP = "11111111-2222-3333-4444-555555555555"
_COMMANDS = {
    # A file that says what is on the disk; its directory is where it is mounted.
    "blkid": 'test -s "$1"',
    "mkfs.xfs": 'echo mkfs >>"$LOG"; echo xfs >"$1"',
    "mountpoint": 'test -L "$2"',
    "mount": 'echo mount >>"$LOG"; rmdir "$2"; ln -s "$DISK_CONTENT" "$2"',
    "useradd": "true",
    "id": "true",
    "chown": "true",
    "chgrp": "true",
    "dnf": 'echo dnf >>"$LOG"; test -e "$ROOT/dnf-works"',
    "python3.11": 'mkdir -p "$4/bin"; ln -sf "$PYTHON" "$4/bin/python"',
    "sync": "true",
    "journalctl": "echo 'error: UnauthorizedOperation: not you'",
    # Who waits for too long has failed.
    "sleep": 'echo sleep >>"$LOG"; [ $(grep -c sleep "$LOG") -lt 50 ]',
    # The master begins when it is restarted, and only then.
    "systemctl": """
echo "systemctl $*" >>"$LOG"
[ "$1" = restart ] && [ ! -e "$ROOT/denied" ] || exit 0
test -L "$ROOT/var/lib/eva" && echo "started on the volume" >>"$LOG"
file=$ROOT/var/lib/eva/client.yaml
printf 'address: a\\nca_file: %s\\ntoken: eva_secret\\n' "$ROOT/ca.pem" >"$file"
touch -d '+1 hour' "$file"
""",
    "aws": """
echo "aws $1 $2" >>"$LOG"
if [ -s "$ROOT/outages" ]; then
  sed -i 1d "$ROOT/outages"
  exit 1
fi
case "$1 $2" in
"s3api list-objects-v2") if [ -e "$BUCKET_DIR/$6" ]; then echo "$6"; else echo None; fi ;;
"s3 cp")
  from=$4; to=$5
  case "$from" in s3://*) from="$BUCKET_DIR/${from#s3://*/}" ;; esac
  case "$to" in s3://*) to="$BUCKET_DIR/${to#s3://*/}"; mkdir -p "$(dirname "$to")" ;; esac
  cp "$from" "$to" ;;
"s3 rm") rm -f "$BUCKET_DIR/${4#s3://*/}" ;;
"ssm put-parameter") cp "$ROOT/run/eva-client.json" "$ROOT/parameter" ;;
esac
""",
}


@dataclass
class Boot:
    """What a boot led to."""

    code: int
    log: list[str]
    said: str

    @property
    def started(self) -> bool:
        return "systemctl restart eva-master" in self.log


class Machine:
    """An instance whose root is a directory. Its volume is one, too, with a file for the disk."""

    def __init__(self, home: Path) -> None:
        self.root = home / "root"
        self.bucket = home / "bucket"
        self.volume = home / "volume"
        self.by_id = self.root / "dev/disk/by-id"
        self.disk = self.by_id / "nvme-Amazon_Elastic_Block_Store_vol0123"
        self.settings = ""
        self.operators = "[]"
        self._bin = home / "bin"
        for directory in (self._bin, self.by_id, self.root / "run", self.volume, self.bucket):
            directory.mkdir(parents=True)
        for name, text in _COMMANDS.items():
            (self._bin / name).write_text(f"#!/bin/bash\n{text}\n")
            (self._bin / name).chmod(0o755)
        self.disk.touch()
        (self.root / "ca.pem").write_text("CA")
        (self.root / "dnf-works").touch()
        self.bundle = self._bundle()

    def _bundle(self) -> str:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as tar:
            for name in ("pip-1.whl", "eva-master.service"):
                tar.addfile(tarfile.TarInfo(name))
        (self.bucket / "bundles").mkdir()
        (self.bucket / "bundles/m.tar").write_bytes(content.getvalue())
        return f"bundles/m.tar#sha256={hashlib.sha256(content.getvalue()).hexdigest()}"

    def script(self, root: str) -> str:
        document = parsed(template())
        values = {
            **{key: str(it.get("Default", "")) for key, it in document["Parameters"].items()},
            **{"ClusterName": "lab", "MasterBundle": self.bundle, "Settings": self.settings},
            "Operators": self.operators,
            **{"WorkerBundles": "{}", "Zone": "us-east-1a", "SecondZone": "us-east-1b"},
            "AWS::Region": "us-east-1",
        }
        made = {
            "Bucket": ("the-bucket", {}),
            "StateVolume": (VOLUME, {}),
            "MasterAddress": ("203.0.113.4", {}),
            "MasterInterface": ("eni-1", {"PrimaryPrivateIpAddress": "10.0.0.5"}),
        }
        scope = Scope(values, made, [])
        conditions(document["Conditions"], scope)
        data = document["Resources"]["Master"]["Properties"]["UserData"]["Fn::Base64"]
        text = evaluated(data, scope).split("#!/bin/bash\n")[1].rpartition("--//--")[0]
        text = text.replace("/tmp/", f"{root}/")
        for place in (
            "/var/lib/eva",
            "/etc/eva",
            "/opt/eva",
            "/etc/systemd",
            "/dev/",
            "/run/",
            "/var/log/",
        ):
            text = text.replace(place, f"{root}{place}")
        # pip is not there; Python is, but not what the bundle would have installed.
        text = text.replace('/opt/eva/bin/python "$pip/pip"', "/opt/eva/bin/python -c pass")
        return text.replace("python3 - <<", f"{os.environ.get('PYTHON', 'python3')} - <<")

    def identities(self) -> object:
        section = self.master_yaml()["ec2"]
        assert isinstance(section, dict)
        return section["identities"]

    def boot(self) -> Boot:
        """Boot until the script ends: mounts are gone, the disk and the root directory are not."""
        if (self.root / "var/lib/eva").is_symlink():
            (self.root / "var/lib/eva").unlink()
        log = self.root / "log"
        log.write_text("")
        (self.root / "etc/systemd/system").mkdir(parents=True, exist_ok=True)
        with plain_name(self.root) as (root, descriptor):
            done = subprocess.run(
                ["bash", "-c", self.script(root)],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
                pass_fds=(descriptor,),
                env={
                    "PATH": f"{self._bin}:{os.environ['PATH']}",
                    "PYTHONPATH": os.pathsep.join(sys.path),
                    "PYTHON": sys.executable,
                    "ROOT": str(self.root),
                    "LOG": str(log),
                    "BUCKET_DIR": str(self.bucket),
                    "DISK_CONTENT": str(self.volume),
                },
            )
        return Boot(done.returncode, log.read_text().splitlines(), done.stdout + done.stderr)

    def master_yaml(self) -> dict[str, object]:
        text = (self.root / "etc/eva/master.yaml").read_text()
        document: dict[str, object] = yaml.safe_load(text)
        return document


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_first_boot_makes_a_file_system_and_remembers_whose_it_is(machine: Machine) -> None:
    boot = machine.boot()
    assert boot.code == 0, boot.said
    assert boot.log.index("mkfs") < boot.log.index("mount")
    assert boot.log.index("mount") < boot.log.index("systemctl restart eva-master")
    assert "started on the volume" in boot.log
    identity = (machine.volume / "state-id").read_text().strip()
    assert len(identity) == 36
    assert (machine.bucket / "settings/state-id").read_text().split() == [identity, VOLUME]
    assert machine.master_yaml()["state_id"] == identity
    assert "systemctl enable eva-master" not in boot.log
    volume_unit = machine.root / "etc/systemd/system/eva-master.service.d/volume.conf"
    assert "AssertPathIsMountPoint=" in volume_unit.read_text()


def test_later_boots_find_it_again(machine: Machine) -> None:
    machine.boot()
    identity = (machine.volume / "state-id").read_text()
    boot = machine.boot()
    assert boot.code == 0, boot.said
    assert boot.started
    assert "mkfs" not in boot.log
    assert (machine.volume / "state-id").read_text() == identity


def test_a_unit_that_an_earlier_release_enabled_is_stopped_before_the_mount(
    machine: Machine,
) -> None:
    boot = machine.boot()
    assert boot.log.index("systemctl disable --now eva-master") < boot.log.index("mount")


def test_an_empty_volume_in_place_of_the_clusters_is_left_alone(machine: Machine) -> None:
    machine.boot()
    machine.disk.write_text("")
    (machine.volume / "state-id").unlink()
    boot = machine.boot()
    assert boot.code != 0
    assert not boot.started
    assert "mkfs" not in boot.log
    assert "is empty, and the cluster's state was on it" in boot.said


@pytest.mark.parametrize("content", ["", "99999999-2222-3333-4444-555555555555\n"])
def test_a_volume_with_another_state_or_none_is_not_used(machine: Machine, content: str) -> None:
    machine.boot()
    (machine.volume / "state-id").write_text(content)
    boot = machine.boot()
    assert boot.code != 0
    assert not boot.started
    assert "the master is not started" in boot.said


def test_a_volume_made_of_a_snapshot_takes_the_place_of_the_stacks(machine: Machine) -> None:
    machine.boot()
    restored = machine.volume / "restored"
    assert not restored.exists()
    copy = machine.by_id / "nvme-Amazon_Elastic_Block_Store_vol0999"
    copy.write_text("xfs\n")
    machine.disk.unlink()
    (machine.bucket / "settings/state-volume").write_text("vol-0999\n")
    boot = machine.boot()
    assert boot.code == 0, boot.said
    assert boot.started
    assert restored.exists()
    # The master is told once; later boots find the state that they left.
    restored.unlink()
    assert machine.boot().started
    assert not restored.exists()
    # The stack's volume does not know of what happened on the other one.
    machine.disk.write_text("xfs\n")
    (machine.bucket / "settings/state-volume").unlink()
    assert machine.boot().started
    assert restored.exists()


def test_the_state_of_an_earlier_release_is_adopted(machine: Machine) -> None:
    machine.disk.write_text("xfs\n")
    (machine.volume / "pki").mkdir()
    (machine.volume / "pki/ca.key").touch()
    boot = machine.boot()
    assert boot.code == 0, boot.said
    assert boot.started
    assert "mkfs" not in boot.log
    assert (machine.bucket / "settings/state-id").is_file()


def test_a_boot_that_was_cut_short_before_the_record_is_made_good(machine: Machine) -> None:
    machine.boot()
    identity = (machine.volume / "state-id").read_text()
    (machine.bucket / "settings/state-id").unlink()
    assert machine.boot().started
    assert (machine.bucket / "settings/state-id").read_text() == f"{identity.strip()} {VOLUME}\n"


def test_a_bucket_that_does_not_answer_is_not_one_that_knows_of_no_state(machine: Machine) -> None:
    machine.boot()
    machine.disk.write_text("")
    (machine.volume / "state-id").unlink()
    (machine.root / "outages").write_text("\n".join("down" for _ in range(5)) + "\n")
    boot = machine.boot()
    assert not boot.started
    assert "mkfs" not in boot.log


def test_own_settings_go_over_those_that_were_generated(machine: Machine) -> None:
    mount = "set -e; echo \"$HOME ${x:-'y'}\" && mount -t efs fs-1:/ /mnt/eva\n# 100 % `safe`"
    own = {
        "settings": {
            "ec2": {"mount_command": mount, "spot": {}},
            "catalog": {"file": "mine.yaml"},
        },
        "files": {"catalog.file": "only: [c7i]\n"},
    }
    content = yaml.safe_dump(own).encode()
    (machine.bucket / "settings").mkdir()
    (machine.bucket / "settings/own.yaml").write_bytes(content)
    machine.settings = f"settings/own.yaml#sha256={hashlib.sha256(content).hexdigest()}"
    boot = machine.boot()
    assert boot.code == 0, boot.said
    settings = machine.master_yaml()
    assert settings["cluster"] == "lab"
    section = settings["ec2"]
    assert isinstance(section, dict)
    assert section["mount_command"] == mount
    assert section["region"] == "us-east-1"
    assert section["spot"] == {}
    file = machine.root / "etc/eva/catalog.yaml"
    assert str(settings["catalog"]).endswith("/etc/eva/catalog.yaml'}")
    assert file.read_text() == "only: [c7i]\n"
    assert machine.settings in (machine.root / "parameter").read_text()
    # When they are taken back, they are gone.
    machine.settings = ""
    assert machine.boot().started
    assert "catalog" not in machine.master_yaml()


def test_what_is_left_for_users_holds_no_token(machine: Machine) -> None:
    assert machine.boot().started
    left = json.loads((machine.root / "parameter").read_text())
    assert left == {
        "address": "203.0.113.4:7411",
        "ca": "CA",
        "made_of": [machine.bundle, "", "[]"],
    }


def test_operators_of_the_stack_stay_beside_identities_of_the_own_settings(
    machine: Machine,
) -> None:
    deployers = [entry("user/dora"), entry("role/Admin")]
    machine.operators = json.dumps(deployers)
    # The path of a role says nothing: an account has one role of a name.
    own = [entry("role/ops/Admin", role="viewer"), entry("user/ana", role="user")]
    content = yaml.safe_dump({"settings": {"ec2": {"identities": own}}, "files": {}}).encode()
    (machine.bucket / "settings").mkdir()
    (machine.bucket / "settings/own.yaml").write_bytes(content)
    assert machine.boot().started
    assert machine.identities() == deployers
    # A deployment waits until the parameter has the stack's operators, to the letter.
    left = json.loads((machine.root / "parameter").read_text())
    assert left["made_of"][-1] == machine.operators
    machine.settings = f"settings/own.yaml#sha256={hashlib.sha256(content).hexdigest()}"
    assert machine.boot().started
    assert machine.identities() == [*own, deployers[0]]


def entry(name: str, role: str = "operator") -> dict[str, str]:
    """An entry of ec2.identities."""
    return {"arn": f"arn:aws:iam::123456789012:{name}", "user": "somebody", "role": role}


def test_settings_that_arrive_damaged_start_nothing(machine: Machine) -> None:
    (machine.bucket / "settings").mkdir()
    (machine.bucket / "settings/own.yaml").write_bytes(b"settings: {}")
    machine.settings = f"settings/own.yaml#sha256={'0' * 64}"
    boot = machine.boot()
    assert boot.code != 0
    assert not boot.started


def last_words(machine: Machine) -> str:
    file = machine.bucket / "objects/boots/master.log"
    return file.read_text() if file.exists() else ""


def test_a_master_that_does_not_start_leaves_the_end_of_its_log_in_the_bucket(
    machine: Machine,
) -> None:
    (machine.root / "denied").touch()
    (machine.root / "var/log").mkdir(parents=True)
    (machine.root / "var/log/cloud-init-output.log").write_text("eva: not yet: test -e disk\n")
    boot = machine.boot()
    assert boot.code != 0
    assert "not yet: test -e disk" in last_words(machine)
    assert "error: UnauthorizedOperation" in last_words(machine)
    # Not only at the end: a script that waits tells meanwhile.
    assert boot.log.count("aws s3 cp") > 4
    (machine.root / "denied").unlink()
    assert machine.boot().started
    assert last_words(machine) == ""


def test_a_master_speaks_on_the_console(machine: Machine) -> None:
    machine.boot()
    unit = machine.root / "etc/systemd/system/eva-master.service.d/volume.conf"
    sections = unit.read_text().split("[Service]")
    assert "StartLimitIntervalSec=0" in sections[0]
    assert "StandardError=journal+console" in sections[1]
