"""From the state to a snapshot, and from a plan back to the state."""
