"""How validators of settings complain."""

from __future__ import annotations

from pydantic_core import PydanticCustomError


def refusal(message: str, hint: str) -> PydanticCustomError:
    """A validator's complaint that says what to write instead."""
    return PydanticCustomError("refused", "{message}", {"message": message, "hint": hint})
