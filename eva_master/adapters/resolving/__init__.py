"""Resolves job files against catalog, partitions and other jobs: nothing is left to interpret."""
