"""The client of a master's users."""
