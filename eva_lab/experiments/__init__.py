"""Experiments: sweeps of simulations over policies, traces, seeds and options."""
