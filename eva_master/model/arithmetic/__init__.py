"""Integers in place of floating-point numbers: the same results on every machine, none lost."""
