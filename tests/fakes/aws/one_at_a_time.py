"""moto, asked by one request at a time."""

import contextlib
import io
import threading
from collections.abc import Callable, Iterable
from typing import Any


class OneAtATime:
    """WSGI around moto's application, whose state has no locks of its own.

    A description beside a termination would find a volume that matched the filter and has no
    attachment, or a dictionary that changes while it is read: an error 500.

    Args:
        moto: The application.
    """

    def __init__(self, moto: Callable[..., Iterable[bytes]]) -> None:
        self._moto = moto
        self.lock = threading.RLock()
        """Held by each request, and by whatever else reads moto's state."""

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        if length := environ.get("CONTENT_LENGTH"):
            # A slow sender holds up no other.
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
        with self.lock, contextlib.ExitStack() as after:
            answer = self._moto(environ, start)
            if hasattr(answer, "close"):
                after.callback(answer.close)
            return list(answer)
