"""Owned nodes at the master's ports: who may join, and what operators ask."""
