"""Bundles for AWS that are made of installed packages, where there is no checkout."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from deploy import kernel
from eva_master.app.clouds.ec2 import own_settings
from eva_master.app.clouds.ec2.wiring import section_of
from eva_master.packing.compiled import library as compiled
from tests.fakes.installed import Installed, built

MAKING = "from eva_master.adapters.bundling import bundle_making, installed_wheels\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed") / "venv")


@pytest.fixture(scope="module")
def remade(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels of all distributions, made again of their installed files."""
    into = tmp_path_factory.mktemp("remade")
    program = (
        f"{MAKING}from pathlib import Path\n"
        f"for name in installed_wheels.OWN: installed_wheels.remake(name, Path({str(into)!r}))"
    )
    done = installed.run(installed.python, "-c", program, cwd=into)
    assert done.returncode == 0, done.stderr
    return into


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_wheels_have_the_compiled_search_of_every_system() -> None:
    (wheel,) = (wheel for wheel in built() if wheel.name.startswith("eva_scheduler-"))
    assert wheel.name.endswith("-py3-none-any.whl")
    inside = {Path(name).name for name in contents(wheel)}
    source = compiled.source()
    assert inside >= {compiled.library_name(*system, source) for system in kernel.TARGETS}


def test_wheels_made_again_are_the_installed_ones(remade: Path) -> None:
    assert sorted(wheel.name for wheel in remade.iterdir()) == [wheel.name for wheel in built()]
    for original in built():
        before, after = contents(original), contents(remade / original.name)
        (record,) = (name for name in before if name.endswith(".dist-info/RECORD"))
        lines = [each.pop(record).decode().split() for each in (before, after)]
        assert sorted(lines[0]) == sorted(lines[1])
        assert after == before


def test_wheels_made_again_install_and_run(
    installed: Installed, remade: Path, tmp_path: Path
) -> None:
    again = Installed(tmp_path / "venv", tuple(sorted(remade.iterdir())))
    # Two machines with the same release tell that by its files.
    prints = [
        each.run(each.python, "-c", f"{MAKING}print(installed_wheels.fingerprint())", cwd=tmp_path)
        for each in (installed, again)
    ]
    assert len(prints[0].stdout.strip()) == 64, prints[0].stderr
    assert prints[0].stdout == prints[1].stdout
    done = again.run(again.eva, "demo", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Run some jobs on a private cluster" in done.stdout
    asked = again.run(
        *(again.python, "-c", "from eva_master.app.demo.jobs import FIRST_JOB as job; print(job)"),
        cwd=tmp_path,
    )
    assert Path(asked.stdout.strip()).is_relative_to(again.home)


def test_they_are_the_same_every_time(installed: Installed, remade: Path, tmp_path: Path) -> None:
    program = (
        f"{MAKING}from pathlib import Path\nimport time; time.time = lambda: 2e9\n"
        "installed_wheels.remake('eva-wire', Path.cwd())"
    )
    done = installed.run(installed.python, "-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.iterdir()
    assert wheel.read_bytes() == (remade / wheel.name).read_bytes()


@pytest.mark.parametrize(
    ("change", "said"), [("write_text('')", "has changed since"), ("unlink()", "is missing")]
)
def test_a_changed_or_missing_file_is_named(
    change: str, said: str, installed: Installed, tmp_path: Path
) -> None:
    program = f"""{MAKING}
from pathlib import Path
from eva_wire.values.errors import EvaError
file = Path({str(installed.packages)!r}, "eva_iterator", "__init__.py")
whole = file.read_bytes()
file.{change}
try:
    installed_wheels.remake("eva-iterator", Path.cwd())
except EvaError as error:
    print(error.message, "|", error.hint)
finally:
    file.write_bytes(whole)
"""
    done = installed.run(installed.python, "-c", program, cwd=tmp_path)
    assert f"eva_iterator/__init__.py of eva-iterator {said}" in done.stdout, done.stderr
    assert "pip install --force-reinstall --no-deps eva-iterator" in done.stdout
    assert list(tmp_path.iterdir()) == []


PIP = """
import sys
from pathlib import Path
here = Path(sys.argv[sys.argv.index("--dest") + 1])
here.mkdir(exist_ok=True)
if "-r" in sys.argv:
    for line in Path(sys.argv[sys.argv.index("-r") + 1]).read_text().splitlines():
        if line and not line.startswith((" ", "#")):
            name, _, version = line.split()[0].partition("==")
            (here / f"{name}-{version}-py3-none-any.whl").touch()
else:
    (here / "pip-1-py3-none-any.whl").touch()
"""
"""A stand-in for pip's download: what is asked for comes as empty files."""


def bundles(
    installed: Installed, home: Path, pip: str = PIP, architectures: tuple[str, ...] = ("x86_64",)
) -> list[Path] | str:
    """Make the bundles; returns them, or the message and the hint of a failure."""
    program = f"""{MAKING}
import subprocess, sys
from pathlib import Path
from eva_wire.values.errors import EvaError
true, run = sys.executable, subprocess.run
def stand_in(command, **options):
    at = command.index("pip")
    return run([true, "-c", {pip!r}, *command[at + 1:]], **options)
bundle_making.subprocess.run = stand_in
bundle_making.find_spec = lambda name: True
try:
    made = bundle_making.made_of_installed(Path({str(home)!r}), {architectures!r})
except EvaError as error:
    sys.exit(f"{{error.message}} | {{error.hint}}")
print(*sorted(made.iterdir()), sep=chr(10))
"""
    done = installed.run(installed.python, "-c", program, cwd=home.parent)
    return [Path(line) for line in done.stdout.splitlines()] if not done.returncode else done.stderr


def test_bundles_have_own_wheels_locked_ones_and_a_unit(
    installed: Installed, tmp_path: Path
) -> None:
    made = bundles(installed, tmp_path / "bundles")
    assert isinstance(made, list), made
    master, worker = made
    names = {}
    for role, file in (("master", master), ("worker", worker)):
        assert file.name.startswith(f"eva-{role}-0.1.0-x86_64-")
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        assert file.stem.endswith(digest[:16])
        with tarfile.open(file) as tar:
            names[role] = tar.getnames()
            assert f"eva-{role}.service" in names[role]
            for wheel in built():
                if wheel.name in names[role]:
                    member = tar.extractfile(wheel.name)
                    assert member is not None
                    assert member.read()[:2] == b"PK"
    own = {role: {name.partition("-")[0] for name in names[role]} for role in names}
    assert {"eva_worker", "eva_wire", "eva_iterator", "grpcio", "pip"} <= own["worker"]
    assert not {"eva_scheduler", "eva_client", "boto3", "scipy"} & own["worker"]
    assert {"eva_scheduler", "eva_lab", "eva_client", "eva_worker", "scipy"} <= own["master"]


def test_workers_of_both_architectures_have_bundles(installed: Installed, tmp_path: Path) -> None:
    made = bundles(installed, tmp_path / "bundles", architectures=("x86_64", "arm64"))
    assert isinstance(made, list), made
    kinds = [file.name.removeprefix("eva-").split("-")[::2] for file in made]
    assert sorted(kinds) == [["master", "x86_64"], ["worker", "aarch64"], ["worker", "x86_64"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["x86_64"]),
        ("ec2: {spot: {}}", ["x86_64"]),
        ("ec2: {architectures: [arm64]}", ["arm64"]),
        ("ec2: {architectures: [arm64, x86_64]}", ["arm64", "x86_64"]),
    ],
)
def test_settings_state_the_architectures_of_workers(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(text)
    config = own_settings.as_master(file, "us-east-2", ["us-east-2a"])
    assert sorted(section_of(config).architectures) == expected


def test_variables_of_this_machine_are_not_those_of_a_master_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVA_MASTER_CLUSTER", "here")
    monkeypatch.setenv("EVA_MASTER_MISSPELT", "1")
    config = own_settings.as_master(None, "us-east-2", ["us-east-2a"])
    assert config.cluster == "checked"


def test_bundles_that_are_there_are_not_made_again(installed: Installed, tmp_path: Path) -> None:
    first = bundles(installed, tmp_path / "bundles")
    assert isinstance(first, list), first
    assert bundles(installed, tmp_path / "bundles", pip="raise SystemExit(1)") == first


def test_a_failing_index_leaves_nothing_behind(installed: Installed, tmp_path: Path) -> None:
    failing = "import sys; sys.exit('ERROR: no matching distribution')"
    said = bundles(installed, tmp_path / "bundles", pip=failing)
    assert "pip cannot bring the wheels of a bundle: ERROR: no matching distribution" in said
    assert "--bundles" in said
    assert list((tmp_path / "bundles").iterdir()) == []


def test_a_checkout_is_told_how_to_make_them(tmp_path: Path) -> None:
    program = (
        f"{MAKING}from pathlib import Path\nimport json\n"
        "from eva_wire.values.errors import EvaError\n"
        f"try: bundle_making.made_of_installed(Path({str(tmp_path)!r}))\n"
        "except EvaError as error: print(json.dumps([error.message, error.hint]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    message, hint = json.loads(done.stdout)
    assert "linked to a checkout" in message
    assert "make bundle" in hint
