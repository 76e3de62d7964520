"""Signs with AWS credentials, and reads what a deployed master has left. botocore is optional."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from eva_wire.rpc.identity import CALL, LIFETIME_S, signed_headers
from eva_wire.rpc.messages import ChallengeResponse
from eva_wire.values.errors import EvaError, InvalidConfig, NotAuthenticated, NotFound, Untrusted

_HOST = re.compile(r"[A-Za-z0-9.-]{1,255}(:[0-9]{1,5})?")
_REGION = re.compile(r"[a-z0-9-]{1,40}")
_WHO = "see that `aws sts get-caller-identity` answers, and AWS_PROFILE"
_VARIABLES = (
    *("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ROLE_ARN"),
    *("AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
)
_FILES = {
    "AWS_CONFIG_FILE": "~/.aws/config",
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
}


def whose() -> Iterator[str]:
    """Settings that decide which credentials AWS's commands use, found without botocore."""
    for name in _VARIABLES:
        yield os.environ.get(name, "")
    for name, usual in _FILES.items():
        file = Path(os.environ.get(name, usual)).expanduser()
        yield str(file)
        yield str(file.stat().st_mtime_ns) if file.is_file() else ""


def proof(challenge: ChallengeResponse, authorities: list[str]) -> Mapping[str, str]:
    """The fields of `ProveRequest` that answer a challenge.

    Args:
        challenge: The master's.
        authorities: Digests of the certificates that the master is verified with.

    Raises:
        Untrusted: The challenge is another cluster's: a proof could be used there.
        NotAuthenticated: There are no credentials.
    """
    if challenge.authority not in authorities:
        raise Untrusted(
            "the master asks for a proof of who you are for another cluster",
            hint="nothing was sent; get this cluster's settings again: eva connect aws",
        )
    if not _HOST.fullmatch(challenge.host) or not _REGION.fullmatch(challenge.region):
        raise Untrusted("the master's challenge cannot be understood")
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    headers = signed_headers(challenge.cluster, challenge.authority, challenge.nonce)
    request = AWSRequest(
        "GET", f"https://{challenge.host}/?{urlencode(CALL)}", {"Host": challenge.host, **headers}
    )
    SigV4QueryAuth(_credentials(), "sts", challenge.region, LIFETIME_S).add_auth(request)
    signed = dict(parse_qsl(urlsplit(request.url).query))
    return {
        "nonce": challenge.nonce,
        "credential": signed["X-Amz-Credential"],
        "date": signed["X-Amz-Date"],
        "signature": signed["X-Amz-Signature"],
        "session_token": signed.get("X-Amz-Security-Token", ""),
    }


def parameter(cluster: str, region: str, endpoint: str = "") -> dict[str, Any]:
    """Read the address and the authority that the master of a deployed cluster has left.

    Raises:
        NotFound: There is no such cluster.
        InvalidConfig: The cluster is of a release that leaves a token instead.
        NotAuthenticated: There are no credentials.
        EvaError: AWS refuses, or does not answer.
    """
    botocore = _botocore()
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        ssm = botocore.Session().create_client(
            "ssm", region_name=region, endpoint_url=endpoint or None
        )
        answer = ssm.get_parameter(Name=f"/eva/{cluster}/client", WithDecryption=True)
    except ClientError as error:
        if error.response["Error"]["Code"] == "ParameterNotFound":
            raise NotFound(
                f"there is no cluster {cluster} in {region}, or its master has not started yet",
                hint="see --cluster, --region and AWS_PROFILE",
            ) from None
        raise EvaError(f"AWS: {error}", hint="it takes ssm:GetParameter") from None
    except BotoCoreError as error:
        raise NotAuthenticated(f"AWS: {error}", hint=_WHO) from None
    settings: dict[str, Any] = json.loads(answer["Parameter"]["Value"])
    if not settings.keys() >= {"address", "ca"}:
        raise InvalidConfig(
            f"the cluster {cluster} is of an earlier release, which lets no identities in",
            hint=f"bring it up to date: eva deploy aws --cluster {cluster}",
        )
    return settings


def _credentials() -> Any:
    from botocore.exceptions import BotoCoreError

    try:
        source = _botocore().Session().get_credentials()
        frozen = None if source is None else source.get_frozen_credentials()
    except BotoCoreError as error:
        raise NotAuthenticated(f"AWS: {error}", hint=_WHO) from None
    if frozen is None:
        raise NotAuthenticated("there are no AWS credentials to prove who you are", hint=_WHO)
    return frozen


def _botocore() -> Any:
    try:
        from botocore import session
    except ImportError:
        raise InvalidConfig(
            "the package botocore is missing, which signs with AWS credentials",
            hint="pip install 'eva-client[aws]'",
        ) from None
    return session
