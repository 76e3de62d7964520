"""The machine image of test instances: a root of its own, with this machine's programs.

Programs come from the machine that runs the tests, read-only: ``/usr``, Python, the AWS command. So
does nothing else: no checkout, no package of the project. Of systemd there is as much as user data
asks of it, in ``/usr/local/sbin``; `tests.fakes.ec2.machine` is on the other end.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.fakes.docker.private import PASSWORD, USER
from tests.fakes.hosts import engine
from tests.fakes.hosts.process import run

UNITS = Path("/run/eva-units")
"""A file for each unit that is to run, by its name."""
POWER_OFF = Path("/run/eva-power-off")
SCHEDULED = Path("/run/eva-power-off-scheduled")
"""Holds after how many minutes to switch off."""
_ENVIRONMENT = Path(sys.prefix).resolve()
_TOOLS = "usr/local/sbin"
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64")
_ETC = ("passwd", "group", "nsswitch.conf", "ssl", "ld.so.cache", "alternatives", "localtime")
_OWN = ("dev", "proc", "run", "sys", "tmp", "mnt", "root", "usr", "var/lib", "var/log", "etc")

_SYSTEMCTL = f"""#!/bin/sh
# Starts units and switches off; units that are on stay on.
case "$1" in
  enable) [ "$2" = --now ] && shift; : >{UNITS}/"$2" ;;
  start) : >{UNITS}/"$2" ;;
  stop|disable) rm -f {UNITS}/"$2" ;;
  poweroff) : >{POWER_OFF} ;;
  daemon-reload) ;;
  *) echo "systemctl: not in this image: $*" >&2; exit 1 ;;
esac
until [ "$2" != docker ] || curl -sf --unix-socket {engine.SOCKET} http://engine/_ping >/dev/null
do sleep 0.1; done
"""
_DNF = """#!/bin/sh
# All that is ever asked for is there.
[ "$*" = "-y -q install python3.11 docker amazon-ecr-credential-helper" ] && exit
echo "dnf: not in this image: $*" >&2
exit 1
"""
_ECR_LOGIN = f"""#!/bin/sh
# Registries on the machines' network stand for ECR: with the credentials of the instance's role the
# helper gets their password. https://github.com/awslabs/amazon-ecr-credential-helper
url=http://169.254.169.254/latest
case "$(cat)" in 198.1[89].*)
  token=$(curl -sf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' $url/api/token)
  roles=$url/meta-data/iam/security-credentials/
  if curl -sf -H "X-aws-ec2-metadata-token: $token" "$roles"eva-worker | grep -q AccessKeyId; then
    echo '{{"Username": "{USER}", "Secret": "{PASSWORD}"}}'
    exit
  fi ;;
esac
echo "credentials not found in native keychain"
exit 1
"""
_CLOUD_INIT = """#!/bin/sh
[ "$*" = "clean --logs" ] && rm -rf /var/lib/cloud
"""
_SHUTDOWN = f"""#!/bin/sh
case "$*" in
  -c) rm -f {SCHEDULED} ;;
  "-P now") : >{POWER_OFF} ;;
  "-P +"*) echo "${{2#+}}" >{SCHEDULED} ;;
  *) echo "shutdown: not in this image: $*" >&2; exit 1 ;;
esac
"""


def lay_out(root: Path, *, logs: Path) -> None:
    """Make a root in a mount namespace of its own, and everything mounted in it.

    The root is in memory, and gone with the namespace: to remove thousands of files takes long.

    Args:
        root: Where; made.
        logs: Directory of ``/var/log`` there, on the disk; made.
    """
    run("mount", "--make-rprivate", "/")
    root.mkdir()
    run("mount", "-t", "tmpfs", "tmpfs", str(root))
    for name in _OWN:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in _LINKS:
        link = Path("/", name)
        if link.is_symlink():
            (root / name).symlink_to(link.readlink())
        elif link.exists():
            _bind(root, link)
    for name in _ETC:
        source = Path("/etc", name)
        if source.is_dir():
            shutil.copytree(source, root / "etc" / name, symlinks=True, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy(source, root / "etc" / name)
    (root / "etc/systemd/system").mkdir(parents=True)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (root / "tmp").chmod(0o1777)
    (root / "var/run").symlink_to("/run")
    _bind(root, Path("/usr"))
    _add_tools(root)
    for name in ("dev", "sys"):
        run("mount", "--rbind", f"/{name}", str(root / name))
    run("mount", "-t", "tmpfs", "tmpfs", str(root / "run"))
    run("mount", "-t", "proc", "proc", str(root / "proc"))
    # Interpreter and AWS command, wherever they are; nothing that is in ``/usr`` already.
    for directory in dict.fromkeys((Path(sys.base_prefix), _ENVIRONMENT)):
        if not directory.is_relative_to("/usr"):
            _bind(root, directory)
    logs.mkdir()
    run("mount", "--bind", str(logs), str(root / "var/log"))
    (root / "var/lib/docker").mkdir()


def enter(root: Path) -> None:
    """Make a root this process's, and see nothing of the old one any more."""
    (root / ".old").mkdir()
    os.chdir(root)
    run("pivot_root", ".", ".old")
    os.chdir("/")
    run("umount", "--lazy", "/.old")
    Path("/.old").rmdir()
    UNITS.mkdir()


def _bind(root: Path, directory: Path) -> None:
    target = root / directory.relative_to("/")
    target.mkdir(parents=True, exist_ok=True)
    run("mount", "--bind", str(directory), str(target))
    run("mount", "-o", "remount,bind,ro", str(target))


def _add_tools(root: Path) -> None:
    """Put programs before those of ``/usr``, which cannot be written to."""
    tools = root.with_name(f"{root.name}-tools")
    shutil.copytree(f"/{_TOOLS}", tools, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for name, text in {
        "systemctl": _SYSTEMCTL,
        "shutdown": _SHUTDOWN,
        "aws": f'#!/bin/sh\nexec {_ENVIRONMENT}/bin/python -m awscli "$@"\n',
        "dnf": _DNF,
        "docker-credential-ecr-login": _ECR_LOGIN,
        "cloud-init": _CLOUD_INIT,
        version: f'#!/bin/sh\nexec {sys.base_prefix}/bin/{version} "$@"\n',
    }.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    run("mount", "--bind", str(tools), str(root / _TOOLS))
