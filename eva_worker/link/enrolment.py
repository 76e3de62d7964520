"""How the agent gets its certificate and renews it in time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import grpc
import structlog

from eva_worker._proto import worker_pb2 as pb
from eva_worker._proto.worker_pb2_grpc import EnrolmentStub, WorkersStub
from eva_worker.errors import BadIdentity, NotEnrolled
from eva_worker.link.channel import dial, reason_of
from eva_worker.link.identity import Credentials, Identity
from eva_worker.process.backoff import Backoff

if TYPE_CHECKING:
    from eva_worker._proto.worker_pb2_grpc import EnrolmentAsyncStub, WorkersAsyncStub

_ANSWER_S = 10.0
_LONGEST_SLEEP_S = 60.0
"""Longest wait between two looks at the clock, since a machine may sleep and its clock be set."""

_log = structlog.get_logger()


class Enrolment:
    """Gets certificates from the master.

    Args:
        identity: The files that they are kept in.
        instance: The instance's id.
        join: ``HOST:PORT`` at which the master accepts join tokens; empty if there is none.
        token: The join token; empty if there is none.
        authorities: PEM certificates that the master is verified with at first.
    """

    def __init__(
        self, identity: Identity, instance: str, *, join: str, token: str, authorities: str
    ) -> None:
        self._identity = identity
        self._instance = instance
        self._join_address = join
        self._token = token
        self._authorities = authorities.encode()

    async def credentials(self) -> Credentials:
        """The credentials to connect with: those on disk, or new ones for the join token.

        Raises:
            NotEnrolled: There are none now. The message says why, and what to do.
        """
        try:
            kept = await asyncio.to_thread(self._identity.load)
        except BadIdentity as error:
            raise NotEnrolled(f"{error}; remove it, and start with a new join token") from error
        if kept is not None and not kept.expired:
            return kept
        why = f"{_expired(kept)}; " if kept else ""
        if not (self._token and self._join_address and self._authorities):
            raise NotEnrolled(
                f"{why}there is no join token to get one with: the master replaces an instance "
                "that does not come back; to keep this one, start the worker with a new token"
            )
        try:
            return await self._join()
        except NotEnrolled as error:
            raise NotEnrolled(f"{why}{error}") from error

    async def _join(self) -> Credentials:
        request = pb.JoinRequest(
            instance_id=self._instance,
            token=self._token,
            signing_request=await asyncio.to_thread(self._identity.signing_request),
        )
        async with dial(self._join_address, authorities=self._authorities) as channel:
            stub = cast("EnrolmentAsyncStub", EnrolmentStub(channel))
            try:
                answer = await stub.Join(request, timeout=_ANSWER_S)
            except grpc.aio.AioRpcError as error:
                raise NotEnrolled(
                    f"cannot join the cluster at {self._join_address}: {reason_of(error)}"
                ) from error
        _log.info("joined", master=self._join_address)
        return await self._keep(answer)

    async def renew(self, channel: grpc.aio.Channel, present: Credentials) -> Credentials:
        """Wait until it is time and get the next certificate, however long that takes.

        Args:
            channel: A channel to the master with the present credentials.
            present: The credentials in force until then.
        """
        while (left := (present.renew - datetime.now(UTC)).total_seconds()) > 0:
            await asyncio.sleep(min(left, _LONGEST_SLEEP_S))
        stub = cast("WorkersAsyncStub", WorkersStub(channel))
        backoff = Backoff()
        while True:
            try:
                request = await asyncio.to_thread(self._identity.signing_request)
                answer = await stub.Renew(
                    pb.RenewRequest(signing_request=request), timeout=_ANSWER_S
                )
                renewed = await self._keep(answer)
            except grpc.aio.AioRpcError as error:
                reason = reason_of(error)
            except (NotEnrolled, OSError) as error:
                reason = str(error)
            else:
                _log.info("certificate renewed", until=f"{renewed.expires:%Y-%m-%dT%H:%M:%SZ}")
                return renewed
            pause = backoff.next_s()
            _log.warning(
                "certificate not renewed",
                reason=reason,
                expires=f"{present.expires:%Y-%m-%dT%H:%M:%SZ}",
                again_in_s=round(pause, 2),
            )
            await asyncio.sleep(pause)

    async def _keep(self, answer: pb.Identity) -> Credentials:
        try:
            return await asyncio.to_thread(
                self._identity.keep, answer.certificate, answer.authorities
            )
        except BadIdentity as error:
            raise NotEnrolled(f"the master's answer cannot be used: {error}") from error


def _expired(kept: Credentials) -> str:
    at, now = (f"{it:%Y-%m-%d %H:%M:%S} UTC" for it in (kept.expires, datetime.now(UTC)))
    return f"the certificate expired at {at}, and by this machine's clock it is {now}"
