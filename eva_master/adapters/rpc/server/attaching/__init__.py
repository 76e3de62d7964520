"""The users' side of attachments: which task is meant, and whether its user may get in."""
