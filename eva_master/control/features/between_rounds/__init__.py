"""Data that rounds of planning leave to later rounds of any partition."""
