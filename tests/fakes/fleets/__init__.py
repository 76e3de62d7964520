"""Fleets that tests of several policies look at."""
