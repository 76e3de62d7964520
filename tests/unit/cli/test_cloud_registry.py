"""The registry of clouds: a folder is enough, and half a cloud is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import eva_master.app.clouds
from eva_client.cli import main
from eva_master.app.cloud_provider import CloudProvider
from eva_master.app.clouds import checked, cloud_commands, clouds
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config, master_model
from eva_wire.values.errors import InvalidConfig

TOY = """
from dataclasses import replace

import click
from pydantic import BaseModel

from eva_master.app.cloud_provider import CloudProvider, Prepared


class Section(BaseModel):
    colour: str = "red"


class Toy(CloudProvider):
    name = "toy"
    flags = {"--toy-colour": {"metavar": "COLOUR"}}
    commands = {"deploy toy": f"{__name__}:command"}
    ends_with_master = False

    def section(self):
        return Section, Section()

    def complaints(self, config):
        if config.section("toy").colour == "grey":
            yield ("toy", "colour"), "too dull", "write red"

    def check(self, config):
        pass

    def prepare(self, config, tell):
        return Prepared(config)

    def catalog(self, config):
        return ()

    def prices_taken(self, config):
        return None

    def loop_settings(self, config, settings):
        return replace(settings, unwanted_ms=7)

    def runs_containers(self, config):
        return False

    def open(self, config, site):
        raise NotImplementedError


@click.command()
def command():
    click.echo("deployed")


PROVIDER = Toy()
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder more among the clouds."""
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "__init__.py").write_text(TOY)
    package = eva_master.app.clouds
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    clouds.cache_clear()
    master_model.cache_clear()
    yield folder
    monkeypatch.undo()
    clouds.cache_clear()
    master_model.cache_clear()


def test_every_folder_is_a_cloud() -> None:
    folder = Path(eva_master.app.clouds.__file__).parent
    assert set(clouds()) == {it.parent.name for it in folder.glob("*/__init__.py")}
    assert set(clouds()) == {"local", "ec2"}


def test_the_settings_name_a_cloud_that_there_is(tmp_path: Path) -> None:
    file = tmp_path / "master.yaml"
    file.write_text("cloud: moon\n")
    with pytest.raises(InvalidConfig, match="'ec2' or 'local'"):
        load_master_config(policies=policies(), file=file)


def test_a_folder_is_enough_for_a_cloud(toy: Path, tmp_path: Path) -> None:
    from eva_master.app.master import control_settings

    file = tmp_path / "master.yaml"
    file.write_text("cloud: toy\ntoy: {colour: blue}\n")
    config = load_master_config(policies=policies(), file=file)
    assert config.section("toy").colour == "blue"
    assert config.shown()["toy"] == {"colour": "blue"}
    assert control_settings(config).unwanted_ms == 7
    file.write_text("cloud: toy\ntoy:\n  colour: grey\n")
    with pytest.raises(InvalidConfig) as refused:
        load_master_config(policies=policies(), file=file)
    (problem,) = refused.value.problems
    assert (problem.line, problem.key, problem.message) == (3, "toy.colour", "too dull")
    assert "deploy toy" in cloud_commands()
    assert CliRunner().invoke(main, ["deploy", "toy"]).output == "deployed\n"
    checked_file = CliRunner().invoke(main, ["config", "--check", str(file)])
    assert "too dull" in checked_file.output


METHODS = sorted(CloudProvider.__abstractmethods__)


@pytest.mark.parametrize("method", METHODS)
def test_a_cloud_without_one_of_the_methods_is_none(method: str) -> None:
    rest = {name: lambda *_, **__: None for name in METHODS if name != method}
    with pytest.raises(TypeError, match=method):
        type("Half", (CloudProvider,), rest)()


def provider(**attributes: Any) -> CloudProvider:
    known = {"name": "toy", "flags": {}, "commands": {}, "ends_with_master": False}
    methods = {name: lambda *_, **__: None for name in METHODS}
    stated = {name: value for name, value in {**known, **attributes}.items() if value is not ...}
    made: CloudProvider = type("Toy", (CloudProvider,), {**methods, **stated})()
    return made


@pytest.mark.parametrize("attribute", ["name", "flags", "ends_with_master"])
def test_a_cloud_that_does_not_say_all_is_none(attribute: str) -> None:
    with pytest.raises(TypeError, match=f"cloud toy: PROVIDER has no {attribute}"):
        checked([("toy", provider(**{attribute: ...}))])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (object(), "is not a CloudProvider"),
        (provider(name="ec2"), "is named 'ec2'"),
        (provider(flags={"--colour": {}}), "--colour does not begin with --toy-"),
    ],
)
def test_a_cloud_that_is_not_what_it_should_be_is_none(wrong: object, said: str) -> None:
    assert set(checked([("toy", provider())])) == {"toy"}
    with pytest.raises(TypeError, match=said):
        checked([("toy", wrong)])


def test_two_clouds_do_not_have_one_command() -> None:
    both = [(name, provider(name=name, commands={"teardown": "a:b"})) for name in ("one", "two")]
    with pytest.raises(TypeError, match="'teardown' is a command of one"):
        checked(both)
