"""Debts between tenants follow jobs."""
