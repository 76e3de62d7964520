"""Limits that partitions share: who waits for one, in which order, and who gets what is free."""
