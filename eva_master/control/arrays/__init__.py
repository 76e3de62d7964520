"""Arrays: what becomes of one of whose tasks some fail for good."""
