"""Helpers for tests of what the cluster learns."""
