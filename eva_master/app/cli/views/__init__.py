"""How answers look: tables, JSON and words."""
