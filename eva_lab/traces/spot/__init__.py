"""Spot markets: read, written, and made up."""
