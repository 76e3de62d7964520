"""Identities of a cloud in place of a stored token."""
