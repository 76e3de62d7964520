"""The pytest plug-in behind ``python -m eva_master.testing``."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from eva_master.app.policy_registry import policies
from eva_master.testing import drawing
from eva_wire.values.errors import UnusablePolicy

pytest.register_assert_rewrite("eva_master.testing.plan_checks", "eva_master.testing.policy_suite")
drawing.by_declaration_alone()
# Every run draws the same clusters.
settings.register_profile(
    "eva",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("eva")

from eva_master.testing.policy_suite import Variant, variants_of  # noqa: E402 - goes by the above


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that says which policies are tested."""
    parser.addoption(
        "--policy",
        action="append",
        default=[],
        metavar="NAME",
        help="an installed policy to test with all its presets; may be given several times",
    )


def pytest_configure(config: pytest.Config) -> None:
    """See that there is something to test."""
    chosen(config)


def chosen(config: pytest.Config) -> dict[str, Variant]:
    """Every variant of the policies that the command line names.

    Raises:
        pytest.UsageError: The options name no policy, or one that cannot be used.
    """
    names: list[str] = config.getoption("--policy")
    if not names:
        raise pytest.UsageError("say which policy is to be tested: --policy NAME")
    kinds = policies()
    variants: dict[str, Variant] = {}
    for name in names:
        if name not in kinds:
            raise pytest.UsageError(f"there is no policy {name!r}; installed: {', '.join(kinds)}")
        try:
            variants |= variants_of(kinds[name])
        except UnusablePolicy as error:
            raise pytest.UsageError(f"{error.message} ({error.hint})") from error
    return variants
