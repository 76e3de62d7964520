"""Instances of EC2."""
