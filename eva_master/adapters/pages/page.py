"""Pages and actions as values: see the package's docstring."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from google.protobuf.message import Message

from eva_wire.values.ids import Millis
from eva_wire.values.users import Role, UserToken

MOST_ANSWERS = 100
"""Answers of a stream that a page waits for."""


class RenderingScope(Enum):
    """Which viewers see the same rendering of a page."""

    ROLE = "role"
    """All of a role."""
    OWNER = "owner"
    """All of a role with the same owner; operators and viewers are one audience each, since what
    they may do does not depend on who they are."""


@dataclass(frozen=True, slots=True)
class Audience:
    """The viewers of one rendering.

    Attributes:
        role: Their role.
        owner: Their name; empty where it makes no difference.
    """

    role: Role
    owner: str = ""

    def may_change(self, owner: str) -> bool:
        """Whether they may change what belongs to an owner; services check it again."""
        return self.role is Role.OPERATOR or (self.role is Role.USER and self.owner == owner)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question for a page.

    Attributes:
        path: The page's path, as it was asked for.
        names: Parts of the path: ``{"job": "job-7"}``.
        query: Parameters behind the path that the page has, the last of each name.
        audience: The viewers.
        now_ms: The present time.
    """

    path: str
    names: Mapping[str, str]
    query: Mapping[str, str]
    audience: Audience
    now_ms: Millis


class Ask(Protocol):
    """Calls a method of the users' port on behalf of a viewer."""

    async def __call__(self, method: str, request: Message) -> Any:
        """Call a method that answers once.

        Args:
            method: Service and method, such as ``Jobs/Get``.
            request: The request.

        Raises:
            EvaError: The viewer may not, or it fails.
        """
        ...

    async def all(self, method: str, request: Message, most: int = MOST_ANSWERS) -> list[Any]:
        """Call a method that answers with a stream, and wait for its end.

        Args:
            method: Service and method.
            request: The request.
            most: The first so many answers alone.

        Raises:
            EvaError: The viewer may not, or it fails.
        """
        ...


Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Attributes:
        path: Its path, such as ``/jobs/{job}``.
        title: Title of the window.
        template: File below ``templates/``.
        reads: Asks the services.
        shows: Makes the values of the template; pure.
        nav: The entry of the navigation that it belongs to; empty for none.
        role: The least role that sees it.
        query: Names of the parameters that it has; others are left out.
        sharing: Which viewers see the same.
        live: Whether open copies are told of changes.
        refresh_s: Seconds after which it is rendered anew though no job has changed.
    """

    path: str
    title: str
    template: str
    reads: Callable[[Ask, Asked], Awaitable[Any]]
    shows: Callable[[Any, Asked], Values]
    nav: str = ""
    role: Role = Role.VIEWER
    query: tuple[str, ...] = ()
    sharing: RenderingScope = RenderingScope.ROLE
    live: bool = True
    refresh_s: float = 10.0

    def audience(self, token: UserToken) -> Audience:
        """The audience that a token belongs to."""
        personal = self.sharing is RenderingScope.OWNER and token.role is Role.USER
        return Audience(token.role, token.owner if personal else "")


@dataclass(frozen=True, slots=True)
class Action:
    """A form that changes something.

    Attributes:
        path: Its path, such as ``/jobs/{job}/cancel``.
        method: Method that is called, such as ``Jobs/Cancel``; its row says who may.
        request: Makes the request of the path's names and the form's fields; raises `EvaError`.
        then: Path of the next page, by the answer and the path's names.
    """

    path: str
    method: str
    request: Callable[[Mapping[str, str], Mapping[str, str]], Message]
    then: Callable[[Any, Mapping[str, str]], str] = field(
        default=lambda _answer, names: f"/jobs/{names['job']}"
    )
