"""The application: login, pages, actions, streams of changes, files."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import structlog
from google.protobuf.message import Message
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route, compile_path
from starlette.types import ASGIApp

from eva_master.adapters.pages.downloads import Stream, file_of, log_of
from eva_master.adapters.pages.live import Key, Live, NewestRendering
from eva_master.adapters.pages.page import MOST_ANSWERS, Action, Ask, Asked, Page
from eva_master.adapters.pages.rendering import Content, Templates, static_files
from eva_master.adapters.pages.routes import ACTIONS, PAGES
from eva_master.adapters.pages.sessions import BrowserSession, BrowserSessions, LoginCodes
from eva_master.adapters.pages.stream import EventStream
from eva_master.adapters.rpc.handlers import told_error
from eva_master.adapters.rpc.local_calls import Calls
from eva_master.ports import Clock
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.errors import Busy, EvaError, NotAuthenticated, NotAuthorised, NotFound
from eva_wire.values.users import UserToken

_API = "/eva.api.v1."
_FIELDS = 20
_STATUS: Mapping[type[EvaError], int] = {
    NotAuthenticated: 401,
    NotAuthorised: 403,
    NotFound: 404,
    Busy: 429,
    BadRequest: 400,
}

log = structlog.get_logger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Site:
    """The parts that pages are made of.

    Attributes:
        cluster: Its name.
        calls: The services.
        sessions: Users who are logged in.
        codes: Codes of those who log in.
        clock: The present time.
        model: The newest model of the cluster, to be compared alone.
    """

    cluster: str
    calls: Calls
    sessions: BrowserSessions
    codes: LoginCodes
    clock: Clock
    model: Callable[[], object]


class Pages:
    """Answers requests of browsers.

    Args:
        site: The parts that pages are made of.
        pages: All pages.
        actions: All actions.

    Attributes:
        routes: All that is served.
    """

    def __init__(
        self, site: Site, pages: tuple[Page, ...] = PAGES, actions: tuple[Action, ...] = ACTIONS
    ) -> None:
        self._site = site
        self._static = static_files()
        self._templates = Templates(self._static)
        self._live = Live(self._rendered, site.model, self._asked)
        self.routes = [
            Route("/login", self._guarded(self._login)),
            Route("/logout", self._guarded(self._logout), methods=["POST"]),
            Route("/static/{name}", self._file),
            Route("/jobs/{job}/logs/{task}", self._guarded(self._log)),
            Route("/jobs/{job}/files/{run}/{path:path}", self._guarded(self._output)),
            *(Route(page.path, self._guarded(self._page_of(page))) for page in pages),
            *(
                Route(action.path, self._guarded(self._action_of(action)), methods=["POST"])
                for action in actions
            ),
            Route("/live", self._guarded(self._stream)),
        ]
        self._patterns = [(compile_path(page.path)[0], page) for page in pages]
        self._nav = [(page.nav, page.path) for page in pages if page.nav]

    def app(self) -> ASGIApp:
        """The application, which belongs behind a `Guard`."""
        return Starlette(routes=self.routes, exception_handlers={HTTPException: self._unknown})

    # -- sessions --------------------------------------------------------------------------------

    async def _login(self, request: Request) -> Response:
        """Use a code up, and begin a session."""
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise NotAuthorised("another site may not log anybody in")
        session, cookie = self._site.sessions.begin(
            self._site.codes.use(request.query_params.get("code", ""))
        )
        token = session.token
        log.info("browser logged in", owner=token.owner, token=token.id, session=session.id[:8])
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        seconds = (session.ends_ms - self._site.clock.now()) // 1000
        self._set_cookie(answer, request, cookie, seconds)
        return answer

    async def _logout(self, request: Request) -> Response:
        session = self._session(request)
        self._site.sessions.end(session)
        log.info("browser logged out", owner=session.token.owner, session=session.id[:8])
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        self._set_cookie(answer, request, "", 0)
        return answer

    def _set_cookie(self, answer: Response, request: Request, value: str, seconds: int) -> None:
        answer.set_cookie(
            self._cookie_name(request),
            value,
            max_age=max(0, seconds),
            httponly=True,
            secure=request.url.scheme == "https",
            samesite="strict",
        )

    def _cookie_name(self, request: Request) -> str:
        # Browsers keep one set of cookies for all ports of a host.
        port = request.headers["host"].rpartition(":")[2]
        if not port.isdigit():
            port = "443" if request.url.scheme == "https" else "80"
        return f"eva_{self._site.cluster}_{port}"

    def _session(self, request: Request) -> BrowserSession:
        """The session of a request; raises `NotAuthenticated`."""
        return self._site.sessions.of(request.cookies.get(self._cookie_name(request), ""))

    # -- pages and actions -----------------------------------------------------------------------

    def _page_of(self, page: Page) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            session = self._session(request)
            key = self._key(
                page, request.url.path, request.path_params, request.query_params, session
            )
            entry = await self._live.entry(key, session)
            return self._html(page, session, entry)

        return endpoint

    def _key(
        self,
        page: Page,
        path: str,
        names: Mapping[str, Any],
        query: Mapping[str, str],
        session: BrowserSession,
    ) -> Key:
        """The key of a page for a viewer; raises `NotAuthorised`."""
        token = session.token
        if not token.role.covers(page.role):
            raise NotAuthorised(
                f"this page needs role {page.role}; you are {token.owner}, with role {token.role}",
                hint="ask an operator for a token of that role",
            )
        own = tuple((name, query[name]) for name in page.query if query.get(name))
        return Key(page, path, tuple(sorted(names.items())), own, page.audience(token))

    def _asked(self, key: Key) -> Asked:
        now = self._site.clock.now()
        return Asked(key.path, dict(key.names), dict(key.query), key.audience, now)

    async def _rendered(self, page: Page, asked: Asked, token: str) -> Content:
        views = await page.reads(self._ask(token), asked)
        return await asyncio.to_thread(self._shown, page, views, asked)

    def _shown(self, page: Page, views: Any, asked: Asked) -> Content:
        values = {"asked": asked, **page.shows(views, asked)}
        return self._templates.content(page.template, values)

    def _ask(self, token: str) -> Ask:
        return _Asking(self._site.calls, token)

    def _action_of(self, action: Action) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            session = self._session(request)
            names = {name: str(value) for name, value in request.path_params.items()}
            call = action.request(names, await _form(request))
            answer = await self._ask(session.token.id)(action.method, call)
            log.info("form sent", path=request.url.path, owner=session.token.owner)
            self._live.forget()
            return RedirectResponse(action.then(answer, names), HTTPStatus.SEE_OTHER)

        return endpoint

    async def _stream(self, request: Request) -> Response:
        """The changes of an open page, as a stream or once."""
        session = self._session(request)
        key = self._key_of(request.query_params.get("on", ""), session)
        cursor = request.query_params.get("at", "")
        entry = await self._live.entry(key, session)
        if "once" not in request.query_params:
            sessions = self._site.sessions
            end = await self._site.calls.begin(session.token.id)
            return EventStream(
                self._live, entry, cursor=cursor, session=session, check=sessions.check, end=end
            )
        message = self._live.message(entry, cursor)
        if message is None:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return Response(message[1], media_type="application/json")

    async def _log(self, request: Request) -> Response:
        """The log of a task."""
        names = request.path_params
        return await log_of(self._streaming(request), names["job"], names["task"])

    async def _output(self, request: Request) -> Response:
        """A file that a task has stored."""
        names = request.path_params
        stream = self._streaming(request)
        return await file_of(stream, names["job"], names["run"], names["path"])

    def _streaming(self, request: Request) -> Stream:
        token = self._session(request).token.id
        return lambda method, message: self._site.calls.stream(token, _API + method, message)

    def _key_of(self, topic: str, session: BrowserSession) -> Key:
        """The key of a page by its path and parameters; raises `NotFound`."""
        path, _, query = topic.partition("?")
        for pattern, page in self._patterns:
            if (match := pattern.match(path)) is not None and page.live:
                return self._key(page, path, match.groupdict(), _fields(query), session)
        raise NotFound("there is no such page")

    # -- answers ---------------------------------------------------------------------------------

    async def _file(self, request: Request) -> Response:
        file = self._static.get(request.path_params["name"])
        if file is None:
            raise HTTPException(404)
        lasting = "public, max-age=31536000, immutable"
        return Response(file.data, media_type=file.media, headers={"cache-control": lasting})

    def _guarded(self, endpoint: Endpoint) -> Endpoint:
        async def guarded(request: Request) -> Response:
            try:
                return await endpoint(request)
            except Exception as error:
                return self._failed(request, told_error(error, request.url.path))

        return guarded

    async def _unknown(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == HTTPStatus.NOT_FOUND:
            return self._failed(request, NotFound("there is no such page"))
        return Response(f"{error.detail}\n", error.status_code, media_type="text/plain")

    def _failed(self, request: Request, error: EvaError) -> Response:
        status = next(
            (status for kind, status in _STATUS.items() if isinstance(error, kind)),
            500 if type(error) is EvaError else 409,
        )
        token = None
        with contextlib.suppress(EvaError):
            token = self._session(request).token
        content = self._templates.content("error.html", {"error": error, "status": status})
        return HTMLResponse(self._around(content, viewer=token, title="Error"), status)

    def _html(self, page: Page, session: BrowserSession, entry: NewestRendering) -> Response:
        assert entry.content is not None
        return HTMLResponse(
            self._around(
                entry.content,
                viewer=session.token,
                title=page.title,
                nav=page.nav,
                topic=entry.key.topic if page.live else "",
                cursor=self._live.cursor(entry),
            )
        )

    def _around(
        self,
        content: Content,
        *,
        viewer: UserToken | None,
        title: str,
        nav: str = "",
        topic: str = "",
        cursor: str = "",
    ) -> str:
        """A content with what is around it, for one viewer."""
        return self._templates.page(
            {
                "cluster": self._site.cluster,
                "viewer": viewer,
                "pages": self._nav,
                "nav": nav,
                "title": title,
                "content": content.html,
                "topic": topic,
                "cursor": cursor,
            }
        )


class _Asking:
    """Calls on behalf of a token; see `Ask`."""

    def __init__(self, calls: Calls, token: str) -> None:
        self._calls, self._token = calls, token

    async def __call__(self, method: str, request: Message) -> Any:
        return await self._calls.call(self._token, _API + method, request)

    async def all(self, method: str, request: Message, most: int = MOST_ANSWERS) -> list[Any]:
        answers: list[Any] = []
        stream = self._calls.stream(self._token, _API + method, request)
        async with contextlib.aclosing(stream):
            async for answer in stream:
                answers.append(answer)
                if len(answers) >= most:
                    break
        return answers


async def _form(request: Request) -> Mapping[str, str]:
    """The fields of a form.

    Raises:
        BadRequest: The body is no form, or has too many fields.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    body = await request.body()
    if body and kind != "application/x-www-form-urlencoded":
        raise BadRequest("this is no form")
    try:
        return _fields(body.decode("ascii"))
    except UnicodeError as error:
        raise BadRequest("this form cannot be read") from error


def _fields(text: str) -> Mapping[str, str]:
    """Names and values, encoded as forms are; raises `BadRequest`."""
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_FIELDS))
    except ValueError as error:
        raise BadRequest("this form cannot be read") from error
