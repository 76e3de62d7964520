"""Services of a test's master."""

from __future__ import annotations

from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.objects.promises import Promises
from eva_master.adapters.rpc.server.cluster import About, ClusterService
from eva_master.adapters.rpc.server.files.service import FilesService
from eva_master.model.accounting.tenants import TenantRules
from eva_master.ports import Clock, ObjectStore, RoundHistory
from eva_master.ports.reading import Archive


def files_service(
    gateway: LoopGateway, archive: Archive, store: ObjectStore, promises: Promises
) -> FilesService:
    """The files of a cluster whose workers share nothing."""
    return FilesService(
        gateway=gateway, archive=archive, store=store, clock=SystemClock(), promises=promises
    )


def cluster_service(
    gateway: LoopGateway,
    archive: Archive,
    history: RoundHistory,
    tenants: TenantRules,
    clock: Clock,
) -> ClusterService:
    """The figures of a cluster."""
    return ClusterService(
        gateway=gateway,
        clock=clock,
        about=About("test", "first-fit", "0.0", '{"policy": "first-fit"}'),
        history=history,
        archive=archive,
        tenants=tenants,
    )
