"""Under which address a worker says that others reach it."""

from __future__ import annotations

import socket

import pytest

from eva_worker.link import address
from eva_worker.link.address import own_address, route_to


@pytest.mark.parametrize("master", ["127.0.0.1:7412", "localhost:7412"])
def test_a_master_on_this_machine_is_reached_over_the_loopback(master: str) -> None:
    assert route_to(master) in {"127.0.0.1", "::1"}


def test_a_name_without_an_address_is_an_error() -> None:
    with pytest.raises(socket.gaierror):
        route_to("no-such-host.invalid:7412")


async def test_what_is_stated_is_believed() -> None:
    assert await own_address("10.1.2.3", "no-such-host.invalid:1") == "10.1.2.3"


async def test_a_network_that_comes_up_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def down_at_first(target: str) -> str:
        tries.append(target)
        if len(tries) < 2:
            raise socket.gaierror("Temporary failure in name resolution")
        return "10.1.2.3"

    monkeypatch.setattr(address, "route_to", down_at_first)
    assert await own_address("", "master:7412") == "10.1.2.3"
    assert tries == ["master:7412"] * 2
