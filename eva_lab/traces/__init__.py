"""Reads, writes and generates traces and tables of interference."""

from eva_lab.traces.evajson import read_trace, write_trace
from eva_lab.traces.interference import (
    measured_interference,
    read_interference,
    uniform_interference,
)

__all__ = [
    "measured_interference",
    "read_interference",
    "read_trace",
    "uniform_interference",
    "write_trace",
]
