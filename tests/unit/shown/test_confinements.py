"""How tasks are confined is told with the nodes: the way and why no better one works."""

from __future__ import annotations

from eva_client.cli.views import shapes
from eva_client.cli.views.isolation import confinements
from eva_wire._proto import api_pb2 as pb

_WHY = "landlock (namespaces: Operation not permitted)"


def test_equal_nodes_need_one_line() -> None:
    nodes = [pb.Instance(id=f"i-{number}", confinement="containers") for number in range(9)]
    assert confinements(nodes) == ["tasks are confined by containers"]


def test_different_nodes_are_named_and_those_that_are_gone_or_silent_are_not() -> None:
    nodes = [pb.Instance(id=f"i-{number}", confinement=_WHY) for number in range(5)]
    nodes.append(pb.Instance(id="i-5", confinement="namespaces"))
    nodes.append(pb.Instance(id="i-6", confinement="containers", state="gone"))
    nodes.append(pb.Instance(id="i-7"))
    assert confinements(nodes) == [
        f"tasks on i-0, i-1, i-2 and 2 more are confined by {_WHY}",
        "tasks on i-5 are confined by namespaces",
    ]
    assert shapes.instance(nodes[0])["confinement"] == _WHY
    assert shapes.instance(nodes[-1])["confinement"] is None
