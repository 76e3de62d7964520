"""Templates become HTML: every value is escaped, and shown as the text that it is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from eva_wire.text.escapes import visible

_HERE = Path(__file__).parent
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file that every browser gets.

    Attributes:
        data: Its content.
        media: Its type.
        version: Changes with the content.
    """

    data: bytes
    media: str
    version: str


def static_files() -> Mapping[str, StaticFile]:
    """All files below ``static/``, by their names."""
    return {
        path.name: StaticFile(
            data := path.read_bytes(), _TYPES[path.suffix], hashlib.sha256(data).hexdigest()[:12]
        )
        for path in sorted((_HERE / "static").iterdir())
        if path.suffix in _TYPES
    }


@dataclass(frozen=True, slots=True)
class Content:
    """A page without what is around it.

    Attributes:
        html: The whole of it.
        live: The parts that are sent again when they change, by id.
    """

    html: Markup
    live: Mapping[str, str]


class Templates:
    """The templates of all pages.

    Args:
        static: The files that pages refer to.
    """

    def __init__(self, static: Mapping[str, StaticFile]) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            finalize=_shown,
        )
        self._environment.globals["static"] = lambda name: f"/static/{name}?{static[name].version}"

    def content(self, template: str, values: Mapping[str, Any]) -> Content:
        """Render the content of a page."""
        live: dict[str, str] = {}
        html = self._environment.get_template(template).render(values, live=_collecting(live))
        return Content(Markup(html), live)  # noqa: S704 - a template escaped it

    def page(self, values: Mapping[str, Any]) -> str:
        """Render what is around a page, with its content."""
        return self._environment.get_template("base.html").render(values)


def _collecting(live: dict[str, str]) -> Callable[..., Markup]:
    def part(name: str, caller: Callable[[], Markup]) -> Markup:
        live[name] = str(caller())
        return Markup('<div id="{}" data-live>{}</div>').format(name, Markup(live[name]))  # noqa: S704

    return part


def _shown(value: Any) -> Any:
    """Text with the characters written out that act on a display, or turn around others."""
    if isinstance(value, str) and not isinstance(value, Markup) and not value.isprintable():
        return visible(value)
    return value
