"""A whole cluster for a test whose instances come from EC2's API and really boot."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from eva_master.adapters.catalog import load_catalog
from tests.e2e.cluster import PROGRAMS, Cluster, log_end, until
from tests.fakes.aws.purchases import check_ended
from tests.fakes.aws.service import CREDENTIALS, REGION, Aws
from tests.fakes.ec2 import bundle
from tests.fakes.ec2.hypervisor import Hypervisor, described
from tests.fakes.ec2.machine import BLACK_BOX_PORT
from tests.fakes.hosts import image as hosts_image
from tests.fakes.hosts.site import VARIABLE, Site

TYPES: dict[str, Any] = {
    "types": {
        "c5.large": {"cpus": 2, "memory": "4GiB", "price": "$0.085/h"},
        "c5.xlarge": {"cpus": 4, "memory": "8GiB", "price": "$0.17/h"},
    },
    "only": ["c5"],
}
_RECIPE = Path(__file__).parents[3] / "deploy" / "ami" / "prepare.sh"
_ZONE = f"{REGION}a"
_SPOT_PRICE = 30_000
_ENDED_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC\)")


@dataclass(frozen=True)
class Bought:
    """An instance in the API's own record; the fields that `tests.e2e.accounts` looks at.

    Attributes:
        price: Micro-dollars per hour.
        up_ms: When its billing began.
        gone_ms: When it ended.
        ec2_id: The API's name of it.
        state: In the API's words.
        type: Name of the type.
    """

    ec2_id: str
    state: str
    type: str
    price: int
    up_ms: int | None
    gone_ms: int | None


class Ec2Cluster(Cluster):
    """A cluster of a master and of instances that it buys from a server in EC2's place.

    Every instance is a machine with its own network, processes, mounts and Docker engine, that
    runs its user data and is told nothing else.

    Args:
        settings: The master's, beyond those of `Cluster`.
        catalog: Offerings on sale.
        spot: Whether spot instances are for sale, too.
        ec2: The section `ec2` of the settings, beyond what points it at the stand-in.
        image: Whether instances boot an image that has the worker, by the project's own recipe.
        worker: The worker's bundle; made of the checkout if absent.
    """

    minimum_ms = 60_000

    def __init__(
        self,
        *,
        settings: Mapping[str, Any] | None = None,
        catalog: Mapping[str, Any] = TYPES,
        ec2: Mapping[str, Any] | None = None,
        spot: bool = False,
        image: bool = False,
        worker: Path | None = None,
    ) -> None:
        prepared = hosts_image.prepared()
        self.site = Site()
        self.aws = Aws(self.site.switch.address)
        self.bucket = self.aws.make_bucket()
        parts = urlsplit(self.bucket)
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")
        made = bundle.made() if worker is None else worker
        key = f"{self._prefix}/bundles/{made.name}"
        self.aws.client("s3").upload_file(str(made), self._bucket, key)
        digest = hashlib.sha256(made.read_bytes()).hexdigest()
        section = {
            "region": REGION,
            "zones": [_ZONE],
            "images": {"x86_64": "ami-12c6146b"},
            "endpoint": self.aws.url,
            "poll": "1s",
            "bundles": {} if image else {"x86_64": f"s3://{self._bucket}/{key}#sha256={digest}"},
            "docker_image": hosts_image.name(prepared),
            **(self._spot_section(catalog) if spot else {}),
            **(ec2 or {}),
        }
        recipe = (_RECIPE, made) if image else ()
        self.hypervisor = Hypervisor(self.aws, self.site, prepared / "data", recipe=recipe)
        super().__init__(
            self.site.path,
            settings={
                **{"objects": self.bucket, "cloud": "ec2", "ec2": section},
                # The engine of these machines has no bridge.
                "isolation": {"network": "host"},
                **(settings or {}),
            },
            catalog=catalog,
            command="master",
            host=self.site.switch.address,
        )
        self._prices = {it.type.name: it.price for it in load_catalog(self.home / "catalog.yaml")}
        self.hypervisor.start()

    def _spot_section(self, catalog: Mapping[str, Any]) -> dict[str, Any]:
        """Have the catalog's types sold on the spot market, too."""
        types = {
            name: {
                "architecture": "x86_64",
                "milli_cpus": kind["cpus"] * 1000,
                "memory_mib": int(kind["memory"].removesuffix("GiB")) * 1024,
                "price": _micro_usd(kind["price"]),
                "zones": [_ZONE],
                "spot": {_ZONE: _SPOT_PRICE},
            }
            for name, kind in catalog["types"].items()
        }
        taken = f"{datetime.now(UTC):%FT%TZ}"
        file = self.site.path / "snapshot.json"
        file.write_text(json.dumps({"region": REGION, "taken": taken, "types": types}))
        quoted = f"{_SPOT_PRICE / 1_000_000:.6f}"
        self.aws.set_spot_prices({f"{name}@{_ZONE}": quoted for name in types})
        return {"snapshot": str(file), "spot": {}}

    def environment(self) -> dict[str, str]:
        """See `Cluster.environment`."""
        credentials = {name.upper(): value for name, value in CREDENTIALS.items()}
        return {**super().environment(), **credentials, VARIABLE: str(self.site.path)}

    def job_file(self, name: str, **keys: Any) -> str:
        """See `Cluster.job_file`; the program runs in the image that all machines have."""
        run = f"exec env EVA_BLACK_BOX=127.0.0.1:{BLACK_BOX_PORT} python3 counter.py"
        return super().job_file(name, **{"run": run, **keys})

    def close(self) -> None:
        """See `Cluster.close`; ends the machines and the network, and removes all files."""
        try:
            self.hypervisor.close()
            super().close()
            check_ended(self.aws, self.state_dir / "journal.db")
        finally:
            self.aws.stop()
            self.site.close()
        assert self.hypervisor.failure is None, self.hypervisor.failure

    def processes(self) -> list[psutil.Process]:
        """See `Cluster.processes`; what runs in containers is not among them."""
        return self.site.processes()

    def records(self) -> dict[str, Bought]:  # type: ignore[override]
        """The API's own record of every instance, by the cluster's name of it."""
        found = {}
        bought = {launch["ec2_id"]: launch for launch in self.aws.purchases()}
        for instance in described(self.aws.client("ec2")):
            tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
            ended = _ENDED_AT.search(instance.get("StateTransitionReason", ""))
            found[tags["eva:instance"]] = Bought(
                ec2_id=instance["InstanceId"],
                state=instance["State"]["Name"],
                type=instance["InstanceType"],
                price=self._price(instance) + _attached(bought[instance["InstanceId"]]),
                up_ms=_millis(instance["LaunchTime"]),
                gone_ms=_millis(datetime.fromisoformat(ended[1]).replace(tzinfo=UTC))
                if ended
                else None,
            )
        return found

    def _price(self, instance: dict[str, Any]) -> int:
        spot = instance.get("InstanceLifecycle") == "spot"
        return _SPOT_PRICE if spot else self._prices[instance["InstanceType"]]

    def stored(self, prefix: str = "") -> dict[str, int]:
        """Keys in the bucket below a prefix, without that of the cluster, and their sizes."""
        start = f"{self._prefix}/"
        pages = self.aws.client("s3").get_paginator("list_objects_v2")
        return {
            entry["Key"].removeprefix(start): entry["Size"]
            for page in pages.paginate(Bucket=self._bucket, Prefix=start + prefix)
            for entry in page.get("Contents", ())
        }

    def read(self, key: str) -> str:
        """An object in the bucket; see `stored`."""
        found = self.aws.client("s3").get_object(Bucket=self._bucket, Key=f"{self._prefix}/{key}")
        return str(found["Body"].read().decode(errors="replace"))

    def until_empty(self) -> None:
        """Wait until no instance is left, in the master's books, in the API and as a machine."""
        until(lambda: not self.client.describe().instances, "all instances are gone")
        until(lambda: not self.hypervisor.booted(), "all machines are off")
        assert all(it.state == "terminated" for it in self.records().values())

    def logs(self) -> list[tuple[str, str]]:
        """See `Cluster.logs`."""
        machines = self.site.path / "machines"
        logs = [*machines.glob("*/*.log"), *machines.glob("*/log/eva-boot.log")]
        return super().logs() + [
            (str(path.relative_to(machines)), log_end(path)) for path in sorted(logs)
        ]


def _attached(bought: dict[str, Any]) -> int:
    """Price per hour of a volume and an address, in whole micro-dollars."""
    return round(bought["gib"] * 80_000 / 730) + (5_000 if bought["address"] else 0)


def _micro_usd(price: str) -> int:
    return round(float(price.strip("$/h")) * 1_000_000)


def _millis(time: datetime) -> int:
    return int(time.timestamp()) * 1000 + time.microsecond // 1000


__all__ = ["Ec2Cluster", "PROGRAMS"]
