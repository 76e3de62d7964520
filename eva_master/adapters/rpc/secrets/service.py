"""The Secrets service: sets, lists and removes secrets; no answer has a value."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TypeVar

import structlog

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.handlers import Context, repeated, to_the_end
from eva_master.adapters.rpc.server.access import caller
from eva_master.adapters.secrets.vault import SecretRecord, SecretVault
from eva_master.model.accounting.tenants import TenantRules
from eva_master.model.events import SecretChanged
from eva_master.model.secrets import Holder, HolderKind, SecretName
from eva_wire._proto.api_pb2_grpc import SecretsServicer
from eva_wire.values.errors import NotAuthorised, NotFound, StorageFull
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.users import Role

T = TypeVar("T")

_JOBS = 5
"""Jobs that an answer names at most."""

log = structlog.get_logger(__name__)


class SecretsService(SecretsServicer):
    """Sets, lists and removes secrets; behind an `AccessInterceptor`.

    Args:
        gateway: Connects to the control loop, where jobs wait for secrets.
        vault: The secrets of this cluster.
        tenants: Tenants of owners.
    """

    def __init__(self, gateway: LoopGateway, vault: SecretVault, tenants: TenantRules) -> None:
        self._gateway = gateway
        self._vault = vault
        self._tenants = tenants
        # The control loop hears of changes in the order in which they were made.
        self._changing = asyncio.Lock()

    async def Set(  # noqa: N802
        self,
        request: pb.SetSecretRequest,
        context: Context,
    ) -> pb.SetSecretResponse:
        """Set a secret; attempts that begin from now on get the new value."""
        secret, by = (self._holder(request.tenant), request.name), caller().owner
        change = partial(self._vault.set, secret, request.value, by=by)
        record, new = await to_the_end(self._changed(change, secret, present=True))
        if new:
            holder, kind = secret[0].name, secret[0].kind.value
            version = record.version
            log.info("secret set", name=record.name, of=holder, kind=kind, version=version, by=by)
        jobs = await self._users(secret)
        return pb.SetSecretResponse(
            secret=_message(record, self._vault.now()),
            unchanged=not new and not repeated(context),
            jobs=jobs[:_JOBS],
            job_count=len(jobs),
        )

    async def List(  # noqa: N802
        self,
        request: pb.ListSecretsRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.ListSecretsResponse:
        """List the caller's secrets and those of the caller's tenant, or another tenant's."""
        if request.tenant:
            holders = [self._holder(request.tenant)]
        else:
            owner = caller().owner
            holders = [Holder.user(owner), Holder.tenant(self._tenants.of(owner))]
        now = self._vault.now()
        records = self._vault.of(*holders)
        return pb.ListSecretsResponse(secrets=[_message(record, now) for record in records])

    async def Remove(  # noqa: N802
        self,
        request: pb.RemoveSecretRequest,
        context: Context,
    ) -> pb.RemoveSecretResponse:
        """Remove a secret; attempts that have begun keep it, and the next ones wait for it.

        A repeated call finds none, and is answered as the one was whose answer was lost.
        """
        secret, by = (self._holder(request.tenant), request.name), caller().owner
        change = partial(self._vault.remove, secret)
        try:
            await to_the_end(self._changed(change, secret, present=False))
            log.info("secret removed", name=secret[1], of=secret[0].name, by=by)
        except NotFound:
            if not repeated(context):
                raise
        jobs = await self._users(secret, missing=True)
        return pb.RemoveSecretResponse(jobs=jobs[:_JOBS], job_count=len(jobs))

    def _holder(self, tenant: str) -> Holder:
        """The holder of a secret that the caller changes.

        Raises:
            NotAuthorised: The secret is a tenant's, and the caller is no operator.
            NotFound: There is no such tenant.
        """
        who = caller()
        if not tenant:
            return Holder.user(who.owner)
        if who.role is not Role.OPERATOR:
            raise NotAuthorised(
                f"the secrets of a tenant are set by operators; you are {who.owner}, with role"
                f" {who.role}",
                hint="set one of your own, which comes first; or ask an operator",
            )
        if tenant not in self._tenants.names:
            raise NotFound(
                f"there is no tenant {tenant[:80]!r}",
                hint=f"tenants are {', '.join(islice(self._tenants.names, 20))}",
            )
        return Holder.tenant(tenant)

    async def _changed(self, change: Callable[[], T], secret: SecretName, *, present: bool) -> T:
        """Set or remove a secret, and have the control loop know; without that its jobs may wait.

        Args:
            change: Changes the store.
            secret: The secret.
            present: Whether it is there afterwards.
        """
        async with self._changing:
            result = await asyncio.to_thread(change)
            event = SecretChanged(uuid.uuid4().hex, secret, present, caller().owner)
            with contextlib.suppress(StorageFull):  # The loop hears of it once it goes on.
                await self._gateway.command(event, done=True)
        return result

    async def _users(self, secret: SecretName, *, missing: bool = False) -> list[JobId]:
        """Jobs that may use a secret and have not ended, the newest first.

        Args:
            secret: The secret.
            missing: Whether only jobs count for which it is missing now.
        """
        holder, name = secret
        whose = holder.kind is HolderKind.TENANT

        def uses() -> list[JobId]:
            return [
                job.id
                for job in model.newest()
                if name in (job.missing_secrets if missing else job.spec.secrets)
                and holder.name == (job.spec.tenant if whose else job.spec.owner)
            ]

        model = await self._gateway.model()
        return await self._gateway.read(lambda _: uses())


def _message(record: SecretRecord, now: Millis) -> pb.Secret:
    return pb.Secret(
        name=record.name,
        tenant=record.holder.name if record.holder.kind is HolderKind.TENANT else "",
        version=record.version,
        set_ms=record.set_ms,
        set_by=record.set_by,
        unreadable=record.unreadable,
        now_ms=now,
    )
