"""Tenants: their quotas and budgets, how policies see them, and payments between them."""
