"""Elastic gangs: how many members run, and changing that."""
