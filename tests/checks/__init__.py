"""Checks of the source that no other linter does: ``python -m tests.checks``."""
