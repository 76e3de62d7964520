"""Scenarios of simulations: a trace, or the recorded past of a live cluster."""
