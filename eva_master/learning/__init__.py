"""Learned tables as pure values: co-location, standalone rates, delays, event rates."""
