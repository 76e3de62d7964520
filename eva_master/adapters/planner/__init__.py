"""The policy in a process of its own, and how snapshots get there."""
