"""Debian's docker-registry on loopback, which wants a password, and a helper that has one."""

from __future__ import annotations

import contextlib
import http.client
import json
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.docker import dockerd
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.ports import free_port

USER, PASSWORD = "AWS", "right"
_HASHED = "$2b$04$abcdefghijklmnopqrstuuFmEfrkTQnczNzw475xE2VhDrK1uwJiC"
"""The password, by bcrypt."""
PROGRAM = "docker-registry"
HELPER = "docker-credential-ecr-login"


def available() -> bool:
    """Whether this machine has an engine, and a registry to run."""
    return dockerd.available() and shutil.which(PROGRAM) is not None


class PrivateRegistry:
    """A registry with one image.

    Attributes:
        port: Its port.
        name: Its host and port, on this machine.
        image: A reference of the image.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.name = f"127.0.0.1:{port}"
        self.image = f"{self.name}/team/train:1"

    def fill(self, client: Any) -> None:
        """Push the engine's own image, which is then not there by that name."""
        login = {"username": USER, "password": PASSWORD}
        client.api.tag(dockerd.IMAGE, self.image)
        said = list(client.api.push(self.image, auth_config=login, stream=True, decode=True))
        assert not [line for line in said if "error" in line], said
        client.api.remove_image(self.image)

    def answers(self) -> bool:
        """Whether it does, and to nobody without a password."""
        connection = http.client.HTTPConnection(self.name, timeout=DEADLINE_S)
        try:
            connection.request("GET", "/v2/")
            status = connection.getresponse().status
        except OSError:
            return False
        finally:
            connection.close()
        assert status == http.client.UNAUTHORIZED, status
        return True


class Helper:
    """A stub of ECR's credential helper, in a directory for PATH.

    Args:
        home: Where it is, with the settings that name it.
    """

    def __init__(self, home: Path) -> None:
        self.programs, self.config = home / "programs", home / "docker"
        self._asked = home / "asked"
        self._asked.touch()
        self.programs.mkdir()
        self.config.mkdir()
        (self.config / "config.json").write_text(json.dumps({"credsStore": "ecr-login"}))

    def says(self, output: str, code: int = 0) -> None:
        """Have it answer so, whatever it is asked."""
        program = self.programs / HELPER
        program.write_text(
            f'#!/bin/sh\necho "$1 $(cat)" >>{shlex.quote(str(self._asked))}\n'
            f"printf '%s\\n' {shlex.quote(output)}\nexit {code}\n"
        )
        program.chmod(0o755)

    def knows(self, password: str) -> None:
        """Have it give a password."""
        self.says(json.dumps({"Username": USER, "Secret": password}))

    def asked(self) -> list[str]:
        """Questions to it: the command and the registry."""
        return self._asked.read_text().splitlines()


@contextlib.contextmanager
def running(home: Path, client: Any, host: str = "127.0.0.1") -> Iterator[PrivateRegistry]:
    """Run a registry that has an image, on one of this machine's addresses or on all."""
    assert shutil.which(PROGRAM), f"apt-get install {PROGRAM}"
    registry = PrivateRegistry(free_port())
    passwords, settings = home / "passwords", home / "registry.yml"
    passwords.write_text(f"{USER}:{_HASHED}\n")
    document = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(home / "stored")}},
        "http": {"addr": f"{host}:{registry.port}"},
        "auth": {"htpasswd": {"realm": "test", "path": str(passwords)}},
    }
    settings.write_text(yaml.safe_dump(document))
    with (home / "registry.log").open("wb") as log:
        process = subprocess.Popen([PROGRAM, "serve", str(settings)], stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not registry.answers():
                assert process.poll() is None, (home / "registry.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            registry.fill(client)
            yield registry
        finally:
            process.terminate()
            process.wait(DEADLINE_S)
