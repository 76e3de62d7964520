"""Headers of a notice: receivers see whom it comes from, and whether they had it already."""

from __future__ import annotations

import hashlib
import hmac

from eva_wire import VERSION

_VERSION = "v1"


def headers(
    delivery: str, content_type: str, body: bytes, *, secret: bytes | None, now_s: int
) -> dict[str, str]:
    """The headers of a delivery.

    Args:
        delivery: The id of the delivery.
        content_type: Of the body.
        body: Content of the delivery.
        secret: The receiver's; `None` to sign nothing.
        now_s: Seconds since the epoch by the wall clock.
    """
    made = {
        "User-Agent": f"eva/{VERSION}",
        "Content-Type": content_type,
        "Eva-Delivery": delivery,
        "Eva-Timestamp": str(now_s),
    }
    if secret is not None:
        signed = hmac.new(secret, f"{now_s}.".encode() + body, hashlib.sha256)
        made["Eva-Signature"] = f"{_VERSION}={signed.hexdigest()}"
    return made
