"""Tenants' benefits from a shared cluster, and their debts to each other."""
