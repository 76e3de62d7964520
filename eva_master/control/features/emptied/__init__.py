"""Instances that have emptied, and whether they stay."""
