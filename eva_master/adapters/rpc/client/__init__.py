"""The master as its users call it."""
