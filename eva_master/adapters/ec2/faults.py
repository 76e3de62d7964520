"""Translates EC2's errors to `CloudError`s, with what to do about each."""

from __future__ import annotations

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004 - botocore's: there was no connection
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
)

from eva_master.model.catalog import Purchase
from eva_wire.values.errors import (
    CapacityUnavailable,
    CloudDenied,
    CloudError,
    QuotaExceeded,
    Throttled,
)

_CAPACITY = frozenset(
    {
        "InsufficientAddressCapacity",
        "InsufficientCapacity",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientVolumeCapacity",
        "SpotMaxPriceTooLow",
    }
)
_QUOTA = frozenset(
    {
        "InstanceLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "VolumeLimitExceeded",
    }
)
_HIGHER_QUOTA = "ask AWS for a higher quota (Service Quotas, EC2)"
_THROTTLED = frozenset(
    {"EC2ThrottledException", "RequestLimitExceeded", "Throttling", "ThrottlingException"}
)
_DENIED = frozenset(
    {
        "AccessDenied",
        "AuthFailure",
        "Blocked",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "OptInRequired",
        "PendingVerification",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    }
)

_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
_UNSIGNED = frozenset({"AuthFailure", "RequestExpired", "SignatureDoesNotMatch"})
"""Codes of refusals of a request whose signature is dated by a wrong clock, or wrong otherwise."""

_TERMINATED = "IdempotentInstanceTerminated"
_NO_SPOT_ROLE = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
_FORBIDDEN_TYPE = "service control policy"
"""Words of a denial by the account's organization, which often forbids some types alone."""
_FREE_PLAN = "not eligible for Free Tier"
FREE_PLAN_TYPES = frozenset(
    {*("t3.micro", "t3.small", "t4g.micro", "t4g.small"), *("c7i-flex.large", "m7i-flex.large")}
)
"""Types that an account on AWS's free plan may launch."""

RECLAIMED = frozenset({"Server.SpotInstanceShutdown", "Server.SpotInstanceTermination"})
"""Codes of StateReason: EC2 has taken a spot instance back."""
_ENDS: tuple[tuple[frozenset[str], str, str], ...] = (
    (_CAPACITY, "no capacity", ""),
    (_QUOTA, "quota of the AWS account exceeded", _HIGHER_QUOTA),
    (
        frozenset({"InternalError"}),
        "EC2 could not start it",
        "often the master may not use the KMS key of its root volume",
    ),
    (
        frozenset({"InvalidSnapshot.NotFound", "InvalidParameterValue"}),
        "EC2 could not start it",
        "check the image and the size of its root volume",
    ),
    (
        frozenset({"InstanceInitiatedShutdown"}),
        "it switched itself off",
        "as instances do whose boot fails; its log is in the object store below boots/",
    ),
    (frozenset({"UserInitiatedShutdown"}), "it was terminated by someone else's request", ""),
)
"""Meanings of StateReason codes, and advice."""


class NotSold(CloudError):
    """The type is not sold in this zone."""


class FreePlan(CloudError):
    """The account's plan launches a few types alone."""


class NoSpotRole(CloudError):
    """The account has no role for spot instances, and the master may not make it."""


class ForbiddenType(CloudError):
    """A policy of the account's organization forbids a type."""


_RETRY_MS: tuple[tuple[type[CloudError], int], ...] = (
    (NotSold, 7 * 86_400_000),  # When the master looks again at what is sold.
    (CapacityUnavailable, 180_000),
    (QuotaExceeded, 600_000),
    (CloudError, 300_000),
)


def end_in_words(code: str, message: str) -> str:
    """Explain why an instance ended, for the user.

    A launch that EC2 accepted may fail after all, with the codes of refusals.

    Args:
        code: Of its StateReason, such as ``Client.VolumeLimitExceeded``; empty if it has none.
        message: Of its StateReason, which often begins with the code.
    """
    kind = code.partition(".")[2]
    for codes, about, hint in _ENDS:
        if kind in codes:
            return worded(about, message or code, hint)
    return message or code


class CloudUnsettled(CloudError):
    """EC2 did not answer, or its answer does not tell whether the call took effect."""


class ServerFault(CloudUnsettled):
    """EC2 answered that it failed itself."""


class AlreadyTerminated(CloudError):
    """The client token is that of a launch whose instance was made and has been terminated."""


_KINDS: tuple[tuple[frozenset[str], type[CloudError], str], ...] = (
    (frozenset({_TERMINATED}), AlreadyTerminated, ""),
    (_CAPACITY, CapacityUnavailable, ""),
    (_QUOTA, QuotaExceeded, _HIGHER_QUOTA),
    (_THROTTLED, Throttled, ""),
    (_UNSIGNED, CloudDenied, "check the AWS credentials, and the clock of this machine (date -u)"),
    (_DENIED, CloudDenied, "check the IAM policy of the master"),
)
"""Errors by EC2's codes, and advice; the first that fits counts."""


def translate(error: BotoCoreError | ClientError) -> CloudError:
    """Translate an error of boto3 to a `CloudError`.

    The code takes precedence over the HTTP status, since EC2 reports even a lack of capacity as an
    internal server error.
    """
    if isinstance(error, ClientError):
        return _answered(error)
    if isinstance(error, NoCredentialsError | PartialCredentialsError | CredentialRetrievalError):
        return CloudDenied(f"EC2: {error}", hint="give the master an IAM role or AWS credentials")
    if isinstance(error, HTTPClientError | ConnectionError):
        return CloudUnsettled(f"EC2: {error}")
    return CloudError(f"EC2: {error}")


def _answered(error: ClientError) -> CloudError:
    code = error.response["Error"]["Code"]
    status = error.response["ResponseMetadata"]["HTTPStatusCode"]
    words = f"{code}: {error.response['Error'].get('Message', '')}"
    if (narrow := _narrow(code, words)) is not None:
        return narrow
    for codes, kind, hint in _KINDS:
        if code in codes:
            return kind(words, hint=hint)
    return ServerFault(words) if status >= 500 else CloudError(words)


def _narrow(code: str, words: str) -> CloudError | None:
    """The error of a refusal that rules some offerings out; `None` for any other."""
    if code == "Unsupported":
        return NotSold(words)
    if code == "InvalidParameterCombination" and _FREE_PLAN in words:
        hint = "upgrade the account: aws freetier upgrade-account-plan --account-plan-type PAID"
        return FreePlan(f"the account is on AWS's free plan: {words}", hint=hint)
    if code == _NO_SPOT_ROLE:
        hint = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
        return NoSpotRole(words, hint=hint)
    if code in _DENIED and _FORBIDDEN_TYPE in words:
        hint = "a policy of the organization (SCP) forbids this: ask its administrator"
        return ForbiddenType(words, hint=hint)
    return None


def lacks_credentials(error: BotoCoreError | ClientError) -> bool:
    """Whether another client may have credentials: one asks once, and keeps expired ones."""
    if isinstance(error, ClientError):
        return error.response["Error"]["Code"] in _EXPIRED
    return isinstance(error, NoCredentialsError | CredentialRetrievalError)


def worth_repeating(error: CloudError) -> bool:
    """Whether the same call may succeed if repeated soon."""
    return isinstance(error, Throttled | CloudUnsettled)


def retry_after_ms(error: CloudError, purchase: Purchase) -> int:
    """How long to wait before an offering is tried again after this error.

    When a spot pool is tried again that has run dry is the control loop's to say, which learns how
    long such pools are away.
    """
    if purchase is Purchase.SPOT and isinstance(error, CapacityUnavailable):
        return 0
    return next(pause for kind, pause in _RETRY_MS if isinstance(error, kind))


def reason(error: CloudError) -> str:
    """Why a launch failed, for the user: the kind of error, EC2's message, and what to do."""
    about = {
        CapacityUnavailable: "no capacity",
        QuotaExceeded: "quota of the AWS account exceeded",
        CloudDenied: "EC2 denied the launch",
        NotSold: "not sold in this zone",
        ServerFault: "EC2 failed for ten minutes",
    }.get(type(error), "EC2 refused the launch")
    return worded(about, error.message, error.hint)


def worded(about: str, message: str, hint: str) -> str:
    """A sentence about an error: what is wrong, AWS's words, and advice if there is some."""
    return f"{about}: {message}" + (f" ({hint})" if hint else "")
