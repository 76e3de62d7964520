"""An account of its own, in which masters and workers boot by their user data."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.aws.deployer import AMAZON_LINUX, OLD_IMAGE
from tests.fakes.aws.service import CREDENTIALS, Aws
from tests.fakes.datacentre import DataCentre
from tests.fakes.paths import short_tempdir


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """The account, whose credentials are in the environment."""
    server = Aws()
    server.publish(AMAZON_LINUX, OLD_IMAGE)
    for name in [name for name in os.environ if name.startswith("EVA_")]:
        monkeypatch.delenv(name)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    yield server
    server.stop()


@pytest.fixture
def centre(aws: Aws) -> Iterator[DataCentre]:
    """The machines of the account's instances."""
    with tempfile.TemporaryDirectory(prefix="eva-dc-", dir=short_tempdir()) as home:
        centre = DataCentre(aws, Path(home))
        centre.start()
        try:
            yield centre
        finally:
            centre.close()
