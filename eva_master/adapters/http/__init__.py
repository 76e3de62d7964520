"""Pages that the master serves over HTTPS."""
