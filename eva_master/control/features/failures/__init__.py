"""Failures of tasks, and of instances."""
