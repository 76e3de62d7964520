"""Copies of a training job that run at once."""
