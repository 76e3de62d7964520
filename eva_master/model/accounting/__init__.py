"""Exact money, and totals over everything that ever was."""
