"""Hosts for tests that are really apart: each has its own network, processes, mounts and engine.

`cluster.HostCluster` is where to begin; docs/design/testing.md draws the picture.
"""
