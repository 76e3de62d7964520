"""Attempts of task runs, and how they ended."""
