"""Settings of Hadar as published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Interval

from eva_master.model.option_types import Seconds
