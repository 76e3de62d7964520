"""The client of a master: the eva command and all that it needs on a user's machine."""
