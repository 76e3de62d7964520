"""Which policies order jobs by themselves, so that no deadline puts one before its equals."""

from __future__ import annotations

from typing import Any

import pytest

from eva_master.app.config import MasterConfig
from eva_master.app.master import partitions_of


@pytest.mark.parametrize(
    ("policy", "own"),
    [
        ({"name": "eva"}, False),
        ({"name": "no_packing"}, False),
        ({"name": "fifo"}, True),
        ({"name": "tiresias"}, True),
        ({"name": "yarn_cs"}, True),
        ({"name": "eva_published"}, True),
        ({"name": "stratus"}, True),
    ],
)
def test_policies_with_an_order_or_rounds_of_their_own_keep_it(
    policy: dict[str, Any], *, own: bool
) -> None:
    whole = partitions_of(MasterConfig.model_validate({"policy": policy}))
    assert whole.default.own_order is own
    parts = {"a": {"policy": policy, "default": True}, "b": {"policy": {"name": "eva"}}}
    divided = partitions_of(MasterConfig.model_validate({"partitions": parts}))
    assert divided.home("a").own_order is own
    assert not divided.home("b").own_order
