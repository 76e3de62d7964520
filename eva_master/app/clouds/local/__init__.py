"""Instances that are emulated on this machine."""
