"""Owned nodes for simulations: from a command line, or from a settings file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from eva_master.app.nodes.settings import NodeSections, contradictions, owned_nodes
from eva_master.model.catalog import Catalog, Offering, Purchase
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode
from eva_wire.text import yamlfile
from eva_wire.values.errors import InvalidConfig
from eva_wire.values.ids import InstanceId, Price

_FENCE_MS = 600_000


class _File(BaseModel):
    """A file of nodes; it may be a master's settings, whose other keys are of no interest."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    nodes: NodeSections


def nodes_of(texts: Iterable[str], file: Path | None, catalog: Catalog) -> tuple[OwnedNode, ...]:
    """The nodes that a command line asks for.

    Args:
        texts: ``NAME=TYPE`` each; such a node costs nothing.
        file: A file with ``nodes:``, `None` for none.
        catalog: Has the types.

    Raises:
        InvalidConfig: A node cannot be as is said.
    """
    nodes = [] if file is None else [*_read(file)]
    types = {offering.type.name: offering.type for offering in catalog}
    for text in texts:
        name, separator, kind = text.partition("=")
        if not separator or not name or kind not in types:
            raise InvalidConfig(
                f"{text!r} is not NAME=TYPE with a type of the catalog",
                hint=yamlfile.suggestion(kind, sorted(types)) or "such as rack1=p3.8xlarge",
            )
        machine = replace(types[kind], acquisition_ms=0, setup_ms=0)
        offering = Offering(machine, Price(0), NODE_ZONE, Purchase.OWNED)
        nodes.append(OwnedNode(InstanceId(name), offering, _FENCE_MS))
    names = [node.name for node in nodes]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InvalidConfig(f"two nodes are named {twice[0]!r}")
    return tuple(nodes)


def _read(file: Path) -> Iterable[OwnedNode]:
    document = yamlfile.read(file)
    try:
        sections = _File.model_validate(document.value).nodes
    except ValidationError as error:
        raise yamlfile.invalid(
            InvalidConfig, str(file), yamlfile.problems_of(error, document, _File)
        ) from error
    if clashes := contradictions(sections):
        problems = [document.problem(path, message, hint) for path, message, hint in clashes]
        raise yamlfile.invalid(InvalidConfig, str(file), problems)
    return owned_nodes(sections).values()
