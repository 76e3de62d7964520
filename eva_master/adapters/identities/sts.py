"""Asks AWS's Security Token Service whose signature a proof has."""

from __future__ import annotations

import asyncio
import re
import ssl
import xml.etree.ElementTree as Xml
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

import h11

from eva_master.adapters.answers import MOST_READ, AnswerReader, AnswerTooLarge
from eva_wire.rpc.identity import CALL, TERMS
from eva_wire.values.errors import CloudError, NotAuthenticated

TIMEOUT_S = 5.0
"""For the name, the connection and the whole answer."""
_OK = 200
_REFUSED = (400, 401, 403)
_LINE_BYTES = 16 << 10
_CODE = re.compile(r"[A-Za-z.]{1,64}")
_AGAIN = "try again; the master's network must reach STS"


@dataclass(frozen=True, slots=True)
class Proof:
    """The part of a presigned request that differs between requests.

    Attributes:
        nonce: The master's, in a header that is signed.
        credential: Access key and scope.
        date: When it was signed.
        signature: Over the request with all headers.
        session_token: Of temporary credentials; empty for others.
    """

    nonce: str
    credential: str
    date: str
    signature: str
    session_token: str = ""


def host_of(region: str) -> str:
    """The host of STS in a region."""
    return f"sts.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"


class Sts:
    """STS of one region, and no other host. Redirects are not followed, no proxy is used.

    Args:
        region: The region.
        endpoint: URL in place of AWS's own, for tests.
        timeout_s: How long a call may take.
        trust: Makes the context that its certificate is checked with.
    """

    def __init__(
        self,
        region: str,
        endpoint: str = "",
        *,
        timeout_s: float = TIMEOUT_S,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        url = urlsplit(endpoint or f"https://{host_of(region)}")
        self.region, self.host = region, url.netloc
        self._name, self._secure = url.hostname or "", url.scheme == "https"
        self._port = url.port or (443 if self._secure else 80)
        self._timeout_s = timeout_s
        self._trust = trust

    async def caller(self, proof: Proof, signed: Mapping[str, str]) -> str:
        """The ARN of the principal who has made a proof.

        Args:
            proof: The proof.
            signed: Headers that its signature must cover.

        Raises:
            NotAuthenticated: STS refuses the proof.
            CloudError: STS does not answer, or not as it should.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                status, body = await self._asked(_query(proof), signed)
        except TimeoutError:
            raise CloudError(
                f"{self.host} did not answer within {self._timeout_s:g} s", hint=_AGAIN
            ) from None
        except AnswerTooLarge:
            raise CloudError(
                f"the answer of {self.host} has more than {MOST_READ:,} bytes", hint=_AGAIN
            ) from None
        except h11.RemoteProtocolError:
            raise CloudError(f"{self.host} does not answer as HTTP does", hint=_AGAIN) from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise CloudError(f"{self.host} cannot be asked: {reason}", hint=_AGAIN) from None
        if status in _REFUSED:
            raise NotAuthenticated(
                f"AWS does not accept the proof of who you are: {_code(body)}",
                hint="see that `aws sts get-caller-identity` answers, and AWS_PROFILE",
            )
        if status != _OK:
            raise CloudError(f"{self.host} answers with status {status}", hint=_AGAIN)
        return self._arn(body)

    async def _asked(self, query: str, signed: Mapping[str, str]) -> tuple[int, bytes]:
        context = self._trust() if self._secure else None
        reader, writer = await asyncio.open_connection(
            self._name, self._port, ssl=context, limit=_LINE_BYTES
        )
        try:
            connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LINE_BYTES)
            headers = {"Host": self.host, **signed, "Connection": "close"}
            request = h11.Request(method="GET", target=f"/?{query}", headers=list(headers.items()))
            for event in (request, h11.EndOfMessage()):
                writer.write(connection.send(event) or b"")
            await writer.drain()
            read = AnswerReader(connection, reader)
            status = (await read.response()).status_code
            return status, await read.body()
        finally:
            writer.transport.abort()

    def _arn(self, body: bytes) -> str:
        result = _parsed(body)
        arns = [] if result is None else result.findall("{*}GetCallerIdentityResult/{*}Arn")
        if len(arns) != 1 or not arns[0].text:
            raise CloudError(f"the answer of {self.host} names no caller", hint=_AGAIN)
        return arns[0].text


def _query(proof: Proof) -> str:
    parameters = {
        **CALL,
        **TERMS,
        "X-Amz-Credential": proof.credential,
        "X-Amz-Date": proof.date,
        "X-Amz-Signature": proof.signature,
    }
    if proof.session_token:
        parameters["X-Amz-Security-Token"] = proof.session_token
    return urlencode(parameters)


def _code(body: bytes) -> str:
    """The code of an error, for people."""
    result = _parsed(body)
    code = "" if result is None else result.findtext("{*}Error/{*}Code", "")
    return code if _CODE.fullmatch(code) else "no reason given"


def _parsed(body: bytes) -> Xml.Element | None:
    """A document without declarations of its own; `None` if it is none."""
    if b"<!" in body:
        return None
    try:
        return Xml.fromstring(body)  # noqa: S314  # it declares no entities
    except Xml.ParseError:
        return None
