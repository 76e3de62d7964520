"""Makes the local cloud of a master from its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from eva_client.settings import client_file, user_config_dir
from eva_master.adapters.bootstrap import Bootstrap
from eva_master.adapters.local.cloud import WORKER, Containers, LocalCloud, LocalCloudConfig
from eva_master.app.clouds.local.section import CLOUD, section_of
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
    """Make the cloud whose instances are processes of this machine."""
    local = section_of(config)
    behaviour = LocalCloudConfig(launch_delay_ms=local.launch_delay, hidden=_secrets(config))
    if local.data_rate_mib is not None:
        behaviour = replace(behaviour, read_rate=local.data_rate_mib * _MIB)
    if local.spot is not None:
        life = local.spot.expected_life if local.spot.interruptions == "random" else None
        behaviour = replace(
            behaviour, notice_ms=local.spot.notice, spot_life_ms=life, seed=local.spot.seed
        )
    if local.runtime == "docker":
        assert local.docker_host, "not settled"
        gateway = ""
        if config.isolation.network == "own":
            from eva_master.adapters.local.engine import Engine

            with Engine(local.docker_host) as engine:
                gateway = engine.gateway()
        containers = Containers(local.docker_host, local.docker_image or "", gateway)
        behaviour = replace(behaviour, containers=containers)
    return LocalCloud(
        config.state_dir / CLOUD,
        inbox,
        clock,
        bootstrap=bootstrap,
        config=behaviour,
        worker_command=worker_command,
    )


def _secrets(config: MasterConfig) -> list[Path]:
    """Paths of the master and its users that a task on this machine must not see."""
    urls = [urlsplit(url) for url in (config.journal_url, config.objects_url)]
    # The path of a database begins with one slash more than that of a file.
    paths = [unquote(url.path) for url in urls if url.scheme in {"file", "sqlite"}]
    named = [Path("/", path.lstrip("/")) for path in paths]
    settings = client_file()
    users = [user_config_dir(), *([settings] if settings else [])]
    return [place.absolute() for place in (config.state_dir, *named, *users)]
