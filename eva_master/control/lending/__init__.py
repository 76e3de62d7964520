"""What tenants get out of a cluster that they share, and what they owe each other."""
