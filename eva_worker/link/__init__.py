"""The connection to the master: identity, channel, session and messages."""
