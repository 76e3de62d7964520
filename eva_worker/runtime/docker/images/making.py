"""Fetches or builds images on a Docker engine before a task starts, each once at a time."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tarfile
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import structlog
from docker.errors import APIError, ImageNotFound, StreamParseError
from docker.types import CancellableStream
from urllib3.exceptions import HTTPError

from eva_worker.errors import ImageRefused, InstanceFailed, StartFailed
from eva_worker.orders import Build
from eva_worker.runtime import Image, Tell
from eva_worker.runtime.docker.engine import (
    FAILURES,
    RETRY_S,
    close_stream,
    in_thread,
    reason,
    unanswered,
)
from eva_worker.runtime.docker.images import dockerfile
from eva_worker.runtime.docker.images.credentials import (
    credentials_for,
    refusal,
    send_none_with_builds,
)

_TRIES = 4
_LAST_WORDS = 5
_LONGEST_WORDS = 1_000
_PROGRESS_EVERY_S = 5.0
_MIB = 1 << 20
_BUILD_CPU_SHARES = 128
"""Weight of a build beside running tasks, which have 1,024 each."""

_Message = Mapping[str, Any]

_log = structlog.get_logger()


class Images:
    """The images of one engine.

    Args:
        client: A `docker.DockerClient`, used from several threads.
        scratch: Directory for build contexts while they are sent.
        network: The network mode of builds.
    """

    def __init__(self, client: Any, scratch: Path, network: str) -> None:
        self._client = client
        self._scratch = scratch
        self._network = network
        self._making: dict[str, _Preparation] = {}
        self._calls: dict[int, _Call] = {}
        send_none_with_builds(client)
        client.api.hooks["response"].append(self._answered)
        shutil.rmtree(scratch, ignore_errors=True)  # Leftovers of an agent that died.
        scratch.mkdir(parents=True)

    async def ready(self, image: Image, tell: Tell) -> str:
        """Fetch or build an image on the engine; see `Runtime.prepare`."""
        reference = tag_of(image.build) if image.build else image.reference
        making = self._making.get(reference)
        if making is None or making.task.done():
            making = _Preparation()
            making.task = asyncio.create_task(self._make(reference, image, making))
            self._making[reference] = making
        making.tellers.append(tell)
        try:
            await asyncio.shield(making.task)
        finally:
            making.tellers.remove(tell)
            if not making.tellers:
                making.task.cancel()
                if self._making.get(reference) is making:
                    del self._making[reference]
        return reference

    async def _make(self, reference: str, image: Image, making: _Preparation) -> None:
        for tries_left in reversed(range(_TRIES)):
            try:
                if await in_thread("look for image", lambda: self._has(reference)):
                    return
                if image.build:
                    await self._build(reference, image, image.build, making)
                else:
                    await self._pull(reference, making)
            except FAILURES as error:
                if not (unanswered(error) and tries_left):
                    failure = InstanceFailed if unanswered(error) else StartFailed
                    raise failure(f"image {reference}: {reason(error)}") from error
                _log.warning("engine fails", image=reference, error=reason(error))
                await asyncio.sleep(RETRY_S)
        raise InstanceFailed(f"image {reference}: the engine broke off {_TRIES} times")

    def _has(self, reference: str, platform: str = "") -> bool:
        try:
            image = self._client.api.inspect_image(reference)
        except ImageNotFound:
            return False
        return platform in {"", f"{image.get('Os')}/{image.get('Architecture')}"}

    async def _pull(self, reference: str, making: _Preparation, platform: str = "") -> None:
        making.tell(f"fetching image {reference}")
        call = _Call(
            f"image {reference} cannot be fetched",
            lambda: self._client.api.pull(
                reference,
                stream=True,
                decode=True,
                platform=platform or None,
                auth_config=credentials_for(reference),
            ),
            _PullProgress(making.tell).note,
        )
        try:
            await self._carry_out(call)
        except ImageRefused:
            raise
        except StartFailed as error:
            raise refusal(reference, str(error)) or error from error

    async def _build(self, tag: str, image: Image, build: Build, making: _Preparation) -> None:
        directory = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self._scratch))
        try:
            await image.lay_out(build.context, directory / "context")
            context = directory / "context"
            sources = await asyncio.to_thread(dockerfile.check, context, build.dockerfile)
            for base in sources.images:  # Their own instructions may add to them.
                await self._check_base(base, sources, making)
            making.tell(f"building image {tag} from {build.dockerfile}")
            output = _Output(making.tell)
            call = _Call(
                f"image cannot be built from {build.dockerfile}",
                lambda: self._ask_to_build(tag, image, build, directory),
                output.note,
            )
            try:
                await self._carry_out(call)
            except StartFailed as error:
                raise StartFailed(f"{error}{output.last_words()}") from error
        finally:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    async def _check_base(
        self, base: dockerfile.Base, sources: dockerfile.Sources, making: _Preparation
    ) -> None:
        """Have an image for a build, and add those that its instructions for builds on it name."""
        if not await in_thread("look for image", lambda: self._has(base.name, base.platform)):
            await self._pull(base.name, making, base.platform)
        if not base.built_on:
            return
        image = await in_thread("look for image", lambda: self._client.api.inspect_image(base.name))
        triggers = image["Config"].get("OnBuild") or ()
        dockerfile.check_triggers(base.name, triggers, sources)

    def _ask_to_build(
        self, tag: str, image: Image, build: Build, directory: Path
    ) -> Iterable[_Message]:
        """Send a build context, whole: what Docker is to ignore has not been uploaded.

        The library that would pack it matches file names with the user's patterns, which can take
        for ever and holds up all of the agent.
        """
        limits: dict[str, int] = {"cpushares": _BUILD_CPU_SHARES}
        if image.memory_mib:
            limits |= dict.fromkeys(("memory", "memswap"), image.memory_mib * _MIB)
        with (directory / "context.tar").open("w+b") as packed:
            _pack(directory / "context", packed)
            messages: Iterable[_Message] = self._client.api.build(
                fileobj=packed,
                custom_context=True,
                dockerfile=build.dockerfile,
                tag=tag,
                rm=True,
                forcerm=True,
                network_mode=self._network,
                container_limits=limits,
                decode=True,
            )
            return messages

    async def _carry_out(self, call: _Call) -> None:
        try:
            await in_thread("image", lambda: self._work(call))
        except asyncio.CancelledError:
            # The engine stops its work when its client disconnects.
            call.give_up()
            raise

    def _work(self, call: _Call) -> None:
        me = threading.get_ident()
        self._calls[me] = call
        try:
            call.run()
        finally:
            del self._calls[me]

    def _answered(self, response: Any, *_args: Any, **_kwargs: Any) -> None:
        """Handle a response before its body is read, in the thread that sent the request."""
        if call := self._calls.get(threading.get_ident()):
            call.answered(response)


def by_name(reference: str) -> str:
    """A user's reference to an image, written so that it can only be meant as a name.

    An engine takes a short hexadecimal name for the beginning of an image's id as well, and any
    image of the instance, whoever it was built for, begins with one of a few.

    Raises:
        StartFailed: The name is one of what Eva builds for jobs.
    """
    if dockerfile.built_by_eva(reference):
        raise StartFailed(
            f"image {reference} is the name of what Eva builds for jobs; name an image of a "
            "registry, or have the job build its own (`build`)"
        )
    return f"docker.io/library/{reference}" if dockerfile.like_id(reference) else reference


def tag_of(build: Build) -> str:
    """The name of a built image: the same for the same build, on any engine."""
    what = f"{build.context}\0{build.dockerfile}"
    return f"eva-build:{hashlib.sha256(what.encode()).hexdigest()[:40]}"


def _pack(directory: Path, into: IO[bytes]) -> None:
    """Write a directory to an archive, and go back to the archive's beginning."""
    with tarfile.open(fileobj=into, mode="w") as archive:
        for path in sorted(directory.rglob("*")):
            name = str(path.relative_to(directory))
            archive.add(path, name, recursive=False, filter=_open_directory)
    into.seek(0)


def _open_directory(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Let every user of an image list its directories, whatever the agent's own are like."""
    if entry.isdir():
        entry.mode = 0o755
    return entry


class _Preparation:
    """An image being fetched or built, and how many callers wait for it."""

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.tellers: list[Tell] = []

    def tell(self, line: str) -> None:
        for tell in list(self.tellers):
            tell(line)


class _Call:
    """A long call of the engine that reports its progress and can be cancelled.

    Args:
        failure: Error message for the user if the engine reports a failure.
        ask: Starts the call; returns the engine's messages.
        note: Called with each message.
    """

    def __init__(
        self, failure: str, ask: Callable[[], Iterable[_Message]], note: Callable[[_Message], None]
    ) -> None:
        self._failure = failure
        self._ask = ask
        self._note = note
        self._lock = threading.Lock()
        self._given_up = False
        self._stream: CancellableStream | None = None

    def run(self) -> None:
        """Follow the call to its end; raises `StartFailed` if the engine reports a failure."""
        try:
            for message in self._ask():
                if error := message.get("error"):
                    raise StartFailed(f"{self._failure}: {str(error).strip()}")
                self._note(message)
        except (HTTPError, StreamParseError) as error:  # The connection broke in the middle.
            raise ConnectionError(str(error)) from error
        except APIError as error:
            raise StartFailed(f"{self._failure}: {reason(error)}") from error

    def answered(self, response: Any) -> None:
        """Note the response whose body contains the engine's messages."""
        with self._lock:
            self._stream = CancellableStream(iter(()), response)
            if self._given_up:
                close_stream(self._stream)

    def give_up(self) -> None:
        """Disconnect, from another thread than the one that reads."""
        with self._lock:
            self._given_up = True
            if self._stream:
                close_stream(self._stream)


class _PullProgress:
    """Reports a pull now and then: the bytes of all layers, and the last message."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._layers: dict[str, tuple[int, int]] = {}
        self._told_at = time.monotonic()

    def note(self, message: _Message) -> None:
        detail, status = message.get("progressDetail") or {}, message.get("status", "")
        if status == "Downloading" and "total" in detail:
            self._layers[message["id"]] = (detail.get("current", 0), detail["total"])
            if time.monotonic() - self._told_at >= _PROGRESS_EVERY_S:
                self._told_at = time.monotonic()
                done, total = (
                    sum(sizes) // _MIB for sizes in zip(*self._layers.values(), strict=True)
                )
                self._tell(f"{done} of at least {total} MiB")
        elif status and "id" not in message:
            self._tell(status)


class _Output:
    """Reports the output of a build line by line, and keeps the end of it."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._line = ""
        self._last: deque[str] = deque(maxlen=_LAST_WORDS)

    def note(self, message: _Message) -> None:
        *lines, self._line = (self._line + message.get("stream", "")).split("\n")
        for line in filter(None, map(str.strip, lines)):
            self._last.append(line)
            self._tell(line)

    def last_words(self) -> str:
        """The end of the output, in brackets, for an error message."""
        words = " | ".join([*self._last, *filter(None, [self._line.strip()])])
        return f" ({words[-_LONGEST_WORDS:]})" if words else ""
