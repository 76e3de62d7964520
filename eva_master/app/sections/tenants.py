"""The section of the settings that names tenants, and says what they may have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from eva_master.app.sections.base import Entry, Section, Usd
from eva_master.model.accounting.tenants import claimed_twice, is_tenant
from eva_master.model.catalog import Catalog
from eva_master.model.tenants.quotas import Tenancy, fleet_of, gpus_in_words, overdrawn, quota_of
from eva_master.model.tenants.tenancy import ANY_FAMILY, Quota
from eva_wire.settings.refusals import refusal
from eva_wire.text.yamlfile import suggestion
from eva_wire.values.bounds import DEFAULT_TENANT
from eva_wire.values.ids import MILLION

Complaint = tuple[tuple[str | int, ...], str, str]
"""Where in the settings, what is wrong, and what to do about it."""

_MOST_TENANTS = 1_000
_MOST_FAMILIES = 100
_MOST_GPUS = 10**6


def _check_tenant(name: str) -> str:
    if name == DEFAULT_TENANT:
        raise refusal(
            f"{DEFAULT_TENANT!r} is the tenant of all owners whom no other one names",
            "choose another name; '*' in the owners of a tenant stands for everybody else",
        )
    if not is_tenant(name):
        raise refusal(
            f"{name!r} cannot name a tenant",
            "use letters, digits and '.', '_', '-', at most 63 of them",
        )
    return name


def _check_entries(entries: tuple[str, ...]) -> tuple[str, ...]:
    if not entries:
        raise refusal("nobody can belong to this tenant", "name owners, or leave the tenant out")
    return entries


TenantName = Annotated[str, AfterValidator(_check_tenant)]
Gpus = Annotated[int, Field(ge=0, le=_MOST_GPUS, strict=True)]


class TenantBudgetSection(Section):
    """A tenant's spending limits; a budget that is used up stops launches, not running tasks.

    Attributes:
        usd_per_month: Limit of its jobs' charges in a calendar month, UTC.
    """

    usd_per_month: Usd


class TenantRoomSection(Section):
    """A tenant's limits.

    Attributes:
        quota: How many GPUs of each family it may have at a time, ``*`` for any family; as many as
            there are if absent.
        budget: Its spending limits.
    """

    quota: Annotated[dict[str, Gpus], Field(max_length=_MOST_FAMILIES)] | None = None
    budget: TenantBudgetSection | None = None


class TenantSection(TenantRoomSection):
    """A tenant, to whom jobs are accounted.

    Attributes:
        owners: Its owners: names, and patterns with one ``*``.
    """

    owners: Annotated[tuple[Entry, ...], AfterValidator(_check_entries)]


class SimulatedTenantSection(TenantRoomSection):
    """A tenant that jobs of a trace name.

    Attributes:
        owners: Not used: a trace says whose its jobs are.
    """

    owners: tuple[Entry, ...] = ()


TenantSections = Annotated[dict[TenantName, TenantSection], Field(max_length=_MOST_TENANTS)]
SimulatedTenantSections = Annotated[
    dict[TenantName, SimulatedTenantSection], Field(max_length=_MOST_TENANTS)
]


def tenancy(sections: Mapping[str, TenantRoomSection]) -> Tenancy:
    """Limits of tenants.

    Args:
        sections: By name.
    """
    budgets = {
        name: int(section.budget.usd_per_month * MILLION)
        for name, section in sections.items()
        if section.budget is not None
    }
    return Tenancy(_quotas(sections), budgets, tuple(sections))


def twice(
    sections: Mapping[str, TenantSection], where: Callable[[tuple[str | int, ...]], str]
) -> Iterator[Complaint]:
    """Names and patterns that stand twice, so that nobody could tell whose they are.

    Args:
        sections: By name.
        where: In what line something is, in words; empty if that is unknown.
    """
    owners = {name: section.owners for name, section in sections.items()}
    for tenant, number, other in claimed_twice(owners):
        entry = owners[tenant][number]
        line = where(("tenants", other, "owners", owners[other].index(entry)))
        yield (
            ("tenants", tenant, "owners", number),
            f"{entry!r} belongs to the tenant {other!r} already{line}",
            "name every owner and every pattern once",
        )


def unfounded(sections: Mapping[str, TenantRoomSection], catalog: Catalog) -> Iterator[Complaint]:
    """Quotas of GPUs that there are not.

    Args:
        sections: By name.
        catalog: Offerings on sale, owned nodes included.
    """
    fleet = fleet_of(catalog)
    families, unknown = sorted(fleet), False
    for name, section in sections.items():
        for family in section.quota or ():
            if family not in fleet and family != ANY_FAMILY:
                unknown = True
                hint = (
                    suggestion(family, families)
                    or f"with GPUs: {', '.join(families[:8]) or 'none'}"
                )
                message = f"the fleet has no GPUs of a family {family!r}"
                yield ("tenants", name, "quota", family), message, hint
    if unknown:
        return
    for family, asked, present in overdrawn(_quotas(sections).values(), fleet):
        yield (
            ("tenants",),
            f"the quotas of all tenants are {gpus_in_words(asked, family)}, and the fleet has"
            f" {present:,}: {asked - present:,} too many",
            "lower some of them, or add nodes",
        )


def _quotas(sections: Mapping[str, TenantRoomSection]) -> dict[str, Quota]:
    return {
        name: quota_of(section.quota)
        for name, section in sections.items()
        if section.quota is not None
    }
