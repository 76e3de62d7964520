"""A master that lets AWS identities in, and what becomes of the token that it left before."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from eva_client.settings import write_aws_settings
from tests.e2e.conftest import Ec2Masters
from tests.e2e.ec2.master import Ec2Master
from tests.fakes.aws.service import DEPLOYER

LISTED = {"arn": DEPLOYER, "user": "dora", "role": "operator"}


def as_identity(master: Ec2Master, home: Path, *arguments: str) -> str:
    """Output of a command of a user who has AWS credentials alone."""
    file = home / "laptop.yaml"
    write_aws_settings(file, master.address, master.authorities().decode())
    places = {"EVA_CONFIG": str(file), "XDG_STATE_HOME": str(home / "laptop")}
    done = master.eva(*arguments, **places)
    return done.stdout + done.stderr


@pytest.mark.long
def test_a_cluster_with_a_standing_token_goes_over_to_identities(
    make_master: Ec2Masters, tmp_path: Path
) -> None:
    master = make_master({})
    standing = yaml.safe_load(master.client_file.read_text())["token"]
    assert "with role operator" in master.eva("whoami").stdout
    assert "lets no identities of a cloud in" in as_identity(master, tmp_path, "whoami")
    job = master.submit("one")

    # The second deploy.
    master.kill()
    master.change(identities=[LISTED])
    master.start()
    assert "was revoked" in master.eva("whoami", EVA_TOKEN=standing).stderr
    assert standing not in master.client_file.read_text()
    assert "dora, with role operator" in as_identity(master, tmp_path, "whoami")
    assert "cancelled" in as_identity(master, tmp_path, "cancel", "-y", job)
    (kept,) = (tmp_path / "laptop/eva/identities").iterdir()

    # The token that an identity has got is good after a restart, too.
    master.kill()
    master.start()
    assert "dora, with role operator" in as_identity(master, tmp_path, "whoami")
    assert [*kept.parent.iterdir()] == [kept]
