"""Secrets that jobs need: a job of which one is missing waits, and is in no plan."""
