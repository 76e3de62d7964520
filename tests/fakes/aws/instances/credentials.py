"""Credentials of an instance's role as its metadata service gives them, or fails to.

Their form, and 503 for a question that is to be repeated:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html. While the
service behind it cannot be had, the metadata service may give credentials that have expired, which
botocore then uses for 12 to 20 minutes (`InstanceMetadataFetcher._evaluate_expiration`).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Any

EXPIRED = "expired"
"""Session token of credentials that have expired."""
_LIFE = timedelta(hours=6)
_REFUSALS = {
    # "If you're using temporary security credentials, this error can also occur if the credentials
    # have expired": RequestExpired in
    # https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
    "ec2": "RequestExpired",
    # https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
    "s3": "ExpiredToken",
    # https://docs.aws.amazon.com/systems-manager/latest/APIReference/CommonErrors.html
    "ssm": "ExpiredTokenException",
}


class Miss(Enum):
    """A way in which the credentials service misses an answer."""

    SILENCE = auto()
    """Nothing comes before the caller gives up, of a session token or credentials."""
    ERROR = auto()
    EXPIRED = auto()


def credentials(access_key: str = "testing", *, expired: bool = False) -> bytes:
    """The document with a role's credentials."""
    now = datetime.now(UTC)
    until = now - timedelta(minutes=1) if expired else now + _LIFE
    document = {
        "Code": "Success",
        "Type": "AWS-HMAC",
        "AccessKeyId": access_key,
        "SecretAccessKey": "testing",
        "Token": EXPIRED if expired else "testing",
        "LastUpdated": f"{until - _LIFE:%Y-%m-%dT%H:%M:%SZ}",
        "Expiration": f"{until:%Y-%m-%dT%H:%M:%SZ}",
    }
    return json.dumps(document).encode()


def refusal(environ: dict[str, Any]) -> str:
    """The code with which AWS refuses a call for its credentials; empty if it takes them."""
    if environ.get("HTTP_X_AMZ_SECURITY_TOKEN") != EXPIRED:
        return ""
    if environ.get("HTTP_X_AMZ_TARGET"):
        return _REFUSALS["ssm"]
    form = environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded")
    return _REFUSALS["ec2" if form else "s3"]
