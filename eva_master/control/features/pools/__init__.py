"""Pools and lines in a turn: room is filled, instances are drained."""
