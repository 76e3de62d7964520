"""What the master says over plain HTTP."""
