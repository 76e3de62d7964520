"""Accounts and measurements follow task runs."""
