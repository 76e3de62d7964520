"""Accounts of the fake AWS for the tests that need one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fakes.aws.account import Account
from tests.fakes.aws.service import CREDENTIALS, shared


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
