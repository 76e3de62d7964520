"""The price book: the EC2 types that come with the project, changed by a file of the user."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from eva_master.adapters.catalog.gpus import Pcie, parse_gpu, sheet
from eva_master.adapters.catalog.market import as_spot
from eva_master.model.catalog import Catalog, InstanceType, Offering, spot_price
from eva_master.model.resources import Resources
from eva_wire.text.quantities import Duration, MilliCpus, Size, parse_discount
from eva_wire.text.yamlfile import Document, invalid, problems_of, read
from eva_wire.values.errors import InvalidConfig
from eva_wire.values.ids import MILLION, Family, Price

_BUILT_IN = Path(__file__).with_name("ec2_types.yaml")
_GPU_TYPES = Path(__file__).with_name("ec2_gpu_types.yaml")
_USUAL_TIMES = {"acquisition": "10s", "setup": "150s"}
"""Expected times of types that were not measured."""
_MINUTE_MS = 60_000
_Zone = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9-]{1,64}$")]
_PRICE = re.compile(r"\$([0-9]{1,9}(?:\.[0-9]{1,6})?)/h")


def parse_price(text: object) -> int:
    """Read a price such as ``$3.06/h``, digit by digit: never through a float.

    Returns:
        Micro-dollars per hour.

    Raises:
        ValueError: The text is no price, or finer than a micro-dollar.
    """
    match = _PRICE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise PydanticCustomError(
            "price", "{message}", {"message": f"{text!r} is not a price", "hint": "write $3.06/h"}
        )
    return int(Decimal(match[1]) * MILLION)


HourlyPrice = Annotated[
    int,
    BeforeValidator(parse_price),
    PlainSerializer(lambda price: f"${Decimal(price) / MILLION:f}/h", when_used="json"),
]
"""Micro-dollars per hour."""


class SpotPrice(NamedTuple):
    """A type's price on the spot market: an amount, or a part of its price on demand."""

    price: int | None = None
    part_ppm: int = 0


def parse_spot_price(text: object) -> SpotPrice:
    """Read a spot price: ``$0.918/h``, or ``30%`` of the price on demand.

    Raises:
        ValueError: The text is neither, or zero.
    """
    part = isinstance(text, str) and text.endswith("%")
    spot = SpotPrice(None, parse_discount(text)) if part else SpotPrice(parse_price(text))
    if not (spot.price or spot.part_ppm):
        complaint = {
            "message": f"{text!r} is no price",
            "hint": "write one above 0: $0.918/h or 30%",
        }
        raise PydanticCustomError("price", "{message}", complaint)
    return spot


class _Spot(BaseModel):
    """A type on the spot market: where, at what price, and how long an instance lives."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    zones: dict[_Zone, Annotated[SpotPrice, BeforeValidator(parse_spot_price)]] = Field(
        min_length=1
    )
    expected_life: Annotated[Duration, Field(ge=_MINUTE_MS)] = 7 * 24 * 60 * _MINUTE_MS


class _Type(BaseModel):
    """One instance type, in micro-dollars, thousandths of vCPUs, MiB and milliseconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gpus: int = Field(default=0, ge=0, strict=True)
    cpus: Annotated[MilliCpus, Field(gt=0)]
    memory: Annotated[Size, Field(gt=0)]
    price: Annotated[int, BeforeValidator(parse_price), Field(gt=0)]
    acquisition: Duration = 0
    setup: Duration = 0
    limit: int | None = Field(default=None, ge=0, strict=True)
    architecture: str = "x86_64"
    gpu: Annotated[int, BeforeValidator(parse_gpu)] = 0
    pcie: Pcie | None = None
    spot: _Spot | None = None

    def offering(self, name: str) -> Offering:
        """The type as an offering on demand."""
        machine = InstanceType(
            name=name,
            family=_family(name),
            capacity=Resources(self.gpus, self.cpus, self.memory),
            acquisition_ms=self.acquisition,
            setup_ms=self.setup,
            architecture=self.architecture,
            gpu_bandwidth=self.gpu,
            gpu=sheet(self.gpu, self.pcie),
        )
        return Offering(machine, Price(self.price), limit=self.limit)

    def sold(self, name: str) -> Iterator[Offering]:
        """The type on demand, and in each zone in which it is on the spot market."""
        on_demand = self.offering(name)
        yield on_demand
        if self.spot is None:
            return
        for zone, stated in self.spot.zones.items():
            price = spot_price(on_demand.price, stated.price, stated.part_ppm)
            yield as_spot(replace(on_demand, zone=zone, limit=None), price, self.spot.expected_life)


class _File(BaseModel):
    """A catalog file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    types: dict[str, _Type] = Field(default_factory=dict)
    only: list[str] | None = Field(default=None, min_length=1)


def load_catalog(
    user_file: Path | None = None,
    only: Sequence[str] | None = None,
    known: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    spot: bool = False,
) -> Catalog:
    """Read the catalog of offerings.

    Args:
        user_file: A catalog file. Types that are new are added; what it states of a known type
            replaces the built-in value. Its ``only`` restricts the catalog.
        only: Names or families to restrict the catalog to further, `None` for no restriction.
        known: Types in the format of a catalog file, in place of those that come with the project.
            Where they state no expected times, those that come with it apply.
        spot: Whether what the file says of the spot market is to be offered too.

    Returns:
        One on-demand offering per type, in the order of the files, each followed by those on the
        spot market.

    Raises:
        InvalidConfig: A file cannot be read or is wrong, or a restriction names nothing; carries
            file, line and key of each problem.
    """
    built_in = read(_BUILT_IN)
    if known is not None:
        times = built_in.value["types"]
        types_known = {name: {**_times(times, name), **entry} for name, entry in known.items()}
        built_in = Document({"types": types_known}, {})
    types = dict(_parse(built_in, _BUILT_IN).types)
    if user_file is not None:
        document = read(user_file)
        completed = _completed(document.value, built_in.value["types"])
        file = _parse(replace(document, value=completed), user_file)
        types |= file.types
        if unknown := [
            document.problem(("only", index), f"no type or family {wanted!r}", _choices(types))
            for index, wanted in enumerate(file.only or ())
            if not any(_admits(wanted, name) for name in types)
        ]:
            raise invalid(InvalidConfig, str(user_file), unknown)
        types = _restricted(types, file.only)
    for wanted in only or ():
        if not any(_admits(wanted, name) for name in types):
            raise InvalidConfig(
                f"the catalog has no instance type or family {wanted!r}", hint=_choices(types)
            )
    chosen = _restricted(types, only)
    if spot:
        return tuple(offering for name, entry in chosen.items() for offering in entry.sold(name))
    return tuple(entry.offering(name) for name, entry in chosen.items())


def current_types() -> Mapping[str, Mapping[str, Any]]:
    """The types that come with the project for masters on EC2, in the format of a catalog file.

    They are those of the simulator and the GPUs that AWS sells today.
    """
    return {
        **read(_BUILT_IN).value["types"],
        **read(_GPU_TYPES).value["types"],
    }


def named_in(user_file: Path) -> frozenset[str]:
    """The types and families that a catalog file names itself.

    Raises:
        InvalidConfig: The file cannot be read; `load_catalog` checks its contents.
    """
    document = read(user_file).value
    types, only = document.get("types"), document.get("only")
    return frozenset(types if isinstance(types, dict) else ()) | frozenset(
        map(str, only if isinstance(only, list) else ())
    )


def _times(built_in: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The expected times for a type to boot, as known before any has booted."""
    entry = built_in.get(name, _USUAL_TIMES)
    return {key: entry[key] for key in _USUAL_TIMES}


def _parse(document: Document, path: Path) -> _File:
    try:
        return _File.model_validate(document.value)
    except ValidationError as error:
        problems = problems_of(error, document, _File)
        raise invalid(InvalidConfig, str(path), problems) from error


def _completed(data: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """A user's file completed with the built-in values of known types; malformed parts stay."""
    types = data.get("types")
    if not isinstance(types, dict):
        return data
    completed = {
        name: {**known.get(name, {}), **entry} if isinstance(entry, dict) else entry
        for name, entry in types.items()
    }
    return {**data, "types": completed}


def _restricted(types: Mapping[str, _Type], only: Sequence[str] | None) -> dict[str, _Type]:
    return {
        name: entry
        for name, entry in types.items()
        if only is None or any(_admits(wanted, name) for wanted in only)
    }


def _admits(wanted: str, name: str) -> bool:
    """Whether `wanted` is the type or its family."""
    return wanted in (name, _family(name))


def _family(name: str) -> Family:
    return Family(name.partition(".")[0])


def _choices(types: Mapping[str, _Type]) -> str:
    families = sorted({_family(name) for name in types})
    return f"families: {', '.join(families)}; types: {', '.join(types)}"
