"""Sizes of elastic gangs: how many members a cluster can hold, and what they cost."""
