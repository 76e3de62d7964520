"""Sections of the settings, and what they are made of."""
