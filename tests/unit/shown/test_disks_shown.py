"""Disk in `eva nodes`: as soon as a task needs any."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from eva_client.cli.views import tables
from eva_wire.rpc.messages import ClusterState, Instance
from eva_wire.rpc.messages import Resources as Amount

GIB = 1_024


def shown(used_gib: int) -> list[str]:
    """The lines of the table of one instance."""
    room = Amount(milli_cpus=2_000, memory_mib=4 * GIB, disk_mib=200 * GIB)
    used = Amount(milli_cpus=1_000, memory_mib=GIB, disk_mib=used_gib * GIB)
    instance = Instance(id="i00001", type="c7i.large", state="ready", capacity=room, used=used)
    console = Console(file=io.StringIO(), width=120)
    console.print(tables.nodes(ClusterState(instances=[instance]), [instance]))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("used", "cells"), [(0, ()), (150, ("DISK", "150/200 GiB"))])
def test_the_disk_is_shown_where_a_task_needs_any(used: int, cells: tuple[str, ...]) -> None:
    heading, row, *_ = shown(used)
    assert ("DISK" in heading) is bool(cells)
    assert [cell for cell in cells if cell in f"{heading} {row}"] == [*cells]
