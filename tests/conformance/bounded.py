"""Options of policies whose defaults bound what they buy, so that the largest clusters fit."""

from __future__ import annotations

from typing import Any

BOUNDED: dict[str, dict[str, Any]] = {"cloudcoaster": {"slots": 1_000}}
