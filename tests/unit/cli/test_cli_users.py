"""The commands on users: token, whoami; and how the command proves its user's identity."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_client.cli import users as module
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.errors import NotAuthenticated, NotAuthorised
from tests.fakes.rpc.api import NOW_MS, FakeApi
from tests.fakes.rpc.authority import TestAuthority, authority

Run = Callable[..., Result]
DAY_MS = 86_400_000


@pytest.fixture
def api() -> Iterator[FakeApi]:
    tokens = [
        pb.Token(id="t1", owner="ana", role="operator", created_ms=NOW_MS - DAY_MS),
        pb.Token(
            id="t2",
            owner="ben",
            role="user",
            created_ms=NOW_MS - DAY_MS,
            expires_ms=NOW_MS + 2 * DAY_MS,
        ),
    ]
    with FakeApi(tokens={token.id: token for token in tokens}) as api:
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    for name in list(os.environ):
        if name.startswith("EVA_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, value in api.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(module, "now_of", lambda *_: NOW_MS)

    def run(*arguments: str, **options: object) -> Result:
        return CliRunner().invoke(main, list(arguments), **options)

    return run


def test_create_prints_the_secret_alone_on_stdout(eva: Run, api: FakeApi) -> None:
    result = eva("token", "create", "--owner", "eve", "--role", "viewer", "--expires", "12h")
    assert (result.exit_code, result.stdout) == (0, "eva_t3_secret\n")
    assert "token t3 of eve (viewer), expires in 12h 0m" in result.stderr
    (call,) = api.of("Tokens.Create")
    assert (call.request.owner, call.request.role) == ("eve", "viewer")
    assert call.request.lifetime_ms == DAY_MS // 2


@pytest.mark.parametrize(
    ("arguments", "lifetime_ms"), [([], 90 * DAY_MS), (["--expires", "never"], 0)]
)
def test_tokens_expire_unless_told_otherwise(
    eva: Run, api: FakeApi, arguments: list[str], lifetime_ms: int
) -> None:
    result = eva("token", "create", "--owner", "eve", "--json", *arguments)
    assert json.loads(result.stdout) == {
        "id": "t3",
        "owner": "eve",
        "role": "user",
        "created_ms": NOW_MS,
        "expires_ms": NOW_MS + lifetime_ms if lifetime_ms else None,
        "revoked_ms": None,
        "secret": "eva_t3_secret",
    }
    assert api.of("Tokens.Create")[0].request.lifetime_ms == lifetime_ms


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing option '--owner'"),
        (["--owner", "eve", "--role", "root"], "'root' is not one of"),
        (["--owner", "eve", "--expires", "30"], "write 30d, 12h or never"),
        (["--owner", "eve", "--expires", "0s"], "of no use"),
    ],
)
def test_bad_arguments(eva: Run, api: FakeApi, arguments: list[str], message: str) -> None:
    result = eva("token", "create", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert api.calls == []


@pytest.fixture
def free_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("free_umask")
def test_a_secret_goes_into_a_file_that_only_its_owner_reads(
    eva: Run, api: FakeApi, tmp_path: Path
) -> None:
    file = tmp_path / "eve.token"
    result = eva("token", "create", "--owner", "eve", "--out", str(file))
    assert result.exit_code == 0, result.output
    assert "wrote token t3 of eve (user)" in result.stdout
    assert "eva_t3_secret" not in result.output
    assert file.read_text() == "eva_t3_secret\n"
    assert file.stat().st_mode & 0o777 == 0o600
    answer = json.loads(
        eva("token", "create", "--owner", "eve", "--json", "--out", str(tmp_path / "b")).stdout
    )
    assert "secret" not in answer
    assert answer["file"] == str(tmp_path / "b")


def test_a_file_that_exists_is_kept_and_no_token_made(
    eva: Run, api: FakeApi, tmp_path: Path
) -> None:
    """A link counts as a file, wherever it leads to."""
    taken, link, dangling = tmp_path / "taken", tmp_path / "link", tmp_path / "dangling"
    taken.write_text("before")
    link.symlink_to(taken)
    dangling.symlink_to(tmp_path / "nothing")
    for file in (taken, link, dangling):
        result = eva("token", "create", "--owner", "eve", "--out", str(file))
        assert result.exit_code == 2
        assert "exists already" in result.stderr
        assert "--overwrite" in result.stderr
    assert eva("token", "create", "--owner", "eve", "--out", f"{tmp_path}/no/x").exit_code == 2
    assert eva("token", "create", "--owner", "eve", "--overwrite").exit_code == 2
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    refused = eva("token", "create", "--owner", "eve", "--overwrite", "--out", str(fifo))
    assert "is no regular file" in refused.stderr
    assert api.calls == []
    assert (taken.read_text(), (tmp_path / "nothing").exists()) == ("before", False)


def test_overwrite_replaces_a_link_and_not_what_it_leads_to(eva: Run, tmp_path: Path) -> None:
    taken, link = tmp_path / "taken", tmp_path / "link"
    taken.write_text("before")
    taken.chmod(0o644)
    link.symlink_to(taken)
    assert eva("token", "create", "--owner", "e", "--overwrite", "--out", str(link)).exit_code == 0
    assert (taken.read_text(), link.is_symlink()) == ("before", False)
    assert link.stat().st_mode & 0o777 == 0o600
    assert eva("token", "create", "--owner", "e", "--overwrite", "--out", str(taken)).exit_code == 0
    assert taken.stat().st_mode & 0o777 == 0o600


def test_no_file_is_left_if_no_token_is_made(eva: Run, api: FakeApi, tmp_path: Path) -> None:
    api.failures["Tokens.Create"] = [NotAuthorised("operators only")]
    kept = tmp_path / "kept"
    kept.write_text("before")
    for arguments in (["--out", str(tmp_path / "new")], ["--overwrite", "--out", str(kept)]):
        api.failures["Tokens.Create"] = [NotAuthorised("operators only")]
        assert eva("token", "create", "--owner", "eve", *arguments).exit_code == 1
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["kept"]
    assert kept.read_text() == "before"


def test_a_token_whose_secret_nobody_has_is_revoked(
    eva: Run, api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = eva("token", "create", "--owner", "eve", "--out", str(tmp_path / "new"))
    assert result.exit_code == 2
    assert "No space left on device" in result.stderr
    assert api.tokens["t3"].revoked_ms


def test_ls(eva: Run, api: FakeApi) -> None:
    api.tokens["t2"].expires_ms = NOW_MS - 60_000
    api.tokens["t3"] = pb.Token(id="t3", owner="eve", role="viewer", revoked_ms=NOW_MS - 60_000)
    lines = [line.split() for line in eva("token", "ls").stdout.splitlines()]
    assert lines[0] == ["TOKEN", "OWNER", "ROLE", "AGE", "STATE"]
    assert lines[1] == ["t1", "ana", "operator", "1d", "0h", "does", "not", "expire"]
    assert lines[2] == ["t2", "ben", "user", "1d", "0h", "expired", "1m", "0s", "ago"]
    assert lines[3][-4:] == ["revoked", "1m", "0s", "ago"]
    listed = json.loads(eva("token", "ls", "--json").stdout)["tokens"]
    assert [one["id"] for one in listed] == ["t1", "t2", "t3"]
    assert (listed[0]["expires_ms"], listed[0]["revoked_ms"]) == (None, None)


def test_revoke_asks(eva: Run, api: FakeApi) -> None:
    refused = eva("token", "revoke", "t2", input="n\n")
    assert refused.exit_code == 1
    assert "revoke token t2 of ben (user), expires in 2d 0h?" in refused.stderr
    assert api.of("Tokens.Revoke") == []
    assert eva("token", "revoke", "t2", input="y\n").stdout == "revoked t2\n"
    assert api.tokens["t2"].revoked_ms
    assert eva("token", "revoke", "-y", "t1").exit_code == 0
    assert len(api.of("Tokens.List")) == 2


def test_revoke_of_no_token_revokes_nothing(eva: Run, api: FakeApi) -> None:
    result = eva("token", "revoke", "nope", input="y\n")
    assert result.exit_code == 1
    assert "there is no token 'nope'" in result.stderr
    assert api.of("Tokens.Revoke") == []


def test_whoami(eva: Run) -> None:
    result = eva("whoami")
    assert "ana, with role operator: token t1" in result.stdout
    assert json.loads(eva("whoami", "--json").stdout)["owner"] == "ana"


def test_the_token_goes_with_every_call(eva: Run, api: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("eva_from_file\n")
    file.chmod(0o600)
    assert eva("--token-file", str(file), "whoami").exit_code == 0
    assert api.calls[0].metadata["authorization"] == "Bearer eva_from_file"


def test_help_says_what_roles_may(eva: Run) -> None:
    text = " ".join(eva("token", "--help").stdout.split())
    assert "Viewers see everything and change nothing" in text
    assert "EVA_CONFIG" in eva("--help").stdout


@pytest.mark.parametrize(
    "failure",
    [
        NotAuthenticated("token t1 of ana has expired", hint="ask an operator for a new one"),
        NotAuthorised("Create needs role operator", hint="ask an operator for a new one"),
    ],
)
def test_refusals_are_sentences(eva: Run, api: FakeApi, failure: Exception) -> None:
    api.failures["Tokens.Create"] = [failure]
    result = eva("token", "create", "--owner", "eve")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: {failure}\nhint: ask an operator for a new one\n"


def test_a_refusal_by_somebody_in_between_is_a_sentence_too(eva: Run, api: FakeApi) -> None:
    api.failures["Tokens.WhoAmI"] = [grpc.StatusCode.UNAUTHENTICATED]
    result = eva("whoami")
    assert (result.exit_code, result.stderr) == (1, "error: scripted\n")


# -- who answers -----------------------------------------------------------------------------------


def test_the_certificate_of_another_cluster(eva: Run, api: FakeApi) -> None:
    stranger = TestAuthority()
    result = eva("--ca-file", str(stranger.ca_file), "whoami")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: the server at {api.address} is not the master")
    assert "ca_file" in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 2
    assert api.calls == [], "the token was sent to a stranger"


def serving(credentials: grpc.ServerCredentials) -> tuple[grpc.Server, str]:
    """A server without services, to be stopped; and its address."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    return server, f"127.0.0.1:{port}"


def test_an_agent_that_poses_as_the_master(eva: Run) -> None:
    server, address = serving(grpc.ssl_server_credentials([authority().agent("i-1")]))
    result = eva("whoami", "--address", address)
    server.stop(None).wait()
    assert result.exit_code == 1
    assert f"error: the server at {address} is not the master" in result.stderr


def test_the_port_of_the_workers(eva: Run) -> None:
    server, address = serving(authority().server_credentials(agents_only=True))
    result = eva("whoami", "--address", address)
    server.stop(None).wait()
    assert result.exit_code == 69
    assert f"error: the server at {address} closes the connection at once" in result.stderr
    assert "the port may be the one for workers" in result.stderr


def test_the_command_says_it_and_nothing_else_does(api: FakeApi, tmp_path: Path) -> None:
    stranger = TestAuthority()
    done = subprocess.run(
        [sys.executable, "-m", "eva_client.cli", "whoami"],
        env={
            **os.environ,
            **api.environment,
            "EVA_CA_FILE": str(stranger.ca_file),
            "XDG_CONFIG_HOME": str(tmp_path),
            "XDG_STATE_HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 1
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["error", "hint"]


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-x\r\n"])
def test_a_server_without_tls(eva: Run, greeting: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    peer.sendall(greeting)
                    peer.recv(4096)

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        result = eva("whoami", "--address", address)
        server.shutdown(socket.SHUT_RDWR)
    thread.join(30)
    assert result.exit_code == 1
    assert f"error: the server at {address} does not speak TLS" in result.stderr


def test_without_settings_the_command_says_how_to_get_some(eva: Run) -> None:
    result = eva("ls", env={"EVA_CA_FILE": None, "EVA_TOKEN": None})
    assert result.exit_code == 2
    assert "start a master with `eva up`" in result.stderr
    shown = json.loads(eva("config", "--json", env={"EVA_CA_FILE": None}).stdout)
    assert (shown["client_file"], shown["master"]) == (None, None)
