"""How fast jobs are by what they are given."""
