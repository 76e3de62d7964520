"""Clusters for tests of instances that have emptied."""
