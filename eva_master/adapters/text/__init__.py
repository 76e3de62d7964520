"""Text that people write and programs read: YAML, quantities, tables."""
