"""Forks of a job that run here: their messages with the master, their files and the store."""
