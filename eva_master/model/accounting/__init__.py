"""Exact money, totals over everything that ever was, and whom jobs are accounted to."""
