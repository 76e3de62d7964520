"""What the master says over HTTPS."""
