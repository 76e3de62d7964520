"""Limits of a calendar month: owners stop at theirs, tenants and partitions buy nothing more."""
