"""How a host process is told that its instance is taken back. Standard library only."""

from __future__ import annotations

import signal

TAKE_BACK = signal.SIGUSR1
"""The cloud takes the spot instance back."""
TAKEN_BACK = "taken-back"
"""File in the instance's directory that says so from then on."""
