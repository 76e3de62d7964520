"""Instances of the stand-in that boot without root: masters of stacks, and workers.

Each runs its real user data in a directory that stands for its root, with stand-ins for the
commands that change a machine (`commands.py`), and then real processes of the master or the worker.
"""

from __future__ import annotations

from tests.fakes.datacentre.centre import DataCentre

__all__ = ["DataCentre"]
