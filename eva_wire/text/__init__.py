"""Reads and writes text for people: YAML, quantities and tables."""
