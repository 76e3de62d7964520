"""Streams of jobs as they change: of the jobs that a caller names, and of all."""
