"""Wiring, settings and the command line: everything that knows all the rest."""
