"""Stops of tasks: the time that they have."""
