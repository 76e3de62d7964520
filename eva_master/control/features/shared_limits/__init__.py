"""Limits that partitions share, and the queues at them."""
