"""Messages of the users' port about partitions."""
