"""Secrets of users and tenants, at the users' port."""
