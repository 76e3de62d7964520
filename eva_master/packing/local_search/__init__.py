"""Local search for the configuration that costs least."""
