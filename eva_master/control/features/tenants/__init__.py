"""Quotas and budgets of tenants, and what policies see of tenants."""
