"""Names in the cluster's certificates."""

from __future__ import annotations

MASTER_NAME = "master.eva.internal"
"""The name that clients require in the master's certificate, whatever its address. Every cluster
has the same; the authority identifies the cluster.
"""
