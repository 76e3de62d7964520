"""Building blocks of settings' sections."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from eva_master.model.accounting.tenants import can_match
from eva_master.model.fleet.partitions import ShortJobs
from eva_wire.settings.refusals import refusal
from eva_wire.text.quantities import Duration
from eva_wire.values.ids import MILLION

DEFAULT_POLICY = "eva"
POLICY_OF_TENANTS = "astraea"
"""The default where all nodes are owned and tenants have quotas."""


class Section(BaseModel):
    """A section of the settings; keys that it does not know are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OnePolicySection(Section):
    """One scheduler with its options.

    Attributes:
        name: Of the policy; ``NAME:PRESET`` sets both.
        preset: One of the policy's named choices of options, `None` for its defaults.
        options: Fields of the policy's config, over those of the preset; see
            `eva_master.app.settings.load_master_config`.
    """

    name: str = DEFAULT_POLICY
    preset: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _with_preset_of_name(cls, values: Any) -> Any:
        name = values.get("name") if isinstance(values, dict) else None
        if not isinstance(name, str) or ":" not in name or values.get("preset") is not None:
            return values
        name, _, preset = name.partition(":")
        return {**values, "name": name, "preset": preset}


class ShortSection(OnePolicySection):
    """Which scheduler decides for short jobs, in front of the one for all others.

    Attributes:
        below: Jobs are short if one of their tasks is expected to take less than this.
        spot: Whether short jobs that say nothing of spot instances may run on them.
    """

    below: Annotated[Duration, Field(gt=0)] = 600_000
    spot: Annotated[bool, Field(strict=True)] = True


def _named(section: Any) -> Any:
    return {"name": section} if isinstance(section, str) else section


BackSection = Annotated[OnePolicySection, BeforeValidator(_named)]
"""The scheduler behind another one; a name alone is one with its default options."""


class PolicySection(OnePolicySection):
    """Which scheduler decides.

    Attributes:
        short: Which one decides for short jobs; the same if absent.
        back: Which one buys and packs instances, in the order of this one; this one if absent.
    """

    short: ShortSection | None = None
    back: BackSection | None = None

    @property
    def parts(self) -> tuple[tuple[tuple[str, ...], OnePolicySection], ...]:
        """All schedulers that it names, each with the keys under which it stands."""
        sections: list[tuple[tuple[str, ...], OnePolicySection]] = [((), self)]
        if self.short is not None:
            sections.append((("short",), self.short))
        if self.back is not None:
            sections.append((("back",), self.back))
        return tuple(sections)

    @property
    def short_jobs(self) -> ShortJobs | None:
        """Which jobs are short; `None` if one policy decides for all."""
        return None if self.short is None else ShortJobs(self.short.below, self.short.spot)


Most = Annotated[int, Field(gt=0, le=10**9, strict=True)]


def _check_entry(text: str) -> str:
    if text.count("*") > 1:
        raise refusal(f"{text!r} has two '*', and one is allowed", 'write ana, or "*@vision"')
    if not can_match(text):
        raise refusal(
            f"no owner can be called {text!r}",
            "owners are letters, digits and '.', '_', '@', '-', at most 63 of them",
        )
    return text


Entry = Annotated[str, AfterValidator(_check_entry)]


def _check_usd(amount: Decimal) -> Decimal:
    if amount * MILLION != int(amount * MILLION):
        raise refusal("dollars are counted in millionths", "write 2.50")
    return amount


Usd = Annotated[Decimal, Field(gt=0, le=10**9), AfterValidator(_check_usd)]
