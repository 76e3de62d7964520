"""Files of jobs, brought to this machine."""

from __future__ import annotations

from eva_client.downloads.fetching import Fetched, fetch

__all__ = ["Fetched", "fetch"]
