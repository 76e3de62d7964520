"""What every test may rely on, and which tests this machine can run."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings

from eva_master.testing import drawing
from tests.drawing import NEW
from tests.fakes import hosts
from tests.fakes.docker import dockerd, private
from tests.fakes.iterator_agent import RecordingAgent
from tests.fakes.paths import short_tempdir

pytest.register_assert_rewrite(
    "eva_master.testing.plan_checks", "eva_master.testing.policy_suite", "tests.e2e"
)

_E2E = Path(__file__).with_name("e2e")
_INTEGRATION = Path(__file__).with_name("integration")
_POLLER_KEPT = pytest.StashKey[bool]()

# How long an example takes says something of the machine alone. Which examples there are does not
# depend on luck, but for those who look for new ones (`make explore`). Those also look for smaller
# examples that fail: it takes minutes, and a failing test is to say so at once.
hypothesis_settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
hypothesis_settings.register_profile(
    "new", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
if not NEW:
    drawing.by_declaration_alone()
hypothesis_settings.load_profile("new" if NEW else "same")


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def _has_gpu() -> bool:
    import pynvml

    try:
        pynvml.nvmlInit()
        return bool(pynvml.nvmlDeviceGetCount() > 0)
    except pynvml.NVMLError:
        return False


def _has_gpu_in_containers() -> bool:
    hook = shutil.which("nvidia-container-runtime-hook")
    return hook is not None and dockerd.available() and _has_gpu()


# Marker: whether this machine can run its tests, and the variable that insists on them.
_REQUIREMENTS: dict[str, tuple[Callable[[], bool], str]] = {
    "torch": (_has_torch, "EVA_REQUIRE_TORCH"),
    "gpu": (_has_gpu, "EVA_REQUIRE_GPU"),
    "gpu_docker": (_has_gpu_in_containers, "EVA_REQUIRE_GPU_DOCKER"),
    "docker": (dockerd.available, "EVA_REQUIRE_DOCKER"),
    "registry": (private.available, "EVA_REQUIRE_DOCKER"),
    "hosts": (hosts.available, "EVA_REQUIRE_DOCKER"),
    "published": (lambda: bool(os.environ.get("EVA_TEST_DATA")), "EVA_REQUIRE_DATA"),
    "root": (lambda: os.geteuid() == 0, "EVA_REQUIRE_ROOT"),
}
# Engines and namespaces are root's: tests with these markers have the marker `root` as well.
_OF_ROOT = ("docker", "gpu_docker", "hosts", "registry")


def pytest_configure() -> None:
    """Undoes what a shell does to background jobs (they ignore Ctrl-C), and nohup (SIGHUP).

    What a process ignores its children ignore; a handler is not passed on.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects the tests without looking for garbage among them, now or at any later time.

    What is imported and collected stays to the end, and each of several workers has it all.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests file by file, with those that take long or wait evenly between the others.

    Those from end to end are spread one by one, those of several parts together by files, which may
    share what was made for them. When several run at once, never many of these do, and none is left
    alone at the end.
    """
    files = groupby(items, key=lambda item: item.path)
    every = [(path, list(tests)) for path, tests in files]
    quick = [tests for path, tests in every if not {_E2E, _INTEGRATION} & {*path.parents}]
    slow = [tests for path, tests in every if _INTEGRATION in path.parents]
    long = [[test] for path, tests in every if _E2E in path.parents for test in tests]
    return [test for tests in _evenly(_evenly(quick, slow), long) for test in tests]


def _evenly(
    rows: list[list[pytest.Item]], more: list[list[pytest.Item]]
) -> list[list[pytest.Item]]:
    """Rows with others evenly between them."""
    found: list[list[pytest.Item]] = []
    for number, row in enumerate(rows, start=1):
        found.append(row)
        found += more[len(more) * (number - 1) // len(rows) : len(more) * number // len(rows)]
    return found if rows else more


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the tests in order, and leaves out what this machine cannot run, with a notice.

    Where somebody insists on the latter they run and fail.
    """
    items[:] = _spread(items)
    longest = [item for item in items if item.get_closest_marker("explore")]
    if longest and not NEW:
        config.hook.pytest_deselected(items=longest)
        items[:] = [item for item in items if item not in longest]
    for marker, (available, variable) in _REQUIREMENTS.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        if not marked or os.environ.get(variable) == "1" or available():
            continue
        config.hook.pytest_deselected(items=marked)
        items[:] = [item for item in items if item not in marked]
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(
                f"NOTICE: {len(marked)} tests marked '{marker}' left out: no {marker} here "
                f"({variable}=1 insists)",
                yellow=True,
            )
    # The last step: a notice names what is missing, which is seldom root alone.
    for item in items:
        if any(item.get_closest_marker(marker) for marker in _OF_ROOT):
            item.add_marker("root")


@pytest.hookimpl(trylast=True)  # once the test has its event loop, which gRPC asks for
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Keeps gRPC's poller for asyncio to the end, from the first test that may need it.

    The poller ends with the last server or channel. A garbage collection that finds that one, left
    by a test that failed, would wait for the poller's thread, which waits for the collection.
    """
    wanted = "grpc" in sys.modules and item.get_closest_marker("asyncio") is not None
    if wanted and not item.session.stash.get(_POLLER_KEPT, False):
        sys.modules["grpc"].aio.init_grpc_aio()
        item.session.stash[_POLLER_KEPT] = True


@pytest.fixture(autouse=True)
def _handler_of_sigterm() -> Iterator[None]:
    """Set SIGTERM's handler back where a test has run a program's main function here."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if signal.getsignal(signal.SIGTERM) is not before:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def iterator_agent() -> Iterator[RecordingAgent]:
    """An agent that records what a task's program reports."""
    with tempfile.TemporaryDirectory(prefix="eva-", dir=short_tempdir()) as directory:
        agent = RecordingAgent(Path(directory) / "agent.sock")
        agent.start()
        yield agent
        agent.stop()


@pytest.fixture(scope="session")
def _shared_engine() -> Iterator[str]:
    with dockerd.running() as url:
        yield url


@pytest.fixture
def docker_engine(
    _shared_engine: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """URL of a Docker engine of this test run's own, which has `dockerd.IMAGE` and no container."""
    settings = tmp_path_factory.mktemp("docker") / "config.json"  # None of whoever tests.
    settings.write_text("{}")
    monkeypatch.setenv("DOCKER_CONFIG", str(settings.parent))
    yield _shared_engine
    import docker

    with contextlib.closing(docker.DockerClient(base_url=_shared_engine)) as client:
        for container in client.containers.list(all=True):
            # An agent that ended just now may be removing it.
            with contextlib.suppress(docker.errors.APIError):
                container.remove(force=True)
