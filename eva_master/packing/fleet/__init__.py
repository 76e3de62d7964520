"""Toolkit of policies that share a fixed fleet of several GPU types between many jobs."""
