"""Instances for tests that EC2, or what takes its place, was asked for: they really boot.

`cluster.Ec2Cluster` is where to begin; docs/reference/test-hosts.md draws the figure.
"""
