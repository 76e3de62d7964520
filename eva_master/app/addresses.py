"""The addresses of a master: where it listens, and under which names it is reached."""

from __future__ import annotations

from eva_master.app.config import MasterConfig


def hosts(config: MasterConfig) -> list[str]:
    """Hosts that the master's certificate is to name, for programs that look at the address."""
    return sorted({dialled(config, address) for address in (config.listen, config.worker_address)})


def listened(config: MasterConfig) -> dict[str, str]:
    """The addresses that the master listens on, by the name of the setting."""
    addresses = {"listen": config.listen, "worker_listen": config.worker_address}
    if config.ui.listen is not None:
        addresses["ui.listen"] = config.ui.listen
    if config.metrics_port is not None:
        addresses["metrics_port"] = f"{host(config.listen)}:{config.metrics_port}"
    return addresses


def host(address: str) -> str:
    """The host of an address ``HOST:PORT``."""
    return address.rpartition(":")[0]


def dialled(config: MasterConfig, address: str) -> str:
    """The host under which a port of this machine is reached."""
    name = config.advertise or host(address)
    return "127.0.0.1" if name in ("0.0.0.0", "[::]") else name  # noqa: S104 - a comparison
