"""Code blocks of the documents: programs run, files are read, commands and their options exist."""

from __future__ import annotations

import builtins
import importlib.util
import json
import re
import shlex
import sys
import textwrap
import tomllib
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import click
import pytest
import yaml

from eva_client.cli import main
from eva_lab.experiments.schema import load_experiment
from eva_lab.traces import read_interference, read_trace
from eva_lab.traces.spot.files import read_market
from eva_master.adapters.catalog import load_catalog
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_wire.jobfile import check_job, read_table
from eva_wire.text.yamlfile import load
from eva_wire.values.errors import EvaError

ROOT = Path(__file__).parents[3]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
)
_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A block of a page, which begins at a line of it."""

    page: str
    line: int
    language: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.page}:{self.line}"


def _blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in _BLOCK.finditer(text):
            indent = found["indent"]
            lines = [line.removeprefix(indent) for line in found["text"].splitlines()]
            line = text.count("\n", 0, found.start()) + 1
            name = page.relative_to(ROOT).as_posix()
            yield Block(name, line, found["language"], "\n".join(lines) + "\n")


BLOCKS = tuple(_blocks())


def of(*languages: str) -> list[Any]:
    return [pytest.param(it, id=it.id) for it in BLOCKS if it.language in languages]


def test_every_language_is_tried() -> None:
    tried = {"", "console", "sh", "python", "yaml", "json", "toml", "csv"}
    assert {block.language for block in BLOCKS} <= tried
    assert len(BLOCKS) > 150


# -- programs ------------------------------------------------------------------------------------


class _Names(dict[str, Any]):
    """A program's names; those that a page leaves to its reader are anything."""

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            return getattr(builtins, name)
        made = self[name] = MagicMock(name=name)
        return made


_FOREIGN = ("torch", "safetensors", "sklearn", "lightning", "transformers", "my_policy")
"""Packages of the reader's own, and such that the tests do not need."""


@pytest.mark.parametrize("block", of("python"))
def test_a_program_runs(block: Block, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES"):
        monkeypatch.setenv(name, {"MASTER_ADDR": "127.0.0.1"}.get(name, "1"))
    for name in _FOREIGN:
        for module in (name, f"{name}.distributed", f"{name}.numpy", f"{name}.utils.data"):
            monkeypatch.setitem(sys.modules, module, MagicMock(name=module))
    pages = [it.text for it in BLOCKS if it.page == block.page and it.language == "python"]
    before = "\n".join(
        line
        for text in pages[: pages.index(block.text)]
        for line in text.splitlines()
        if line.startswith(("import ", "from "))
    )
    trace = {"demand": {"any": [0, 1, 1]}}
    trace = {"name": "a", "arrival_time": 0, "duration": 60, "tasks": {"0": trace}}
    (tmp_path / "t.json").write_text(json.dumps({"0": trace}))
    names = _Names(__name__="program", step=0, done=True, STEPS=3, EPOCHS=2, loader=[1, 2])
    monkeypatch.setitem(sys.modules, "program", types.ModuleType("program"))
    exec(compile(f"{before}\n", block.id, "exec"), names)
    text = block.text
    if re.search(r"^return ", text, re.MULTILINE):
        text = f"def body(self):\n{textwrap.indent(text, '    ')}\n"
    exec(compile(text, block.id, "exec"), names)


# -- files ---------------------------------------------------------------------------------------

_JOB = {"name": "a", "run": "x", "resources": {"cpus": 1, "memory": "1GiB"}}


def _as_job(document: dict[str, Any], _path: Path) -> None:
    base = {} if "resources_by_family" in document else dict(_JOB)
    text = yaml.safe_dump({**{"name": "a", "run": "x"}, **base, **document})
    check_job(text, file_name="job.yaml")


_NODE = {"type": "v100.x16", "capacity": {"gpus": 16, "cpus": 64, "memory": "480GiB"}}
_AROUND = {
    "nodes": {"rack1": _NODE, "rack2": _NODE},
    "tenants": {"vision": {"owners": ["ana"]}},
}
"""Settings that a page takes to be there already."""


def _as_settings(document: dict[str, Any], path: Path) -> None:
    whole = {**_AROUND, **document}
    if document.keys() & {"ec2", "partitions"}:
        (first,) = (
            it for it in BLOCKS if it.page == "docs/howto/ec2.md" and "cloud: ec2" in it.text
        )
        ec2 = yaml.safe_load(first.text)
        whole = {**_AROUND, **ec2, **document, "ec2": {**ec2["ec2"], **document.get("ec2", {})}}
    catalog = path.with_name("catalog.yaml")
    catalog.write_text("{}")
    text = yaml.safe_dump(whole).replace("#sha256=...", f"#sha256={'0' * 64}")
    path.write_text(text.replace("/etc/eva/catalog.yaml", str(catalog)))
    load_master_config(policies=policies(), file=path)


def _as_experiment(document: dict[str, Any], path: Path) -> None:
    path.write_text(
        yaml.safe_dump({"name": "a", "policies": ["eva"], "baseline": "eva", **document})
    )
    load_experiment(path)


def _as_catalog(document: dict[str, Any], path: Path) -> None:
    path.write_text(yaml.safe_dump(document))
    load_catalog(path)


_READERS = (_as_job, _as_settings, _as_experiment, _as_catalog)
_FOREIGN_FILES = {
    "docs/reference/security.md": "scheme",  # Prometheus'
    "docs/howto/users.md": "address",  # the client's
    "docs/howto/policies.md": "policy",  # of a package that the reader writes
    "examples/policy_template/README.md": "policy",
}


@pytest.mark.parametrize("block", of("yaml"))
def test_a_yaml_file_is_one_that_eva_reads(block: Block, tmp_path: Path) -> None:
    for number, text in enumerate(_variants(block.text)):
        document = load(text, file_name=block.id, error=EvaError).value  # YAML 1.2: `on` is a word
        if _FOREIGN_FILES.get(block.page) in document:
            continue
        refusals = []
        for reader in _READERS:
            try:
                reader(document, tmp_path / f"{number}.yaml")
            except (EvaError, OSError, ValueError) as refusal:
                refusals.append(f"{reader.__name__}: {refusal} {getattr(refusal, 'problems', ())}")
        assert len(refusals) < len(_READERS), "\n".join(refusals)


def _variants(text: str) -> list[str]:
    """A block whose lines are alternatives of one key is as many files."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    keys = [line.partition(":")[0] for line in lines if not line.startswith(" ")]
    return lines if len(keys) > len(set(keys)) and len(keys) == len(lines) else [text]


@pytest.mark.parametrize("block", of("json", "toml", "csv"))
def test_a_file_of_another_form_is_read(block: Block, tmp_path: Path) -> None:
    if block.language == "toml":
        tomllib.loads(block.text)
        return
    path = tmp_path / f"file.{block.language}"
    path.write_text(block.text)
    if block.language == "csv":
        if block.page == "docs/howto/arrays-from-data.md":
            assert read_table(path.read_bytes(), file_name=path.name).rows > 1
        else:
            assert read_market(path, load_catalog())
        return
    document = json.loads(block.text)
    if "throughput" in document:
        read_interference(path)
    elif "files" not in document:
        assert read_trace(path).jobs


# -- commands ------------------------------------------------------------------------------------

_MAKE = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
_END = frozenset({"|", "||", "&&", ";", "&", "(", ")", "<", ">", ">>", ">&", "2"})
_LINE = re.compile(
    r"^(?:\$ |# )?(?=(?:[A-Z_]+=\S+ )*(?:sudo )?(?:\.venv/bin/)?(?:eva|make|python) )"
)


def _lines(block: Block) -> Iterator[str]:
    if not block.text.isascii() and "─" in block.text:
        return  # a drawing
    joined = re.sub(r" *\\\n *", " ", block.text)
    for line in joined.splitlines():
        text = line.strip()
        typed = block.language == "sh" or text.startswith("$ ")
        if typed and _LINE.match(text):
            yield text.removeprefix("$ ")


def _commands(line: str) -> Iterator[list[str]]:
    """The simple commands of a line of shell."""
    words = shlex.shlex(line.replace("<(", "("), posix=True, punctuation_chars=True)
    words.commenters, words.whitespace_split = "#", True
    command: list[str] = []
    for word in [*words, ";"]:
        if word in _END:
            if command:
                yield command
            command = []
        else:
            command.append(word)


COMMANDS = [
    pytest.param(command, id=f"{block.id} {' '.join(command)[:60]}")
    for block in BLOCKS
    if block.language in ("", "sh", "console")
    for line in _lines(block)
    for command in _commands(line)
]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_exists_with_these_options(words: list[str]) -> None:
    while words and (re.fullmatch(r"[A-Z_]+=.*", words[0]) or words[0] in ("sudo", "nice")):
        words = words[1:]
    if not words:
        return
    program, *arguments = words
    match program.removeprefix(".venv/bin/"):
        case "eva":
            _parse(main, [it for it in arguments if it not in ("...", "…")])
        case "make":
            targets = [it for it in arguments if "=" not in it and not it.startswith("-")]
            assert set(targets) <= _MAKE
        case "python" if arguments[:1] == ["-m"]:
            assert importlib.util.find_spec(arguments[1]), arguments[1]


def _parse(command: click.Command, arguments: list[str]) -> None:
    """Read arguments as the command would; raises `click.UsageError`."""
    while True:
        context = click.Context(command)
        options, rest, _ = command.make_parser(context).parse_args(list(arguments))
        if not isinstance(command, click.Group):
            assert not rest, f"{command.name} takes no more arguments: {rest}"
            return
        if not rest or set(options) & {"help", "version"}:
            return
        found = command.get_command(context, rest[0])
        assert found is not None, f"{command.name} has no command {rest[0]!r}"
        command, arguments = found, rest[1:]


def test_an_option_that_does_not_exist_is_found() -> None:
    with pytest.raises(click.UsageError):
        _parse(main, ["submit", "--wat", "job.yaml"])
    with pytest.raises(AssertionError):
        _parse(main, ["nodes", "one", "two"])
