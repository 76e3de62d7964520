"""Values that follow what changes from snapshot to snapshot."""
