"""Limits how many calls callers may make at a time, and with what requests."""
