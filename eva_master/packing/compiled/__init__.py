"""The compiled part of packing."""
