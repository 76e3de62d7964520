"""Refusals, losses and interruptions of a simulated cloud."""
