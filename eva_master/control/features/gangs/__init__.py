"""Jobs whose tasks start together."""
