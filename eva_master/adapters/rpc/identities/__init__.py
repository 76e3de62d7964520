"""The service that gives tokens to identities of a cloud."""
