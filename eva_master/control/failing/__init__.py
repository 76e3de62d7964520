"""Consequences of failures: which of them end the retries, and what becomes of arrays."""
