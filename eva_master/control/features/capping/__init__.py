"""Caps on what a job may cost: it is suspended while the rest still pays for its stop."""
