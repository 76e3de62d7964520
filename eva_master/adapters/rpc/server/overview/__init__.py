"""The state of the cluster at a glance: prices over time, and what needs attention."""
