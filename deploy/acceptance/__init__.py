"""Tries a whole cluster in an AWS account, and leaves nothing there but a report."""
