"""Who is let in, how much of them at a time, and with what requests."""
