"""The users' port, as both ends know it: methods, channels, messages and errors."""
