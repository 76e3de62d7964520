"""Instances that come, prove themselves and go."""
