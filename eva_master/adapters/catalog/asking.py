"""Turns a cloud's answer about what it sells into an event."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from eva_master.model.catalog import Catalog
from eva_master.model.events import CatalogListed
from eva_wire.values.errors import EvaError

_MOST_WORDS = 400
"""Characters of an error that users are shown."""

_log = structlog.get_logger(__name__)


def answer(ask: Callable[[], Catalog]) -> CatalogListed:
    """Ask a cloud what it sells, which may take a minute; every failure is an answer, too."""
    try:
        return CatalogListed(ask())
    except EvaError as error:
        hint = f" ({error.hint})" if error.hint else ""
        why = f"{error.message}{hint}"
    except OSError as error:
        why = f"the answer cannot be written down: {error.strerror or error}"
    except Exception as error:
        _log.exception("the catalog cannot be read")
        why = f"{error!r}"
    why = " ".join(why.split())[:_MOST_WORDS]
    _log.warning("the cloud does not say what it sells; the present catalog stays", error=why)
    return CatalogListed(None, why)
