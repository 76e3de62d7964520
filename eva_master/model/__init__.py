"""Frozen values: the vocabulary of the scheduler. Nothing here does I/O or reads a clock."""
