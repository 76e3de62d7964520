"""Notices: what happens is told to receivers over HTTPS, from an outbox in the journal."""
