"""Which principal an ARN names, and what the list of a cluster gives to it."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from eva_master.adapters.identities.principals import AdmittedIdentity, Grant, grant, principal_of
from eva_master.app.sections.identities import Identities
from eva_wire.values.errors import NotAuthorised
from eva_wire.values.users import Role

IAM, STS = "arn:aws:iam::123456789012", "arn:aws:sts::123456789012"


def entry(arn: str, owner: str | None = "ana", role: Role = Role.USER) -> AdmittedIdentity:
    return AdmittedIdentity(principal_of(arn)[0], owner, role)


def given(entries: list[AdmittedIdentity], arn: str) -> Grant:
    return grant(entries, *principal_of(arn))


@pytest.mark.parametrize(
    ("arn", "normal", "session"),
    [
        (f"{IAM}:user/ana", f"{IAM}:user/ana", ""),
        (f"{IAM}:user/research/ana", f"{IAM}:user/research/ana", ""),
        (f"{IAM}:role/Admin", f"{IAM}:role/Admin", ""),
        (f"{IAM}:role/aws-reserved/sso/Admin", f"{IAM}:role/Admin", ""),
        (f"{STS}:assumed-role/Admin/ana@example.org", f"{IAM}:role/Admin", "ana@example.org"),
        (f"{STS}:federated-user/ana", f"{STS}:federated-user/ana", ""),
        (f"{IAM}:root", f"{IAM}:root", ""),
        (
            "arn:aws-cn:sts::123456789012:assumed-role/Admin/i-1",
            "arn:aws-cn:iam::123456789012:role/Admin",
            "i-1",
        ),
    ],
)
def test_an_arn_names_a_principal_and_perhaps_a_session(
    arn: str, normal: str, session: str
) -> None:
    principal, named = principal_of(arn)
    assert (principal.arn, named) == (normal, session)
    assert principal_of(principal.arn) == (principal, "")


@pytest.mark.parametrize(
    "arn",
    [
        "",
        "ana",
        f"{IAM}:user/",
        f"{IAM}:user",
        f"{IAM}:user//ana",
        f"{IAM}:root/ana",
        f"{STS}:user/ana",
        f"{STS}:assumed-role/Admin",
        f"{STS}:assumed-role/ops/Admin/ana",
        f"{IAM}:assumed-role/Admin/ana",
        f"{IAM}:group/admins",
        f"{IAM}:user/ana\n",
        f"{IAM}:user/an\u0430",
        "arn:aws:iam::12345:user/ana",
        "arn:aws:iam::123456789012:user/" + "a" * 2_000,
    ],
)
def test_what_is_no_caller_is_none(arn: str) -> None:
    with pytest.raises(ValueError, match="no ARN of a user or a role"):
        principal_of(arn)


def test_a_session_is_not_the_user_of_its_name() -> None:
    """Callers who assume a role choose the name of their session."""
    listed = [entry(f"{IAM}:user/alice", "alice", Role.OPERATOR)]
    with pytest.raises(NotAuthorised, match=r"role/Admin is not among the identities") as refused:
        given(listed, f"{STS}:assumed-role/Admin/alice")
    assert "ec2.identities" in refused.value.hint
    # A role of the user's name and a user with a path are others, too.
    for arn in (f"{STS}:assumed-role/alice/alice", f"{IAM}:user/x/alice"):
        with pytest.raises(NotAuthorised):
            given(listed, arn)


def test_a_role_is_found_whatever_its_path() -> None:
    """STS does not tell the path."""
    listed = [entry(f"{IAM}:role/ops/eu/Admin", "ops", Role.OPERATOR)]
    assert given(listed, f"{STS}:assumed-role/Admin/x") == Grant("ops", Role.OPERATOR)


def test_another_account_and_another_partition_are_others() -> None:
    listed = [entry(f"{IAM}:user/ana")]
    for arn in ("arn:aws:iam::999999999999:user/ana", "arn:aws-cn:iam::123456789012:user/ana"):
        with pytest.raises(NotAuthorised):
            given(listed, arn)


def test_an_owner_is_the_sessions_name_only_where_the_list_says_so() -> None:
    arn = f"{STS}:assumed-role/Lab/ben"
    assert given([entry(f"{IAM}:role/Lab", None)], arn) == Grant("ben", Role.USER)
    assert given([entry(f"{IAM}:role/Lab", "lab")], arn).owner == "lab"
    # An owner may be called as the keyword is.
    assert given([entry(f"{IAM}:role/Lab", "session")], arn).owner == "session"
    with pytest.raises(NotAuthorised, match="cannot be the owner of jobs"):
        given([entry(f"{IAM}:role/Lab", None)], f"{STS}:assumed-role/Lab/a+b")


def test_names_for_jobs_are_made_of_what_is_there() -> None:
    assert principal_of(f"{IAM}:user/x/ana@example.org")[0].owner == "ana@example.org"
    assert principal_of(f"{IAM}:user/a+b=c")[0].owner == "a-b-c"
    assert principal_of(f"{IAM}:user/=+")[0].owner == "user"
    assert principal_of(f"{IAM}:root")[0].owner == "root"


LIST: TypeAdapter[Identities] = TypeAdapter(Identities)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([{"arn": f"{IAM}:group/a", "user": "ana"}], "no ARN of a user or a role"),
        ([{"arn": f"{STS}:assumed-role/A/b", "user": "ana"}], "is a session of a role"),
        ([{"arn": f"{IAM}:user/ana"}], "needs one owner"),
        ([{"arn": f"{IAM}:role/A", "user": "ana", "owner": "session"}], "needs one owner"),
        ([{"arn": f"{IAM}:user/ana", "owner": "session"}], "has no sessions"),
        ([{"arn": f"{IAM}:user/ana", "user": "no such owner"}], "cannot be an owner"),
        ([{"arn": f"{IAM}:user/ana", "user": "ana", "role": "root"}], "operator"),
        (
            [{"arn": f"{IAM}:role/{path}A", "user": "ana"} for path in ("", "ops/")],
            "is listed twice",
        ),
    ],
)
def test_settings_that_name_nobody_are_refused(entries: list[dict[str, str]], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        LIST.validate_python(entries)


def test_settings_give_users_the_least_role_that_submits() -> None:
    (identity,) = LIST.validate_python([{"arn": f"{IAM}:user/ana", "user": "ana"}])
    assert identity.entry == entry(f"{IAM}:user/ana")
