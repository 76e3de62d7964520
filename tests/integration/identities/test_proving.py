"""Proofs of AWS identities, against a stand-in for STS that checks signatures by itself."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from eva_master.adapters.identities.principals import AdmittedIdentity, Grant, principal_of
from eva_master.adapters.identities.prover import Challenge, IdentityProver
from eva_master.adapters.identities.sts import Proof, Sts
from eva_master.adapters.loop.clock import SystemClock
from eva_wire.rpc.errors import BadRequest
from eva_wire.rpc.identity import CALL, signed_headers
from eva_wire.values.errors import ChallengeOver, CloudError, NotAuthenticated, NotAuthorised
from eva_wire.values.users import Role
from tests.fakes.aws.service import CREDENTIALS, DEPLOYER, REGION, shared
from tests.fakes.aws.sts import document, http, scripted_sts

OTHER_REGION = "eu-west-1"
DIGEST = "d" * 64
OPERATOR = Grant("deployer", Role.OPERATOR)
LISTED = (AdmittedIdentity(principal_of(DEPLOYER)[0], "deployer", Role.OPERATOR),)
USUAL = Credentials(*CREDENTIALS.values())


def prover(endpoint: str = "", *, cluster: str = "lab", ahead_s: float = 0.0) -> IdentityProver:
    """A master's, whose clock may be ahead."""
    return IdentityProver(
        cluster,
        DIGEST,
        sts=Sts(REGION, endpoint or shared().url),
        entries=LISTED,
        wall=lambda: SystemClock().now() + round(ahead_s * 1000),
    )


def signed(
    challenge: Challenge,
    credentials: Credentials = USUAL,
    *,
    call: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
    host: str = "",
    region: str = REGION,
) -> Proof:
    """A proof as a client makes it, or something like it."""
    if headers is None:
        headers = signed_headers(challenge.cluster, challenge.authority, challenge.nonce)
    host = host or challenge.host
    request = AWSRequest(
        "GET", f"https://{host}/?{urlencode({**CALL, **(call or {})})}", {"Host": host, **headers}
    )
    SigV4QueryAuth(credentials, "sts", region, 60).add_auth(request)
    terms = dict(parse_qsl(urlsplit(request.url).query))
    return Proof(
        challenge.nonce,
        terms["X-Amz-Credential"],
        terms["X-Amz-Date"],
        terms["X-Amz-Signature"],
        terms.get("X-Amz-Security-Token", ""),
    )


def known(arn: str, *, token: str = "") -> Credentials:
    """Credentials that the stand-in knows as somebody's."""
    key, secret = f"AKIA{uuid.uuid4().hex[:16].upper()}", uuid.uuid4().hex
    shared().know({key: {"secret": secret, "arn": arn, "token": token}})
    return Credentials(key, secret, token or None)


async def test_a_listed_identity_is_let_in_as_the_list_says() -> None:
    master = prover()
    assert await master.prove(signed(master.challenge())) == (OPERATOR, DEPLOYER)


async def test_temporary_credentials_prove_the_role() -> None:
    arn = "arn:aws:sts::123456789012:assumed-role/Lab/ana"
    entry = AdmittedIdentity(
        principal_of("arn:aws:iam::123456789012:role/x/Lab")[0], None, Role.USER
    )
    master = IdentityProver(
        "lab",
        DIGEST,
        sts=Sts(REGION, shared().url),
        entries=(entry,),
        wall=SystemClock().now,
    )
    credentials = known(arn, token="aB+/=" * 400)
    proof = signed(master.challenge(), credentials)
    assert await master.prove(proof) == (Grant("ana", Role.USER), arn)
    with pytest.raises(NotAuthenticated, match="InvalidClientTokenId"):
        await master.prove(replace(signed(master.challenge(), credentials), session_token="x"))


async def test_who_is_not_on_the_list_is_refused() -> None:
    master = prover()
    for arn in (
        "arn:aws:iam::999999999999:user/deployer",
        "arn:aws:sts::123456789012:assumed-role/Admin/deployer",
        "arn:aws:iam::123456789012:user/x/deployer",
    ):
        with pytest.raises(NotAuthorised, match="is not among the identities"):
            await master.prove(signed(master.challenge(), known(arn)))


async def test_a_proof_is_for_one_cluster() -> None:
    """Of another name, or of the same name with another authority."""
    master = prover()
    for changed in ({"cluster": "prod"}, {"authority": "e" * 64}):
        challenge = replace(master.challenge(), **changed)
        with pytest.raises(NotAuthenticated, match="SignatureDoesNotMatch") as refused:
            await master.prove(signed(challenge))
        assert "aws sts get-caller-identity" in refused.value.hint


async def test_a_proof_is_good_once() -> None:
    master = prover()
    proof = signed(master.challenge())
    await master.prove(proof)
    with pytest.raises(ChallengeOver, match="answered before"):
        await master.prove(proof)
    # The nonce is signed: another one does not go with the same signature.
    with pytest.raises(NotAuthenticated, match="SignatureDoesNotMatch"):
        await master.prove(replace(proof, nonce=master.challenge().nonce))


async def test_another_clusters_nonce_and_that_of_an_earlier_start_are_refused() -> None:
    before, after = prover(), prover()
    for challenge in (before.challenge(), prover(cluster="prod").challenge()):
        with pytest.raises(ChallengeOver, match="restarted") as refused:
            await after.prove(signed(challenge))
        assert refused.value.hint


@pytest.mark.parametrize(("ahead_s", "words"), [(62, "s ago"), (-63, "s in the future")])
async def test_a_proof_is_a_minute_old_at_most(ahead_s: float, words: str) -> None:
    master = prover(ahead_s=ahead_s)
    with pytest.raises(NotAuthenticated, match=words) as refused:
        await master.prove(signed(master.challenge()))
    assert "date -u" in refused.value.hint


async def test_the_service_of_another_region_is_not_asked() -> None:
    master = prover()
    proof = signed(master.challenge(), region=OTHER_REGION)
    with pytest.raises(NotAuthenticated, match=f"is for STS of {OTHER_REGION}"):
        await master.prove(proof)


@pytest.mark.parametrize(
    "other",
    [
        {"call": {"Action": "GetSessionToken"}},
        {"call": {"DurationSeconds": "900"}},
        {"call": {"X-Amz-Expires": "3600"}},
        {"host": "sts.eu-west-1.amazonaws.com"},
        {"headers": {}},
    ],
)
async def test_what_is_signed_beside_the_call_itself_is_not_accepted(
    other: dict[str, object],
) -> None:
    """The master sends its own call, whatever the client has signed."""
    master = prover()
    with pytest.raises(NotAuthenticated, match="SignatureDoesNotMatch"):
        await master.prove(signed(master.challenge(), **other))  # type: ignore[arg-type]


async def test_without_the_nonce_among_what_is_signed_nothing_is_proved() -> None:
    master = prover()
    challenge = master.challenge()
    headers = signed_headers("lab", DIGEST, challenge.nonce)
    for name in headers:
        some = {key: value for key, value in headers.items() if key != name}
        with pytest.raises(NotAuthenticated, match="SignatureDoesNotMatch"):
            await master.prove(signed(master.challenge(), headers=some))


@pytest.mark.parametrize(
    "bad",
    [
        {"credential": f"AKIA/20260101/{REGION}/s3/aws4_request"},
        {"credential": f"AKIA/20260101/{REGION}/sts/aws4_request&Action=AssumeRole"},
        {"credential": f"AKIA/20260101/{REGION}/sts/aws4_request\r\nHost: x"},
        {"date": "20261345T000000Z"},
        {"date": "20260101T000000Z&X-Amz-Expires=9"},
        {"signature": "f" * 63},
        {"signature": "f" * 64 + "&Action=AssumeRole"},
        {"session_token": "a b"},
        {"session_token": "a" * 16_385},
        {"nonce": "a\r\nHost: elsewhere"},
        {"nonce": "a" * 201},
    ],
)
async def test_a_proof_that_no_client_makes_reaches_nobody(bad: dict[str, str]) -> None:
    async with scripted_sts(http(document(f"<Arn>{DEPLOYER}</Arn>"))) as sts:
        master = prover(sts.url)
        with pytest.raises(BadRequest):
            await master.prove(replace(signed(master.challenge()), **bad))
        assert sts.heads == []


async def test_the_master_sends_its_own_call_and_nothing_else() -> None:
    async with scripted_sts(http(document(f"<Arn>{DEPLOYER}</Arn>"))) as sts:
        master = prover(sts.url)
        proof = signed(master.challenge())
        assert (await master.prove(proof))[0] == OPERATOR
    (head,) = sts.heads
    line, *headers = head.split("\r\n")[:-2]
    assert line.startswith("GET /?")
    assert dict(parse_qsl(urlsplit(line.split()[1]).query)) == {
        **CALL,
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Expires": "60",
        "X-Amz-SignedHeaders": "host;x-eva-cluster;x-eva-nonce",
        "X-Amz-Credential": proof.credential,
        "X-Amz-Date": proof.date,
        "X-Amz-Signature": proof.signature,
    }
    assert {line.partition(":")[0].lower() for line in headers} == {
        "host",
        "x-eva-cluster",
        "x-eva-nonce",
        "connection",
    }


NAMED = document("<Arn>&e;</Arn>")


def _bomb() -> bytes:
    entities = "".join(
        f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' if n else '<!ENTITY e0 "x">' for n in range(9)
    )
    return f"<!DOCTYPE a [{entities}]>".encode() + document("<Arn>&e8;</Arn>")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (http(document("<Arn>" + "a" * 70_000 + "</Arn>")), "more than 65,536 bytes"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 20_000, "not answer as HTTP does"),
        (http(b"", "302 Found", "Location: http://127.0.0.1:1/\r\n"), "status 302"),
        (http(b"", "503 Slow Down"), "status 503"),
        (http(b"{}"), "names no caller"),
        (http(b""), "names no caller"),
        (http(_bomb()), "names no caller"),
        (http(f'<!DOCTYPE a [<!ENTITY e "{DEPLOYER}">]>'.encode() + NAMED), "names no caller"),
        (http(document("")), "names no caller"),
        (http(document(f"<Arn>{DEPLOYER}</Arn>" * 2)), "names no caller"),
        (http(document("<Arn>arn:aws:iam::1:group/a</Arn>")), "no user and no role"),
        (b"SSH-2.0-OpenSSH\r\n", "not answer as HTTP does"),
        (b"", "not answer as HTTP does"),
    ],
)
async def test_answers_that_say_nothing_let_nobody_in(answer: bytes, words: str) -> None:
    async with scripted_sts(answer) as sts:
        master = prover(sts.url)
        with pytest.raises(CloudError, match=words):
            await master.prove(signed(master.challenge()))
        assert len(sts.heads) == 1


@pytest.mark.parametrize("begun", [b"", http(document(f"<Arn>{DEPLOYER}</Arn>"))[:-1]])
async def test_a_service_that_does_not_end_its_answer_is_not_waited_for(begun: bytes) -> None:
    async with scripted_sts(begun, silent=True) as sts:
        asked = Sts(REGION, sts.url, timeout_s=0.2)
        master = IdentityProver("lab", DIGEST, sts=asked, entries=LISTED, wall=SystemClock().now)
        with pytest.raises(CloudError, match="did not answer within") as refused:
            await master.prove(signed(master.challenge()))
        assert "must reach STS" in refused.value.hint


async def test_a_reason_of_refusal_is_told_by_its_code_alone() -> None:
    reason = b"<ErrorResponse><Error><Code>Expired\x1b[31m</Code></Error></ErrorResponse>"
    async with scripted_sts(http(reason, "403 Forbidden")) as sts:
        master = prover(sts.url)
        with pytest.raises(NotAuthenticated, match="no reason given"):
            await master.prove(signed(master.challenge()))


def test_the_service_is_that_of_the_masters_region() -> None:
    assert Sts("us-east-1").host == "sts.us-east-1.amazonaws.com"
    assert Sts("cn-north-1").host == "sts.cn-north-1.amazonaws.com.cn"


async def test_the_stand_in_accepts_no_signature_that_is_not_made_with_the_secret() -> None:
    master = prover()
    key = CREDENTIALS["aws_access_key_id"]
    with pytest.raises(NotAuthenticated, match="SignatureDoesNotMatch"):
        await master.prove(signed(master.challenge(), Credentials(key, "guess")))
    with pytest.raises(NotAuthenticated, match="InvalidClientTokenId"):
        await master.prove(signed(master.challenge(), Credentials("AKIANOBODY", "guess")))
    proof = signed(master.challenge())
    older = datetime.fromtimestamp(datetime.now(UTC).timestamp() - 30, UTC)
    with pytest.raises(NotAuthenticated, match="SignatureDoesNotMatch"):
        await master.prove(replace(proof, date=f"{older:%Y%m%dT%H%M%SZ}"))
