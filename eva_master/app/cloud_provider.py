"""The interface of a cloud for the master."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from eva_master.ports import Clock, Cloud, Inbox

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eva_master.adapters.bootstrap import Bootstrap
    from eva_master.adapters.identities.prover import IdentityProver
    from eva_master.app.config import MasterConfig
    from eva_master.control.settings import Settings
    from eva_master.model.catalog import Catalog

Complaint = tuple[tuple[str | int, ...], str, str]
"""Path of a setting, what is wrong with it, and what to write instead."""


class ManagedCloud(Cloud, Protocol):
    """A cloud that a master can take down with it."""

    def terminate_all(self, within_ms: int | None = None) -> None:
        """Terminate every instance, and wait until all are gone.

        Args:
            within_ms: How long each may take to stop its tasks and store their files, if the cloud
                lets that be chosen; `None` for the cloud's own limit.
        """
        ...

    def hurry(self) -> None:
        """Have what is shutting down end at once; any thread may call it."""
        ...

    def close(self) -> None:
        """Stop watching; instances stay as they are."""
        ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """Settings with which a cloud can be opened.

    Attributes:
        config: With everything decided that the settings leave open.
        told: A sentence for whoever starts the master, empty for none.
    """

    config: MasterConfig
    told: str = ""


@dataclass(frozen=True, slots=True)
class CloudSite:
    """Parts of a master that its cloud needs.

    Attributes:
        inbox: Gets the events of the cloud.
        clock: Tells the time.
        bootstrap: Data that instances need to find the master.
        catalog: Offerings that the master may buy.
        engine: The journal's database, for records of the cloud's own.
    """

    inbox: Inbox
    clock: Clock
    bootstrap: Bootstrap
    catalog: Catalog
    engine: Engine


class CloudProvider(ABC):
    """One cloud; a package of `eva_master.app.clouds` exports one as ``PROVIDER``.

    Every command imports this class, so slow imports belong in its methods.

    Attributes:
        name: That of the package, of the setting ``cloud``, and of the section of the settings.
        flags: Options of ``eva master`` that set keys of the section, with their click attributes;
            each is named ``--NAME-KEY``.
        commands: Commands of the cloud within groups, such as ``deploy aws``, and where each is:
            ``module:attribute``.
        ends_with_master: Whether ``eva up`` can run it: its instances end with the command.
    """

    name: ClassVar[str]
    flags: ClassVar[Mapping[str, Mapping[str, Any]]]
    commands: ClassVar[Mapping[str, str]] = {}
    ends_with_master: ClassVar[bool]

    @abstractmethod
    def section(self) -> tuple[Any, Any]:
        """Type and default of the section of the settings, as pydantic takes a field."""

    @abstractmethod
    def complaints(self, config: MasterConfig) -> Iterator[Complaint]:
        """Contradictions in the settings as a whole, if this is their cloud."""

    @abstractmethod
    def check(self, config: MasterConfig) -> None:
        """See that a master could start, as far as that can be told without asking anybody.

        Raises:
            InvalidConfig: The cloud could not be used.
        """

    @abstractmethod
    def prepare(self, config: MasterConfig, tell: Callable[[str], None]) -> Prepared:
        """Decide what the settings leave open, and fetch what a start needs.

        Args:
            config: The settings.
            tell: Told a sentence when something takes seconds.

        Raises:
            InvalidConfig: The settings ask for something that is not to be had.
            CloudError: The cloud does not answer.
        """

    @abstractmethod
    def catalog(self, config: MasterConfig) -> Catalog:
        """Offerings that the master may buy.

        Raises:
            InvalidConfig: The settings of the catalog cannot be used.
        """

    @abstractmethod
    def prices_taken(self, config: MasterConfig) -> str | None:
        """When the cloud was asked for its prices, in ISO 8601; `None` for those of the project."""

    @abstractmethod
    def loop_settings(self, config: MasterConfig, settings: Settings) -> Settings:
        """The control loop's settings with what the section says of them."""

    def shares_storage(self, config: MasterConfig) -> bool:  # noqa: ARG002
        """Whether the settings name a directory that all instances share."""
        return False

    def has_nominal_gpus(self, config: MasterConfig) -> bool:  # noqa: ARG002
        """Whether instances have GPUs by their type alone, and tasks find none."""
        return False

    @abstractmethod
    def runs_containers(self, config: MasterConfig) -> bool:
        """Whether jobs may name container images."""

    def identities(self, config: MasterConfig, authority: str) -> IdentityProver | None:  # noqa: ARG002
        """Lets identities of the cloud in; `None` if there is nothing like that.

        Args:
            config: The settings.
            authority: Digest of the cluster's authority.
        """
        return None

    @abstractmethod
    def open(self, config: MasterConfig, site: CloudSite) -> ManagedCloud:
        """Begin to watch the cloud.

        Args:
            config: Prepared, see `prepare`.
            site: Parts of the master that it needs.
        """
