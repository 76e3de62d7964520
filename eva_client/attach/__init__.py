"""The user's end of commands in tasks and of forwarded connections."""
