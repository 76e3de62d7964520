"""The connection of a client to its master, with errors as the master meant them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Self, TypeVar

import grpc

from eva_client.rpc import faults
from eva_wire.rpc.channels import open_channel

Request = TypeVar("Request")
Response = TypeVar("Response")
Entry = TypeVar("Entry")

PAGE = 500
"""Entries that are asked for at a time."""


class Connection:
    """A connection to a master; see `eva_client.rpc.master.Client`."""

    def __init__(
        self, address: str, *, authorities: bytes, token: str, timeout_s: float = 30.0
    ) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._channel = open_channel(address, authorities=authorities, token=token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; streams that are being read end."""
        self._channel.close()

    def _call(
        self,
        method: grpc.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        timeout_s: float | None = None,
    ) -> Response:
        with self._translated():
            return method(request, timeout=timeout_s or self._timeout_s)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as failure:
            raise faults.translated(failure, self._address) from failure


def paged(page: Callable[[str], tuple[Iterable[Entry], str]]) -> Iterator[Entry]:
    """The entries of all pages; `page` fetches the one that a token names, and the next token."""
    token = ""
    while True:
        entries, token = page(token)
        yield from entries
        if not token:
            return


def command_id() -> str:
    """An id for a command, which may be repeated with it."""
    return str(uuid.uuid4())
