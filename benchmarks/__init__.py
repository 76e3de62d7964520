"""Measurements behind the figures in the documentation; each module runs by itself."""
