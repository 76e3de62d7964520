"""Accounts of the fake AWS, and masters for agents, for the tests that need one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.aws.account import Account
from tests.fakes.aws.service import CREDENTIALS, shared
from tests.fakes.rpc.master import FakeMaster


@pytest.fixture
def make_account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Account]]:
    """Makes clusters; whatever they leave behind is terminated."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    accounts: list[Account] = []

    def build() -> Account:
        accounts.append(Account(shared()))
        return accounts[-1]

    yield build
    for account in accounts:
        account.close()


@pytest.fixture
def account(make_account: Callable[[], Account]) -> Account:
    """A cluster of the test's own."""
    return make_account()


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[FakeMaster]:
    """A master that does what the test says, with an object store below the test's directory."""
    (tmp_path / "objects").mkdir()
    master = FakeMaster(tmp_path / "objects")
    await master.start()
    yield master
    await master.vanish()
