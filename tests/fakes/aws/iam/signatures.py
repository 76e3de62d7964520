"""STS's GetCallerIdentity: checks signatures as AWS documents them, by its own arithmetic.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from calendar import timegm
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote

from tests.fakes.aws.service import CREDENTIALS, DEPLOYER, REGION

_SKEW_S = 300
_ALGORITHM = "AWS4-HMAC-SHA256"
USUAL = {
    CREDENTIALS["aws_access_key_id"]: {
        "secret": CREDENTIALS["aws_secret_access_key"],
        "arn": DEPLOYER,
    }
}
"""Credentials by access key."""


class Unsigned(Exception):
    """A request is refused, with a code of AWS's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def caller(environ: Mapping[str, Any], body: bytes, known: Mapping[str, Mapping[str, str]]) -> str:
    """The ARN of the signer of a request, by its query or by its headers.

    Args:
        environ: Of WSGI.
        body: The request's.
        known: Credentials by access key.

    Raises:
        Unsigned: The signature is missing or wrong.
    """
    query = parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    terms = dict(query)
    presigned = "X-Amz-Signature" in terms
    if not presigned:
        header = environ.get("HTTP_AUTHORIZATION", "")
        terms = {f"X-Amz-{key}": value for key, value in re.findall(r"(\w+)=([^,\s]+)", header)} | {
            "X-Amz-Algorithm": header.partition(" ")[0],
            "X-Amz-Date": environ.get("HTTP_X_AMZ_DATE", ""),
            "X-Amz-Security-Token": environ.get("HTTP_X_AMZ_SECURITY_TOKEN", ""),
        }
    if terms.get("X-Amz-Algorithm") != _ALGORITHM or not terms.get("X-Amz-Credential"):
        raise Unsigned("MissingAuthenticationToken", "Request is missing Authentication Token")
    key, day, region, service, end = terms["X-Amz-Credential"].split("/")
    if (region, service, end) != (REGION, "sts", "aws4_request"):
        raise Unsigned("SignatureDoesNotMatch", "Credential should be scoped to a valid region")
    _check_date(terms, presigned=presigned)
    owner = known.get(key)
    if owner is None or owner.get("token", "") != terms.get("X-Amz-Security-Token", ""):
        raise Unsigned("InvalidClientTokenId", "The security token included in it is invalid")
    names = terms["X-Amz-SignedHeaders"].split(";")
    # "You must include the host header", and whatever header of AWS's the request has.
    amazon = {
        name.removeprefix("HTTP_").replace("_", "-").lower()
        for name in environ
        if name.startswith("HTTP_X_AMZ_")
    }
    if "host" not in names or not amazon <= {*names}:
        raise Unsigned("SignatureDoesNotMatch", "a header is not signed")
    headers = "".join(f"{name}:{_header(environ, name)}\n" for name in names)
    signed_query = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~"))
        for name, value in query
        if name != "X-Amz-Signature"
    )
    canonical = "\n".join(
        [
            environ["REQUEST_METHOD"],
            quote(environ["PATH_INFO"] or "/", safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in signed_query),
            headers,
            terms["X-Amz-SignedHeaders"],
            hashlib.sha256(body).hexdigest(),
        ]
    )
    scope = f"{day}/{region}/{service}/{end}"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join([_ALGORITHM, terms["X-Amz-Date"], scope, digest])
    secret = f"AWS4{owner['secret']}".encode()
    for part in (day, region, service, end):
        secret = hmac.digest(secret, part.encode(), "sha256")
    expected = hmac.digest(secret, text.encode(), "sha256").hex()
    if not hmac.compare_digest(expected, terms["X-Amz-Signature"]):
        raise Unsigned("SignatureDoesNotMatch", "The request signature does not match")
    return owner["arn"]


def _check_date(terms: Mapping[str, str], *, presigned: bool) -> None:
    made_s = timegm(time.strptime(terms["X-Amz-Date"], "%Y%m%dT%H%M%SZ"))
    age_s = time.time() - made_s
    longest_s = int(terms["X-Amz-Expires"]) if presigned else _SKEW_S
    if not -_SKEW_S <= age_s <= longest_s:
        raise Unsigned("SignatureDoesNotMatch", "Signature expired")


def _header(environ: Mapping[str, Any], name: str) -> str:
    plain = name.upper().replace("-", "_")
    value = environ.get(plain if plain in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{plain}")
    if value is None:
        raise Unsigned("SignatureDoesNotMatch", f"the header {name} is missing")
    return " ".join(str(value).split())


def answer(arn: str) -> bytes:
    """The document that names a caller."""
    account = arn.split(":")[4]
    return (
        "<GetCallerIdentityResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'>"
        f"<GetCallerIdentityResult><Arn>{arn}</Arn><UserId>AIDAEXAMPLE</UserId>"
        f"<Account>{account}</Account></GetCallerIdentityResult><ResponseMetadata>"
        "<RequestId>0</RequestId></ResponseMetadata></GetCallerIdentityResponse>"
    ).encode()


def refusal(error: Unsigned) -> bytes:
    """The document of a refusal."""
    return (
        "<ErrorResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><Error>"
        f"<Type>Sender</Type><Code>{error.code}</Code><Message>{error}</Message></Error>"
        "<RequestId>0</RequestId></ErrorResponse>"
    ).encode()
