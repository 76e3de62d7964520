"""Input and output of a policy: snapshots, plans and their reasons."""
