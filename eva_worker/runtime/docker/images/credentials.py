"""Credentials of registries, as the worker's user has them for Docker's own command."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from docker import auth
from docker.credentials.errors import StoreError
from docker.errors import DockerException
from docker.utils import parse_repository_tag

from eva_worker.errors import ImageRefused

_REFUSED = re.compile(
    r"unauthorized|no basic auth credentials|authentication required|(?<!permission )denied"
    r"|forbidden",
    re.IGNORECASE,
)
# The library looks little at what a file or a helper says.
_FAILURES = (
    DockerException,
    StoreError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
)
_ECR = re.compile(r"[0-9]{12}\.dkr[.-]ecr(?:-fips)?\.[a-z0-9-]+\.(?:amazonaws\.com|on\.aws)")


def credentials_for(reference: str) -> Mapping[str, Any]:
    """Look up what a registry is shown for an image; empty for nothing.

    The settings are read anew each time, so that a log-in counts at once.

    Raises:
        ImageRefused: The settings cannot be read, or a helper that they name fails.
    """
    registry, _ = auth.resolve_repository_name(parse_repository_tag(reference)[0])
    try:
        return auth.load_config().resolve_authconfig(registry) or {}
    except _FAILURES as error:
        raise ImageRefused(
            f"image {reference} cannot be fetched: the credentials of {registry} are not to be had "
            f"({error}); see ~/.docker/config.json of the worker's user, and the helper that it "
            "names"
        ) from error


def send_none_with_builds(client: Any) -> None:
    """Have a client send no credentials with builds: what they build on has been fetched.

    Otherwise it asks each helper for all that it has before every build.
    """
    client.api._set_auth_headers = lambda headers: None  # noqa: ARG005


def refusal(reference: str, words: str) -> ImageRefused | None:
    """The error for an image that its registry does not give; `None` if it failed otherwise.

    Args:
        reference: The image.
        words: What the engine says.
    """
    if not _REFUSED.search(words):
        return None
    registry, _ = auth.resolve_repository_name(parse_repository_tag(reference)[0])
    advice = (
        "let the workers' role read it (AmazonEC2ContainerRegistryPullOnly; a repository of "
        "another account needs a policy of its own), and see that it exists"
        if _ECR.fullmatch(registry)
        else "see that it exists; if it is private, log in on the instances (docker login as the "
        "worker's user) or name a credential helper in ~/.docker/config.json"
    )
    return ImageRefused(
        f"{registry} does not give image {reference} to this instance: {advice} ({words})"
    )
