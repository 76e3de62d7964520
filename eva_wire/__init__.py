"""Shared parts of both ends of a wire: values, protocols, job files, settings, texts of people."""

VERSION = "0.1.0"
"""Version of all packages of the product."""
