"""The section of the settings that names receivers of notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, PlainSerializer

from eva_master.adapters.notices.addresses import target_of
from eva_master.adapters.notices.bodies import JSON, form_of
from eva_master.adapters.notices.receivers import Receiver
from eva_master.app.sections.base import Entry, Section
from eva_master.app.sections.tenants import Complaint
from eva_master.model.accounting.tenants import OwnerPatterns, is_tenant
from eva_master.model.notices import Wanted
from eva_wire.settings.refusals import refusal
from eva_wire.values.notices import Topic

MOST_RECEIVERS = 16
_ASKED = "asked"
_MOST_OWNERS = 1_000


def _check_url(url: str) -> str:
    try:
        target_of(url)
    except ValueError as error:
        message = f"notices are not sent to this URL: {error}"
        raise refusal(message, "write https://HOST/PATH") from None
    return url


def _check_template(template: str) -> str:
    try:
        form_of(template)
    except ValueError as error:
        message = f"this template cannot be used: {error}"
        raise refusal(message, "write json, slack, or a text with $sentence") from None
    return template


def _check_name(name: str) -> str:
    if not is_tenant(name):
        raise refusal(
            f"{name[:80]!r} cannot name a receiver",
            "use letters, digits and '.', '_', '-', at most 63 of them",
        )
    return name


def _check_on(on: tuple[str, ...]) -> tuple[str, ...]:
    names = (_ASKED, *(topic.value for topic in Topic))
    unknown = next((entry for entry in on if entry not in names), None)
    if not on or unknown is not None:
        what = f"{unknown[:80]!r} is no topic" if unknown else "this receiver is told nothing"
        raise refusal(what, f"choose of {', '.join(names)}")
    return on


def _without_path(url: str) -> str:
    """The URL without what may be a secret, as in Slack's."""
    target = target_of(url)
    return target.shown + ("/..." if target.path != "/" else "")


class SecretSection(Section):
    """A secret.

    Attributes:
        file: The file that it is in.
    """

    file: Path


class ReceiverSection(Section):
    """A receiver of notices.

    Attributes:
        url: Where they are posted to: ``https://``, or ``http://`` on this machine alone.
        name: Its name in metrics and commands; its host if absent.
        on: Topics that it is told of, and ``asked`` for what the job files ask for.
        owners: Of whose jobs it is told: names, and patterns with one ``*``; of all if absent.
        secret: Signs notices; they are not signed if absent.
        template: ``json``, ``slack``, or a text with ``$NAME`` for each value.
        authorities: File with the certificates that its own is checked with; the machine's if
            absent.
    """

    url: Annotated[
        str,
        AfterValidator(_check_url),
        PlainSerializer(_without_path, return_type=str, when_used="json"),
    ]
    name: Annotated[str, AfterValidator(_check_name)] | None = None
    on: Annotated[tuple[str, ...], AfterValidator(_check_on)] = (_ASKED,)
    owners: Annotated[tuple[Entry, ...], Field(max_length=_MOST_OWNERS)] = ()
    secret: SecretSection | None = None
    template: Annotated[str, AfterValidator(_check_template)] = JSON
    authorities: Path | None = None

    @property
    def called(self) -> str:
        """Its name in metrics and commands."""
        return self.name or target_of(self.url).host

    @property
    def receiver(self) -> Receiver:
        """The receiver that the section describes."""
        return Receiver(
            self.called,
            target_of(self.url),
            Wanted(
                frozenset(Topic(entry) for entry in self.on if entry != _ASKED),
                asked=_ASKED in self.on,
                owners=OwnerPatterns(self.owners) if self.owners else None,
            ),
            form_of(self.template),
            None if self.secret is None else self.secret.file,
            self.authorities,
        )


ReceiverSections = Annotated[tuple[ReceiverSection, ...], Field(max_length=MOST_RECEIVERS)]


def called_alike(sections: Sequence[ReceiverSection]) -> Iterator[Complaint]:
    """Receivers of one name, which their outbox could not tell apart."""
    counts = Counter(section.called for section in sections)
    for number, section in enumerate(sections):
        if counts[section.called] > 1:
            yield (
                ("notify", number, "name" if section.name else "url"),
                f"several receivers are called {section.called!r}",
                "give each a `name` of its own",
            )
