"""Wiring, settings and the command line: the layer that imports all others."""
