"""Receivers in the settings: what is refused, and what of them is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eva_master.app.policy_registry import policies
from eva_master.app.sections.policies import shown_settings
from eva_master.app.settings import load_master_config
from eva_wire.values.errors import InvalidConfig
from eva_wire.values.notices import Topic

SLACK = "https://hooks.slack.com/services/T0/B0/S3CR3T"


def loaded(tmp_path: Path, *receivers: dict[str, object]):  # type: ignore[no-untyped-def]
    file = tmp_path / "master.yaml"
    file.write_text(json.dumps({"notify": receivers}))
    return load_master_config(policies=policies(), file=file)


def test_a_receiver_is_read_and_shown_without_its_path(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        {"url": SLACK, "template": "slack"},
        {"url": "http://127.0.0.1:9/x?token=S3CR3T", "name": "own", "on": ["asked", "late"],
         "owners": ["*@vision"], "secret": {"file": "/etc/eva/key"}},
    )  # fmt: skip
    first, second = (section.receiver for section in config.notify)
    assert (first.name, first.target.path) == ("hooks.slack.com", "/services/T0/B0/S3CR3T")
    assert first.wanted.asked
    assert not first.wanted.topics
    assert (second.wanted.topics, second.secret) == ({Topic.LATE}, Path("/etc/eva/key"))
    assert second.wanted.owners is not None
    assert second.wanted.owners.match("ana@vision")
    shown = json.dumps(shown_settings(config))
    assert "S3CR3T" not in shown
    assert '"url": "https://hooks.slack.com/..."' in shown


@pytest.mark.parametrize(
    ("receivers", "message"),
    [
        ([{"url": "http://example.com/S3CR3T"}], "unencrypted"),
        ([{"url": "https://169.254.169.254/S3CR3T"}], "credentials"),
        ([{"url": SLACK, "on": ["lunch"]}], "'lunch' is no topic"),
        ([{"url": SLACK, "on": []}], "told nothing"),
        ([{"url": SLACK, "template": "$S3CR3T "}], "is no value"),
        ([{"url": SLACK, "secret": "S3CR3T"}], "notify[0].secret"),
        ([{"url": SLACK, "owners": ["a*b*"]}], "has two '*'"),
        ([{"url": SLACK, "name": "a b"}], "cannot name a receiver"),
        ([{"url": SLACK}, {"url": SLACK}], "called 'hooks.slack.com'"),
        ([{"url": SLACK, "name": f"r{number}"} for number in range(17)], "notify"),
    ],
)
def test_a_receiver_that_cannot_be_is_refused_without_what_may_be_secret(
    tmp_path: Path, receivers: list[dict[str, object]], message: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        loaded(tmp_path, *receivers)
    text = f"{caught.value.message} {caught.value.problems}"
    assert message in text
    assert "/S3CR3T" not in text
