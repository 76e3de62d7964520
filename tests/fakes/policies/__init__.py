"""Policies that tests plan with."""
