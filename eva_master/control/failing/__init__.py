"""What failures lead to: which of them end the retries, and what becomes of arrays."""
