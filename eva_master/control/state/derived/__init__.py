"""Indexes and sums derived from the records, rebuilt from them at a start."""
