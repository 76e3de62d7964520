"""Tokens for AWS identities: over real connections, and by the command."""

from __future__ import annotations

import asyncio
import json
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
import yaml
from click.testing import CliRunner, Result
from structlog.testing import capture_logs

from eva_client.cli import main
from eva_client.identities import aws
from eva_client.identities.proving import Proving
from eva_master.adapters.identities.principals import AdmittedIdentity, principal_of
from eva_master.adapters.identities.prover import IdentityProver
from eva_master.adapters.identities.sts import Sts
from eva_master.adapters.loop.clock import SystemClock
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import IdentitiesStub
from eva_wire.rpc.identity import authority_digests
from eva_wire.values.errors import Busy, InvalidRequest, NotAuthorised, Unreachable, Untrusted
from eva_wire.values.users import Role
from tests.fakes.aws.service import CREDENTIALS, DEPLOYER, REGION, shared
from tests.fakes.aws.sts import document, http, scripted_sts
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.server import RpcMaster, refusal, rpc_master

ENTRIES = (AdmittedIdentity(principal_of(DEPLOYER)[0], "deployer", Role.OPERATOR),)


def prover(endpoint: str = "", digest: str = "") -> IdentityProver:
    return IdentityProver(
        "lab",
        digest or authority_digests(authority().certificates)[0],
        sts=Sts(REGION, endpoint or shared().url),
        entries=ENTRIES,
        wall=SystemClock().now,
    )


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with AWS credentials and nothing else."""
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "EVA_TOKEN", "EVA_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)


@asynccontextmanager
async def cluster(
    home: Path, monkeypatch: pytest.MonkeyPatch, identities: IdentityProver | None
) -> AsyncIterator[RpcMaster]:
    """A master, and settings that name it."""
    async with rpc_master(home, prover=identities) as master:
        settings = {
            "address": f"127.0.0.1:{master.ports.users}",
            "ca_file": str(authority().ca_file),
            "identity": "aws",
        }
        file = home / "lab.yaml"
        file.write_text(yaml.safe_dump(settings))
        monkeypatch.setenv("EVA_CONFIG", str(file))
        yield master


async def eva(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, list(arguments))


def kept(home: Path) -> list[Path]:
    return list((home / "home/eva/identities").glob("*"))


async def proof(stub: IdentitiesStub) -> pb.ProveRequest:
    """A client's answer to a master's challenge."""
    challenge = await stub.Challenge(pb.ChallengeRequest())
    return pb.ProveRequest(**aws.proof(challenge, [challenge.authority]))


async def test_a_command_needs_no_stored_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, monkeypatch, prover()) as master:
        before = len(master.tokens.all())
        said = await eva("whoami")
        assert said.exit_code == 0, said.output
        assert "deployer, with role operator" in said.output
        (token,) = master.tokens.all()[before:]
        assert token.expires_ms is not None
        assert token.expires_ms - token.created_ms == 12 * 3_600_000
        (file,) = kept(tmp_path)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        # The token is used until it ends, with these credentials alone.
        assert (await eva("ls")).exit_code == 0
        assert len(master.tokens.all()) == before + 1
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIASOMEBODY")
        other = await eva("ls")
        assert other.exit_code == 1
        assert "InvalidClientTokenId" in other.output
        assert "AWS_PROFILE" in other.output


async def test_a_token_that_ends_soon_makes_way_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, monkeypatch, prover()) as master:
        assert (await eva("whoami")).exit_code == 0
        (file,) = kept(tmp_path)
        content = json.loads(file.read_bytes())
        assert content["ends_s"] == pytest.approx(time.time() + 12 * 3_600, abs=600)
        content["ends_s"] -= 11.5 * 3_600
        file.write_text(json.dumps(content))
        before = len(master.tokens.all())
        assert (await eva("whoami")).exit_code == 0
        assert len(master.tokens.all()) == before + 1
        # One that is still good serves while no other is to be had.
        content["secret"] = json.loads(file.read_bytes())["secret"]
        file.write_text(json.dumps(content))
        monkeypatch.setattr(Proving, "token", unreachable)
        assert (await eva("whoami")).exit_code == 0
        content["ends_s"] = 0
        file.write_text(json.dumps(content))
        assert "no master answers" in (await eva("whoami")).output


def unreachable(*_: object) -> None:
    raise Unreachable("no master answers")


async def test_a_revoked_token_is_forgotten_and_the_next_command_gets_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, monkeypatch, prover()) as master:
        await eva("whoami")
        master.tokens.revoke(master.tokens.all()[-1].id)
        refused = await eva("whoami")
        assert refused.exit_code == 1
        assert "was revoked" in refused.output
        assert "call the command again" in refused.output
        assert kept(tmp_path) == []
        assert (await eva("whoami")).exit_code == 0


async def test_a_token_of_the_users_own_goes_over_the_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, monkeypatch, prover()) as master:
        _, secret = master.tokens.create("vic", Role.VIEWER)
        monkeypatch.setenv("EVA_TOKEN", secret)
        assert "vic, with role viewer" in (await eva("whoami")).output
        assert kept(tmp_path) == []


async def test_a_master_that_is_restarted_between_challenge_and_proof_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, monkeypatch, prover()):
        honest, stale = aws.proof, iter([prover().challenge().nonce])

        def too_late(challenge: pb.ChallengeResponse, digests: list[str]) -> object:
            challenge.nonce = next(stale, challenge.nonce)
            return honest(challenge, digests)

        monkeypatch.setattr(aws, "proof", too_late)
        assert (await eva("whoami")).exit_code == 0
        assert next(stale, None) is None


async def test_nothing_is_signed_for_another_clusters_challenge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master that passes on what another one asks would be let in there in the user's name."""
    async with cluster(tmp_path, monkeypatch, prover(digest="e" * 64)) as master:
        before = len(master.tokens.all())
        refused = await eva("whoami")
        assert refused.exit_code == 1
        assert "for another cluster" in refused.output
        assert len(master.tokens.all()) == before
    with pytest.raises(Untrusted):
        aws.proof(pb.ChallengeResponse(authority="a", host="x/y", region=REGION), ["a"])


async def test_without_credentials_the_command_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name.upper())
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    async with cluster(tmp_path, monkeypatch, prover()):
        refused = await eva("whoami")
    assert refused.exit_code == 1
    assert "there are no AWS credentials" in refused.output
    assert "AWS_PROFILE" in refused.output


async def test_a_master_without_a_list_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, monkeypatch, None):
        refused = await eva("whoami")
    assert refused.exit_code == 1
    assert "lets no identities of a cloud in" in refused.output
    assert "ec2.identities" in refused.output


async def test_what_was_proved_and_refused_is_in_the_log_without_secrets(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with rpc_master(tmp_path, prover=prover()) as master:
            stub = IdentitiesStub(master.channel)
            request = await proof(stub)
            made = await stub.Prove(request)
            _, error = await refusal(stub.Prove(request))
    assert "answered before" in error.message
    (let_in,) = [line for line in lines if line["event"] == "token made for an identity"]
    assert let_in["arn"] == DEPLOYER
    assert (let_in["owner"], let_in["role"]) == ("deployer", "operator")
    (refused,) = [line for line in lines if line["event"] == "identity refused"]
    assert "answered before" in refused["reason"]
    assert all(text not in str(lines) for text in (made.secret, request.signature))


async def test_few_proofs_of_one_address_are_looked_at_at_a_time(tmp_path: Path) -> None:
    answer = http(document(f"<Arn>{DEPLOYER}</Arn>"))[:-1]
    async with (
        scripted_sts(answer, silent=True) as sts,
        rpc_master(tmp_path, prover=prover(sts.url)) as master,
    ):
        stub = IdentitiesStub(master.channel)
        calls = [stub.Prove(await proof(stub)) for _ in range(4)]
        await sts.asked(4)
        status, error = await refusal(stub.Prove(await proof(stub)))
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert isinstance(error, Busy)
        assert len(sts.heads) == 4
        for call in calls:
            call.cancel()
        # Callers who gave up hold no place.
        again = stub.Prove(await proof(stub))
        await sts.asked(5)
        again.cancel()


async def test_an_identity_that_is_not_listed_gets_nothing(tmp_path: Path) -> None:
    other = http(document("<Arn>arn:aws:sts::123456789012:assumed-role/Admin/deployer</Arn>"))
    async with (
        scripted_sts(other) as sts,
        rpc_master(tmp_path, prover=prover(sts.url)) as master,
    ):
        before = len(master.tokens.all())
        stub = IdentitiesStub(master.channel)
        status, error = await refusal(stub.Prove(await proof(stub)))
        assert status is grpc.StatusCode.PERMISSION_DENIED
        assert isinstance(error, NotAuthorised)
        assert len(master.tokens.all()) == before


async def test_a_large_proof_is_not_read(tmp_path: Path) -> None:
    async with rpc_master(tmp_path, prover=prover()) as master:
        stub = IdentitiesStub(master.channel)
        request = await proof(stub)
        request.session_token = "a" * 70_000
        status, _ = await refusal(stub.Prove(request))
        assert status is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_master_of_no_list_has_no_challenge(tmp_path: Path) -> None:
    async with rpc_master(tmp_path) as master:
        _, error = await refusal(IdentitiesStub(master.channel).Challenge(pb.ChallengeRequest()))
        assert isinstance(error, InvalidRequest)
