"""A master's emulated instances: what its settings come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eva_master.adapters.bootstrap import Bootstrap
from eva_master.adapters.local.cloud import WORKER, Containers, LocalCloud, LocalCloudConfig
from eva_master.app.clouds.local.section import section_of
from eva_master.app.config import MasterConfig
from eva_master.ports import Clock, Inbox

_MIB = 1024 * 1024


def local_cloud(
    config: MasterConfig,
    inbox: Inbox,
    clock: Clock,
    bootstrap: Bootstrap,
    *,
    worker_command: Sequence[str] = WORKER,
) -> LocalCloud:
    """The cloud of this machine's processes."""
    local = section_of(config)
    behaviour = LocalCloudConfig(launch_delay_ms=local.launch_delay)
    if local.data_rate_mib is not None:
        behaviour = replace(behaviour, read_rate=local.data_rate_mib * _MIB)
    if local.runtime == "docker":
        assert local.docker_host, "not settled"
        containers = Containers(local.docker_host, local.docker_image or "")
        behaviour = replace(behaviour, containers=containers)
    return LocalCloud(
        config.state_dir / "cloud",
        inbox,
        clock,
        bootstrap=bootstrap,
        config=behaviour,
        worker_command=worker_command,
    )
