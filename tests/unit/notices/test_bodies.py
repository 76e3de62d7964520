"""A body is what its receiver reads it as, whatever a job is called and a program says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.adapters.notices.bodies import LONGEST_TEMPLATE, form_of
from eva_master.model.notices import Notice
from eva_wire.values.ids import Millis

NOTICE = Notice(
    "d1", "ops", Millis(1_764_288_000_000), "end", "failed", "failed: exit code 1",
    job="train-7", name="train", owner="ana", tenant="vision", tasks={"failed": 3},
)  # fmt: skip
HOSTILE = '<!channel> & "quotes" \\ \r\nX-Header: 1 \u202e $name ${id} \x1b[2J {"a": 1}'


def test_json_has_all_of_it() -> None:
    body = form_of("json").body(NOTICE, "prod")
    assert body.content_type == "application/json"
    assert json.loads(body.content) == {
        "id": "d1",
        "cluster": "prod",
        "at": "2025-11-28T00:00:00Z",
        "topic": "end",
        "kind": "failed",
        "job": "train-7",
        "name": "train",
        "owner": "ana",
        "tenant": "vision",
        "task": "",
        "instance": "",
        "text": "failed: exit code 1",
        "count": 1,
        "tasks": {"failed": 3},
    }


def test_slack_gets_a_sentence_without_markup_links_or_calls() -> None:
    notice = replace(NOTICE, text=HOSTILE)
    message = json.loads(form_of("slack").body(notice, "prod").content)
    assert message["text"] == (
        '[prod] train-7 of ana: &lt;!channel&gt; &amp; "quotes" \\ X-Header: 1 \\u202e $name'
        ' ${id} ^[[2J {"a": 1}. Tasks: 3 failed'
    )
    assert (message["mrkdwn"], message["parse"], message["unfurl_links"]) == (False, "none", False)


def test_a_template_of_json_stays_json_and_values_are_no_templates() -> None:
    form = form_of('{"title": "$name of $owner", "body": "$text", "n": ["${count}", "$$5"]}')
    notice = replace(NOTICE, text=HOSTILE, name='a"b')
    body = form.body(notice, "prod")
    assert body.content_type == "application/json"
    assert json.loads(body.content) == {
        "title": 'a"b of ana',
        "body": HOSTILE,
        "n": ["1", "$5"],
    }


def test_a_template_of_text_has_nothing_that_acts_on_a_terminal() -> None:
    body = form_of("eva: $sentence").body(replace(NOTICE, text="\x1b[2J\u202e"), "prod")
    assert body.content_type == "text/plain; charset=utf-8"
    expected = "eva: [prod] train-7 of ana: ^[[2J\\u202e. Tasks: 3 failed"
    assert body.content.decode() == expected


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("hello", "no value"),
        ("$secret", "$secret is no value"),
        ("${text.__class__}", "'$'"),
        ("$text and $", "'$'"),
        ('{"text": $text}', "quote each value"),
        ('{"text": "$text"', "quote each value"),
        ("$text" + "x" * LONGEST_TEMPLATE, "characters"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(template: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        form_of(template)
    assert why in str(caught.value)


@given(st.text(), st.text(max_size=100))
def test_no_text_breaks_out_of_its_place(text: str, name: str) -> None:
    notice = replace(NOTICE, text=text, name=name)
    assert json.loads(form_of("json").body(notice, "c").content)["text"] == text
    filled = json.loads(form_of('{"a": "$text", "b": "$name"}').body(notice, "c").content)
    assert filled == {"a": text[:2_000], "b": name}
    said = json.loads(form_of("slack").body(notice, "c").content)["text"]
    assert not {"<", ">", "\n", "\r", "\x1b"} & {*said}
    form_of("$text").body(notice, "c").content.decode()


def test_a_body_is_short_however_long_a_sentence_is() -> None:
    notice = replace(NOTICE, text="\x00" * 100_000, name="\x00" * 100_000)
    for template in ("slack", '{"a": "$text$text", "b": "$name"}', "$sentence"):
        assert len(form_of(template).body(notice, "c").content) < 64 << 10
