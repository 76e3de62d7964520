"""How validators of settings complain."""

from __future__ import annotations

import re

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError


def refusal(message: str, hint: str) -> PydanticCustomError:
    """A validator's complaint that says what to write instead."""
    return PydanticCustomError("refused", "{message}", {"message": message, "hint": hint})


def between(least_ms: int, most_ms: int, words: str, example: str) -> AfterValidator:
    """A validator of durations.

    Args:
        least_ms: The shortest one.
        most_ms: The longest one.
        words: Both in words, such as ``1m and 30d``.
        example: A duration to write instead.
    """

    def check(duration_ms: int) -> int:
        if not least_ms <= duration_ms <= most_ms:
            raise refusal(f"must be between {words}", f"write {example}")
        return duration_ms

    return AfterValidator(check)


def matching(pattern: re.Pattern[str], what: str, example: str) -> AfterValidator:
    """A validator of texts, which says what one that does not match is not, and an example."""

    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise refusal(f"{text!r} is not {what}", f"write {example}")
        return text

    return AfterValidator(check)
