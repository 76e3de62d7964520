"""Text of others is shown as text, wherever a template puts it."""

from __future__ import annotations

import re

import pytest
from jinja2 import DictLoader

from eva_master.adapters.pages.rendering import Templates, static_files

HOSTILE = {
    "a script": "<script>alert(1)</script>",
    "an attribute": '" onmouseover="alert(1)',
    "an entity": "&lt;b&gt;",
    "an override of direction": "\u202egpj.exe",
    "isolates": "\u2066\u2067x\u2069",
    "a mark": "\u200f\u061cx",
    "escapes": "\x1b[2J\x07\x9b31m",
    "a NUL": "a\0b",
    "half a character": "\udc80",
    "a template": "{{ 7 * 7 }}{% raw %}",
}
ACTING = re.compile(
    "[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


@pytest.mark.parametrize("kind", HOSTILE)
def test_every_value_is_text_in_content_and_in_attributes(kind: str) -> None:
    text = HOSTILE[kind]
    templates = Templates(static_files())
    source = '{% call live("part") %}<p title="{{ text }}">{{ text }}</p>{% endcall %}'
    templates._environment.loader = DictLoader({"x.html": source})
    content = templates.content("x.html", {"text": text})
    html = content.live["part"]
    assert str(content.html) == f'<div id="part" data-live>{html}</div>'
    html.encode()
    assert not ACTING.search(html)
    match = re.fullmatch(r'<p title="([^"<>]*)">([^"<>]*)</p>', html)
    assert match, html
    assert "49" not in html


def test_ordinary_text_of_any_language_stays_as_it_is() -> None:
    templates = Templates(static_files())
    templates._environment.loader = DictLoader({"x.html": "{{ text }}"})
    for text in ("Straße 7", "训练", "تدريب", "a\tb", "emoji 🚀"):
        assert str(templates.content("x.html", {"text": text}).html) == text


def test_names_do_not_turn_what_stands_around_them() -> None:
    style = static_files()["eva.css"].data.decode()
    rule = re.search(r"([^{}]*)\{\s*unicode-bidi: isolate;\s*\}", style)
    assert rule is not None
    isolated = {name.strip() for name in rule[1].rpartition("*/")[2].split(",")}
    assert {"a", "b", "code", "span", "strong", "td"} <= isolated
