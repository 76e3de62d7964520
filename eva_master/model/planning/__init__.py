"""What a policy is given and what it returns: snapshots, plans and their reasons."""
