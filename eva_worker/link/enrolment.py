"""How the agent gets its certificate and renews it in time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import grpc
import structlog

from eva_wire._proto import worker_pb2 as pb
from eva_wire._proto.worker_pb2_grpc import EnrolmentStub, WorkersStub
from eva_worker.errors import BadIdentity, NotEnrolled
from eva_worker.link.channel import dial, reason_of
from eva_worker.link.identity import Credentials, Identity
from eva_worker.process import lease
from eva_worker.process.backoff import Backoff

if TYPE_CHECKING:
    from eva_wire._proto.worker_pb2_grpc import EnrolmentAsyncStub, WorkersAsyncStub

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

    Attributes:
        doubt: Why the master may refuse the credentials, and what to do; empty for no reason.
    """

    def __init__(
        self, identity: Identity, instance: str, *, join: str, token: str, authorities: str
    ) -> None:
        self._identity = identity
        self._instance = instance
        self._join_address = join
        self._token = token
        self._authorities = authorities.encode()
        self._got_ms: int | None = None
        self.doubt = ""

    async def credentials(self) -> Credentials:
        """The credentials to connect with: those on disk, or new ones for the join token.

        A certificate that has expired by the clock of this machine is shown to the master if there
        is no other: the clock may be wrong.

        Raises:
            NotEnrolled: There are none now. The message says why, and what to do.
        """
        try:
            kept = await asyncio.to_thread(self._identity.load)
        except BadIdentity as error:
            raise NotEnrolled(f"{error}; remove it, and start with a new join token") from error
        self.doubt = ""
        if kept is not None and not kept.expired:
            return kept
        why = f"{_expired(kept)}; " if kept else ""
        try:
            if not (self._token and self._join_address and self._authorities):
                raise NotEnrolled(
                    "there is no join token to get one with: the master replaces an instance "
                    "that does not come back; to keep this one, start the worker with a new token"
                )
            return await self._join()
        except NotEnrolled as error:
            if kept is None:
                raise
            self.doubt = f"{why}{error}"
            return kept

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
        while (wait_s := present.due_in_s(datetime.now(UTC), self._held_s())) > 0:
            await asyncio.sleep(min(wait_s, _LONGEST_SLEEP_S))
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

    def _held_s(self) -> float | None:
        """For how long the present certificate has been held; `None` if another agent got it."""
        return None if self._got_ms is None else (lease.now_ms() - self._got_ms) / 1000

    async def _keep(self, answer: pb.Identity) -> Credentials:
        try:
            got = await asyncio.to_thread(
                self._identity.keep, answer.certificate, answer.authorities
            )
            self._got_ms = lease.now_ms()
            return got
        except BadIdentity as error:
            raise NotEnrolled(f"the master's answer cannot be used: {error}") from error


def _expired(kept: Credentials) -> str:
    at, now = (f"{time:%Y-%m-%d %H:%M:%S} UTC" for time in (kept.expires, datetime.now(UTC)))
    return f"the certificate expired at {at}, and by this machine's clock it is {now}"
