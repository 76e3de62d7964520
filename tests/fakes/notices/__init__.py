"""Receivers of notices that behave, and others, for tests."""
