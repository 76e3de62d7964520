"""What the users' port tells of partitions."""
