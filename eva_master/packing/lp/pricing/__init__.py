"""Pricing: the task set that is worth most on one machine at given duals."""
