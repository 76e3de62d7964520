"""Directories to upload: what is in them, and what is left out."""
