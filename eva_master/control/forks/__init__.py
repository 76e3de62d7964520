"""Forks of a job: the epochs in which they train, and the merges between these."""
