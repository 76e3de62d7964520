"""The Notices service, for operators alone."""
