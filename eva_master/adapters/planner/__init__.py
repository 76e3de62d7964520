"""Runs the policy in a process of its own, and sends snapshots there."""
