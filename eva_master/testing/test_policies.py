"""The suite over the policies that ``--policy`` names."""

from __future__ import annotations

import pytest

from eva_master.testing.plugin import chosen
from eva_master.testing.policy_suite import PolicySuite


class TestPolicies(PolicySuite):
    """The policies of the command line."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test for every variant."""
        type(self).variants = chosen(metafunc.config)
        super().pytest_generate_tests(metafunc)
