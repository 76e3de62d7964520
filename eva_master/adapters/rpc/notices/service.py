"""The Notices service: shows operators how receivers fare, and tries them out."""

from __future__ import annotations

import asyncio

import structlog

from eva_master.adapters.notices.sender import NoticeSender
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.handlers import Context
from eva_master.adapters.rpc.server.access import caller
from eva_master.ports import Clock
from eva_wire._proto.api_pb2_grpc import NoticesServicer

log = structlog.get_logger(__name__)


class NoticesService(NoticesServicer):
    """Lists receivers and tries them out; behind an `AccessInterceptor`.

    Args:
        sender: Sends notices.
        clock: The loop's time.
    """

    def __init__(self, sender: NoticeSender, clock: Clock) -> None:
        self._sender, self._clock = sender, clock
        # A receiver is tried once at a time, whatever operators ask for.
        self._trying = asyncio.Lock()

    async def List(  # noqa: N802
        self,
        request: pb.ListReceiversRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.ListReceiversResponse:
        """Tell how each receiver fares."""
        return pb.ListReceiversResponse(
            now_ms=self._clock.now(),
            receivers=[
                pb.Receiver(
                    name=status.name,
                    url=status.url,
                    waiting=status.waiting,
                    sent=status.sent,
                    dropped=status.dropped,
                    failing_ms=status.failing_ms or 0,
                    reason=status.reason,
                    attention=status.attention,
                )
                for status in self._sender.statuses
            ],
        )

    async def Test(  # noqa: N802
        self,
        request: pb.TestNoticeRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.TestNoticeResponse:
        """Send a notice as a trial."""
        async with self._trying:
            trials = await self._sender.try_out(request.receiver)
        for trial in trials:
            log.info(
                "notice sent as a trial",
                receiver=trial.receiver,
                accepted=trial.accepted,
                status=trial.status,
                by=caller().owner,
            )
        return pb.TestNoticeResponse(
            trials=[
                pb.NoticeTrial(
                    receiver=trial.receiver,
                    url=trial.url,
                    accepted=trial.accepted,
                    status=trial.status,
                    took_ms=trial.took_ms,
                    reason=trial.reason,
                    hint=trial.hint,
                )
                for trial in trials
            ]
        )
