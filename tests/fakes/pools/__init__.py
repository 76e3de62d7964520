"""Policies that use pools and lines."""
