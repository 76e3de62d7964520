"""Quotas of tenants: what the operator states, and what of it there is at the moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from eva_master.model.catalog import Catalog, base_family
from eva_master.model.fleet.partitions import Partition
from eva_master.model.tenants.tenancy import ANY_FAMILY, Quota
from eva_wire.values.ids import Family

Fleet = Mapping[Family, int | None]
"""GPUs by family; `None` for any number. Families are those of types, however they are paid for."""


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Limits of tenants, as the operator states them.

    Attributes:
        quotas: By tenant. A tenant without an entry has no limit; one with an empty quota has no
            GPUs of its own.
        budgets: By tenant, micro-dollars in a calendar month, UTC.
        names: Further tenants, which have no limit.
    """

    quotas: Mapping[str, Quota] = field(default_factory=dict)
    budgets: Mapping[str, int] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    def enforced(self, partition: Partition) -> Mapping[str, Quota]:
        """The quotas to which the control loop holds tenants in a partition."""
        return {} if partition.lends else self.quotas

    @property
    def known(self) -> list[str]:
        """The names of all tenants, in order."""
        return sorted({*self.quotas, *self.budgets, *self.names})

    @property
    def limited(self) -> bool:
        """Whether any tenant has a limit."""
        return bool(self.quotas or self.budgets)


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """Limits of one tenant, and its use of them.

    Attributes:
        quota: As stated; `None` for as many GPUs as there are.
        quota_now: The quota in force: scaled down while there are fewer GPUs than all quotas
            together.
        use: The GPUs of its tasks, by family.
        budget: Micro-dollars in a calendar month, UTC; `None` for any amount.
        month: For a tenant with a budget: charges of its jobs in this month.
    """

    quota: Quota | None = None
    quota_now: Quota = ()
    use: Quota = ()
    budget: int | None = None
    month: int = 0


NO_TENANCY = Tenancy()
"""Every tenant may have as much as it likes."""


def quota_of(gpus: Mapping[str, int]) -> Quota:
    """A quota from the GPUs of each family by its name."""
    return tuple(sorted((Family(name), count) for name, count in gpus.items()))


def fleet_of(catalog: Catalog) -> dict[Family, int | None]:
    """The GPUs that there may be of each family that has any.

    Args:
        catalog: Offerings with the limits that apply.
    """
    gpus_of: dict[Family, int | None] = {}
    for offering in catalog:
        gpus = offering.type.capacity.gpus
        if not gpus:
            continue
        family = base_family(offering.type.family)
        before = gpus_of.get(family, 0)
        endless = before is None or offering.limit is None
        gpus_of[family] = None if endless else (before or 0) + gpus * (offering.limit or 0)
    return gpus_of


def overdrawn(quotas: Iterable[Quota], fleet: Fleet) -> Iterator[tuple[Family, int, int]]:
    """Families whose quotas exceed the fleet.

    Args:
        quotas: Of all tenants.
        fleet: GPUs of each family.

    Yields:
        A family, or `ANY_FAMILY` for all together, with the GPUs that quotas name and the GPUs of
        the fleet.
    """
    asked = _sums(quotas)
    excess = False
    for family, count in sorted(asked.items()):
        size = fleet.get(family, 0)
        if family != ANY_FAMILY and size is not None and count > size:
            excess = True
            yield family, count, size
    numbers = [count for count in fleet.values() if count is not None]
    if asked.get(ANY_FAMILY) and not excess and len(numbers) == len(fleet):
        together = sum(asked.values())
        if together > sum(numbers):
            yield ANY_FAMILY, together, sum(numbers)


def scaled(quotas: Mapping[str, Quota], fleet: Fleet) -> Mapping[str, Quota]:
    """Quotas scaled down in proportion while there are fewer GPUs than all of them together.

    Remainders of rounding go to the tenants that lost most by it. Quotas of any family share the
    GPUs that quotas of named families leave.

    Args:
        quotas: By tenant, as stated.
        fleet: GPUs of each family.
    """
    asked = _sums(quotas.values())
    sizes = {family: fleet.get(family, 0) for family in asked if family != ANY_FAMILY}
    rest: int | None = 0
    for family in fleet.keys() | sizes.keys():
        count = fleet.get(family, 0)
        used = asked.get(family, 0)
        rest = None if rest is None or count is None else rest + max(0, count - used)
    short = {family for family, count in sizes.items() if _is_short(asked[family], count)}
    if _is_short(asked.get(ANY_FAMILY, 0), rest):
        short.add(ANY_FAMILY)
    if not short:
        return quotas
    sizes[ANY_FAMILY] = rest
    parts = {family: _shares(quotas, family, sizes[family] or 0) for family in short}
    return {
        tenant: tuple((family, parts.get(family, {}).get(tenant, count)) for family, count in quota)
        for tenant, quota in quotas.items()
    }


def _is_short(asked: int, there: int | None) -> bool:
    return there is not None and asked > there


def _shares(quotas: Mapping[str, Quota], family: Family, there: int) -> dict[str, int]:
    """GPUs of a family divided among tenants, by largest remainders."""
    stated = {
        tenant: count
        for tenant, quota in quotas.items()
        for named, count in quota
        if named == family
    }
    total = sum(stated.values())
    shares = {tenant: count * there // total for tenant, count in stated.items()}
    by_rest = sorted(stated, key=lambda tenant: (-(stated[tenant] * there % total), tenant))
    for tenant in by_rest[: there - sum(shares.values())]:
        shares[tenant] += 1
    return shares


def _sums(quotas: Iterable[Quota]) -> dict[Family, int]:
    sums: dict[Family, int] = {}
    for quota in quotas:
        for family, count in quota:
            sums[family] = sums.get(family, 0) + count
    return sums


def gpus_in_words(gpus: int, family: Family) -> str:
    """A number of GPUs, in words."""
    return f"{gpus:,} GPUs" if family == ANY_FAMILY else f"{gpus:,} {family}"
