"""The Notices service of an API that answers as it is told."""

from __future__ import annotations

from typing import Any

from eva_wire._proto import api_pb2 as pb
from eva_wire._proto import api_pb2_grpc


class NoticesApi(api_pb2_grpc.NoticesServicer):
    """Receivers of notices, and results of trials by receiver."""

    def __init__(self) -> None:
        self.receivers: list[pb.Receiver] = []
        self.trials: dict[str, pb.NoticeTrial] = {}
        self.now_ms = 0

    def List(self, request: pb.ListReceiversRequest, context: Any) -> pb.ListReceiversResponse:
        return pb.ListReceiversResponse(receivers=self.receivers, now_ms=self.now_ms)

    def Test(self, request: pb.TestNoticeRequest, context: Any) -> pb.TestNoticeResponse:
        names = [request.receiver] if request.receiver else list(self.trials)
        return pb.TestNoticeResponse(trials=[self.trials[name] for name in names])
