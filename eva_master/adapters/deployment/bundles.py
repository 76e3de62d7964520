"""The parameters of the template that state the bundles of a cluster."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from eva_master.adapters.bundling.found import Bundles, stated

_BUCKET = "s3://BUCKET/"
"""Place of a bundle before the stack exists, for the bucket has no name then."""


def stated_by(bundles: Bundles, had: str = "") -> dict[str, str]:
    """The parameters for bundles.

    Args:
        bundles: The bundles.
        had: The cluster's present ``WorkerBundles``; those of other architectures stay.
    """
    workers = {kind: _BUCKET + stated(file) for kind, file in bundles.workers.items()}
    workers = dict(sorted({**(yaml.safe_load(had) or {}), **workers}.items()))
    return {
        "MasterBundle": stated(bundles.master),
        "WorkerBundles": yaml.safe_dump(workers, default_flow_style=True, width=10_000).strip(),
    }


def stated_in(parameters: Mapping[str, str]) -> dict[str, str]:
    """The bundles of a stack as they are stated, by architecture; the master's has none."""
    workers = yaml.safe_load(parameters.get("WorkerBundles", "")) or {}
    bundles = {kind: place.removeprefix(_BUCKET) for kind, place in workers.items()}
    return {"": parameters["MasterBundle"], **bundles}


def unmade() -> dict[str, str]:
    """The parameters for bundles that are still to be made."""
    bundle = "bundles/to-be-made.tar#sha256=" + "0" * 64
    return {"MasterBundle": bundle, "WorkerBundles": f"{{x86_64: '{_BUCKET}{bundle}'}}"}
