"""What the cluster's certificates call whom."""

from __future__ import annotations

MASTER_NAME = "master.eva.internal"
"""The name that clients require in the master's certificate, whatever its address. It is the same
in every cluster; the authority identifies the cluster."""
